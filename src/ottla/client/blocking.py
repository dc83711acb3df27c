"""The clients for callers without an event loop: a loop in a thread of its own runs what they wait for.

with Blocking("127.0.0.1:9092") as client:
    created = client.wait(create_topics(client.cluster, [NewTopic("orders")]))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from ottla.client.errors import UsageError
from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.net.client import Connector, connect_tcp

Result = TypeVar("Result")


class LoopThread:
    """A thread with an event loop. Several threads may use it: each waits for its own.

    A daemon: a program that forgets to close its client still ends.
    """

    def __init__(self, name: str = "ottla-client") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop itself, as a callback is: it must not wait for it."""
        return threading.current_thread() is self._thread

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine to its end. Interrupting the wait cancels the work."""
        if self.is_current:
            work.close()
            raise UsageError("a callback must not wait: it runs on the thread that would do the work")
        future = self.submit(work)
        try:
            return future.result()
        except (KeyboardInterrupt, CancelledError):
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine, which runs while the caller does other things."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """A cluster whose loop runs beside the caller."""

    def __init__(
        self, bootstrap_servers: str, options: ClientOptions | None = None, connector: Connector = connect_tcp
    ) -> None:
        self.cluster = Cluster(parse_addresses(bootstrap_servers), options, connector)
        self._thread = LoopThread()

    def __enter__(self) -> Blocking:
        self._thread.start()
        try:
            self.wait(self.cluster.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait(self.cluster.close())
        finally:
            self._thread.stop()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine of the client to its end. Interrupting the wait cancels the work."""
        return self._thread.wait(work)

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine of the client, which runs while the caller does other things."""
        return self._thread.submit(work)
