"""Connects our clients through a simulated network: a transport on a simulated socket.

Producer(bootstrap_servers="broker-1:9092", connector=simulated_connector(world.network.host("client")))
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from ottla.net.client import Address, ClientTransport, Connector
from ottla.testing.network import Host

PAUSE_BYTES = 65_536  # more than this unsent: the protocol is asked to wait


def simulated_connector(host: Host) -> Connector:
    """Connections from that host."""

    def connector(
        make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address
    ) -> Awaitable[ClientTransport]:
        return _connect(host, make_protocol, address)

    return connector


async def _connect(
    host: Host, make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address
) -> ClientTransport:
    return SimulatedTransport(await host.connect(*address), make_protocol())


class SimulatedTransport:
    """Bytes between a socket and a protocol; a task for each direction, which end with the connection."""

    def __init__(self, sock: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        self._socket = sock
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_news = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._writing = loop.create_task(self._write())

    def write(self, data: bytes | memoryview) -> None:
        if self._is_closing:
            return
        self._unsent += data
        self._has_news.set()
        if len(self._unsent) > PAUSE_BYTES and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._is_closing = True
        self._has_news.set()

    def abort(self) -> None:
        self._is_closing = True
        self._lose(None)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._unsent or not self._is_closing:
                if not self._unsent:
                    self._has_news.clear()
                    await self._has_news.wait()
                    continue
                piece = bytes(self._unsent[:PAUSE_BYTES])
                del self._unsent[: len(piece)]
                await loop.sock_sendall(self._socket, piece)
                if self._is_paused and len(self._unsent) <= PAUSE_BYTES:
                    self._is_paused = False
                    self._protocol.resume_writing()
        except OSError as error:
            self._lose(error)
        else:
            self._lose(None)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                data = await loop.sock_recv(self._socket, PAUSE_BYTES)
                if not data:
                    self._protocol.eof_received()
                    break
                self._take(data)
        except OSError as error:
            self._lose(error)
        else:
            self._lose(None)

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            with memoryview(self._protocol.get_buffer(-1)) as buffer:
                piece = data[at : at + len(buffer)]
                buffer[: len(piece)] = piece
            self._protocol.buffer_updated(len(piece))
            at += len(piece)

    def _lose(self, error: OSError | None) -> None:
        """The end, reported once; later, as a loop does it."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        current = asyncio.current_task()
        for task in (self._reading, self._writing):
            if task is not current:
                task.cancel()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)  # the tasks end in a later turn, and the socket is closed in this one
        loop.remove_writer(self._socket)
        self._socket.close()
        loop.call_soon(self._protocol.connection_lost, error)
