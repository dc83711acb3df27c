"""The client for callers without an event loop: one runs what they wait for, beside them or in their own thread.

with Blocking("127.0.0.1:9092") as client:
    created = client.wait(create_topics(client.cluster, [NewTopic("orders")]))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
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
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, CancelledError):
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Inline:
    """A cluster whose loop runs in the caller's thread, and only while the caller waits.

    Nothing has to be handed from thread to thread, which is cheaper and survives in a process that forks. What is on
    its way meanwhile stays in the buffers of the system, and a connection that ends is noticed at the next wait.
    """

    def __init__(self, bootstrap_servers: str, options: ClientOptions | None = None, door: Door = tcp_door) -> None:
        self.cluster = Cluster(parse_addresses(bootstrap_servers), options, door)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Inline:
        try:
            self.wait(self.cluster.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine of the client to its end. Interrupting the wait cancels the work."""
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            try:
                self.wait(self.cluster.close())
            finally:
                self._loop.close()
