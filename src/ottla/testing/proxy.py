"""A TCP proxy in front of a server, which does to its connections what networks do: delays, cuts, resets, lost answers.

    with Proxy(broker_port) as proxy:
        ...                             # clients connect to proxy.port
        proxy.cut()                     # nothing passes any more, without a sign to either side
        proxy.heal()                    # what was on its way arrives
        proxy.hold(AlterPartitionRequest)       # requests of this API wait here, and what is behind them
        proxy.lose_response(ProduceRequest)     # the next such request is carried out, its answer never comes

It runs on an event loop in a thread of its own; its methods are called from outside and have taken effect when they
return. ZooKeeper's frames have their length in front as well: all but `hold` and `lose_response` work with it too.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.protocol.schema import message_schema_of

LOOPBACK: Final = "127.0.0.1"
PIECE_BYTES: Final = 64 * 1024
HEADER_BYTES: Final = 6  # the length of a frame and the key of the API
_HEADER = struct.Struct(">ih")
_LENGTH = struct.Struct(">i")

Result = TypeVar("Result")


class Proxy:
    """In front of a server at a port of this machine; listens from `start` (or the beginning of a `with`) to `stop`."""

    def __init__(self, target_port: int, port: int = 0) -> None:
        self.port = port
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_s = 0.0
        self.held: dict[int, asyncio.Event] = {}
        self.lost: deque[int] = deque()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._reset()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run(self._target_port)
        finally:
            self._connections.discard(connection)

    # -- what networks do ----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Nothing passes until `heal`, in either direction; new connections are accepted and get nothing."""
        self._call(self.is_open.clear)

    def heal(self) -> None:
        """Everything passes again, and what waited goes on its way."""

        def heal() -> None:
            self.is_open.set()
            self.delay_s = 0.0
            self.lost.clear()
            for event in self.held.values():
                event.set()
            self.held.clear()

        self._call(heal)

    def delay(self, seconds: float) -> None:
        """Every piece of bytes, in either direction, takes so much longer."""

        def delay() -> None:
            self.delay_s = seconds

        self._call(delay)

    def reset(self) -> None:
        """All connections break; new ones can be made."""
        self._run(self._reset())

    async def _reset(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.end()
        await asyncio.gather(*(connection.ended.wait() for connection in connections))

    def hold(self, request: type) -> None:
        """Requests of this API wait here until `heal`, and what comes behind them on their connection."""
        self._call(lambda: self.held.setdefault(_key_of(request), asyncio.Event()))

    def lose_response(self, request: type) -> None:
        """The next request of this API is passed on, and its connection breaks when the answer comes."""
        self._call(lambda: self.lost.append(_key_of(request)))

    # -- from other threads --------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, change: Callable[[], object]) -> None:
        async def call() -> None:
            change()

        self._run(call())


def _key_of(request: type) -> int:
    key = message_schema_of(request).key
    assert key is not None, f"{request.__name__} is not a request"
    return key


class _Connection:
    """One connection of a client, and the one that was made to the server for it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._task = asyncio.current_task()
        # For each request that the server has not answered: whether its answer gets lost.
        self._is_lost: deque[bool] = deque()
        self.ended = asyncio.Event()

    def end(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def run(self, target_port: int) -> None:
        server: asyncio.StreamWriter | None = None
        try:
            reader, server = await asyncio.open_connection(LOOPBACK, target_port)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._requests(server))
                directions.create_task(self._responses(reader))
        except* (OSError, _EndedError, asyncio.IncompleteReadError):
            pass  # one end is gone: so is the other, below
        except* asyncio.CancelledError:
            pass  # by `end`
        finally:
            for writer in (self._writer, server):
                if writer is not None:
                    writer.transport.abort()
            self.ended.set()

    async def _requests(self, server: asyncio.StreamWriter) -> None:
        while True:
            header = await self._reader.readexactly(HEADER_BYTES)
            length, api_key = _HEADER.unpack(header)
            if (event := self._proxy.held.get(api_key)) is not None:
                await event.wait()
            self._is_lost.append(bool(self._proxy.lost) and self._proxy.lost[0] == api_key)
            if self._is_lost[-1]:
                self._proxy.lost.popleft()
            await self._pass(header, self._reader, length - (HEADER_BYTES - _LENGTH.size), server)

    async def _responses(self, reader: asyncio.StreamReader) -> None:
        while True:
            header = await reader.readexactly(_LENGTH.size)
            if self._is_lost and self._is_lost.popleft():
                raise _EndedError
            await self._pass(header, reader, _LENGTH.unpack(header)[0], self._writer)

    async def _pass(self, header: bytes, reader: asyncio.StreamReader, rest: int, writer: asyncio.StreamWriter) -> None:
        if self._proxy.delay_s:
            await asyncio.sleep(self._proxy.delay_s)
        await self._proxy.is_open.wait()
        writer.write(header)
        while rest > 0:
            piece = await reader.read(min(rest, PIECE_BYTES))
            if not piece:
                raise _EndedError
            await self._proxy.is_open.wait()
            writer.write(piece)
            rest -= len(piece)
            await writer.drain()


class _EndedError(Exception):
    """A connection is over."""
