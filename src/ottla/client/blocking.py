"""The clients for callers without an event loop: a loop in a thread of its own runs what they wait for.

with Blocking("127.0.0.1:9092") as client:
    created = client.wait(create_topics(client.cluster, [NewTopic("orders")]))
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from ottla.client.errors import ClosedError, UsageError
from ottla.client.lifetime import Lifetime
from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.net.client import Connector, connect_tcp

LAST_MOMENT_S: Final = 2.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LoopThread:
    """A thread with an event loop. Several threads may use it: each waits for its own.

    A daemon: a program that forgets to close its client still ends.
    """

    def __init__(self, name: str = "ottla-client") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._waited_for: set[Future[Any]] = set()
        self._is_stopping = False

    def _run(self) -> None:
        """Until `stop`. A user's code that exits ends the call that ran it, not everybody's loop."""
        while True:
            try:
                return self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # whoever waits for that work has it

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop itself, as a callback is: it must not wait for it."""
        return threading.current_thread() is self._thread

    def check_may_wait(self) -> None:
        if self.is_current:
            raise UsageError("a callback must not wait: it runs on the thread that would do the work")

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine to its end. Interrupting the wait cancels the work."""
        try:
            self.check_may_wait()
        except UsageError:
            work.close()
            raise
        future = self.submit(work)
        self._waited_for.add(future)
        try:
            return future.result()
        except CancelledError:
            if self._is_stopping:
                raise ClosedError("the client was closed meanwhile, by another thread") from None
            raise
        except KeyboardInterrupt:
            future.cancel()
            raise
        finally:
            self._waited_for.discard(future)

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine, which runs while the caller does other things."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self) -> None:
        """Ends the thread. What was interrupted in the middle of closing gets a moment to end."""
        self._is_stopping = True
        for future in list(self._waited_for):  # of other threads
            future.cancel()
        self.submit(_others_ended()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _others_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, running = await asyncio.wait(others, timeout=LAST_MOMENT_S)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class AsyncClient(Protocol):
    """What is needed of a client on asyncio, to be one for threads."""

    client_id: str
    _lifetime: Lifetime

    async def close(self) -> None: ...


Core = TypeVar("Core")
ClientCore = TypeVar("ClientCore", bound=AsyncClient)


class Front(Generic[Core]):
    """A client for threads: the one on asyncio, and a way to wait for what it does."""

    _core: Core

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work of the client on its loop; work that may not be begun is closed."""
        raise NotImplementedError


def waiting(
    call: Callable[Concatenate[Core, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Front[Any], Parameters], Result]:
    """A method that waits for what its twin on asyncio does, with the same arguments and documentation."""

    @functools.wraps(call)
    def wait(self: Front[Any], /, *arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        return self._wait(call(self._core, *arguments, **keywords))

    return wait


def on_loop(
    call: Callable[Concatenate[Core, Parameters], Result],
) -> Callable[Concatenate[Front[Any], Parameters], Result]:
    """The same for what does not wait: it is done on the loop, between two steps of everything else."""

    @functools.wraps(call)
    def do(self: Front[Any], /, *arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        async def done() -> Result:
            return call(self._core, *arguments, **keywords)

        return self._wait(done())

    return do


class ThreadedClient(Front[ClientCore]):
    """A client that any number of threads may use: it has a thread from its beginning to its end."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._thread = LoopThread(f"ottla-{core.client_id}")
        self._thread.start()
        self._closing = threading.Lock()

    @property
    def client_id(self) -> str:
        return self._core.client_id

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            self._core._lifetime.check()
        except BaseException:
            work.close()
            raise
        return self._thread.wait(work)

    def _close(self, closing: Coroutine[Any, Any, None]) -> None:
        """Ends the client and its thread; a second thread that closes waits for the first."""
        try:
            self._thread.check_may_wait()
            self._closing.acquire()
        except BaseException:
            closing.close()
            raise
        try:
            if self._core._lifetime.is_closed and not self._thread.is_running:
                closing.close()
                return
            try:
                self._thread.wait(closing)
            finally:
                self._thread.stop()
        finally:
            self._closing.release()


class Blocking:
    """A cluster whose loop runs beside the caller."""

    def __init__(
        self, bootstrap_servers: str, options: ClientOptions | None = None, connector: Connector = connect_tcp
    ) -> None:
        self.cluster = Cluster(parse_addresses(bootstrap_servers), options, connector)
        self._thread = LoopThread()
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []

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
            self.wait(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        try:
            for close in self._closing:
                await close()
        finally:
            await self.cluster.close()

    def close_with(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What else is to be closed, on the loop and before the cluster: a producer over it, for example."""
        self._closing.append(close)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine of the client to its end. Interrupting the wait cancels the work."""
        return self._thread.wait(work)

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine of the client, which runs while the caller does other things."""
        return self._thread.submit(work)
