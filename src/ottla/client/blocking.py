"""The client for callers without an event loop: a loop in a thread of its own runs what they wait for.

with Blocking("127.0.0.1:9092") as client:
    created = client.wait(create_topics(client.cluster, [NewTopic("orders")]))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.net.client import Door, tcp_door

Result = TypeVar("Result")


class Blocking:
    """A cluster whose loop runs beside the caller. Several threads may use it: each waits for its own."""

    def __init__(self, bootstrap_servers: str, options: ClientOptions | None = None, door: Door = tcp_door) -> None:
        self.cluster = Cluster(parse_addresses(bootstrap_servers), options, door)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-client", daemon=True)

    def __enter__(self) -> Blocking:
        self._thread.start()
        try:
            self.wait(self.cluster.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait(self.cluster.close())
        finally:
            self._stop()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine of the client to its end. Interrupting the wait cancels the work."""
        future = self.start(work)
        try:
            return future.result()
        except (KeyboardInterrupt, CancelledError):
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine of the client, which runs while the caller does other things."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
