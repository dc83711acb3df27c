"""What carries a connection says which short ways may be taken around it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ottla.net.connection import Connection, Reply
from ottla.net.server import Server, ServerLimits, bind_socket
from ottla.net.transport import Plain, Transport

WAIT_S = 60


def test_a_socket_of_the_kernel_may_be_used_by_its_descriptor() -> None:
    one, other = socket.socketpair()
    with one, other:
        transport: Transport = Plain(one)
        assert transport.can_sendfile
        assert transport.can_shortcut


def test_a_socket_that_encrypts_is_a_socket_too_and_takes_no_short_way() -> None:
    one, other = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with other, context.wrap_socket(one, do_handshake_on_connect=False) as encrypting:
        assert isinstance(encrypting, socket.socket)
        transport = Plain(encrypting)
        assert not transport.can_sendfile
        assert not transport.can_shortcut


class Flipped(Plain):
    """As TLS will be: the bytes on the socket are not those of the protocol."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.can_sendfile = self.can_shortcut = False
        self.recv_into: Any = self._receive_flipped
        self.send: Any = lambda data: sock.send(flip(data))
        self.sendmsg: Any = lambda parts: sock.send(flip(b"".join(parts)))

    def _receive_flipped(self, buffer: Any) -> int:
        count = self.socket.recv_into(buffer)
        buffer[:count] = flip(buffer[:count])
        return count

    def sendfile(self, descriptor: int, position: int, count: int) -> int:
        raise AssertionError("the kernel does not flip")


def flip(data: Any) -> bytes:
    return bytes(byte ^ 0xFF for byte in bytes(data))


class FileSlice:
    """A range of a file that the operating system knows."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self.position = 0
        self._file = file
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        raise AssertionError("a file of the operating system is read piece by piece")


@pytest.mark.parametrize("is_from_file", [False, True], ids=["from memory", "from a file"])
def test_every_byte_goes_through_a_transport_that_encrypts(tmp_path: Path, is_from_file: bool) -> None:
    body = b"answer to "
    path = tmp_path / "segment"
    path.write_bytes(b"what is stored")

    def handle(connection: Connection, frame: memoryview) -> Reply:
        told = body + bytes(frame)
        if not is_from_file:
            return [struct.pack(">i", len(told)) + told]
        stored = FileSlice(file, path.stat().st_size)
        return [struct.pack(">i", len(told) + stored.size_bytes) + told, stored]

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = Server(loop, ServerLimits())
        listening = bind_socket("127.0.0.1", 0)
        listening.listen(1)
        listener = server.listen("SSL", listening, handle, open_transport=Flipped)
        server.start()
        with socket.create_connection(listener.address) as client:
            client.setblocking(False)
            expected = body + b"question" + (b"what is stored" if is_from_file else b"")
            await loop.sock_sendall(client, flip(struct.pack(">i", 8) + b"question"))
            received = b""
            while len(received) < 4 + len(expected):
                received += await asyncio.wait_for(loop.sock_recv(client, 1000), WAIT_S)
            assert flip(received) == struct.pack(">i", len(expected)) + expected
        server.stop_accepting()
        await server.drain(30)

    with path.open("rb") as file:
        asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_a_connection_has_the_session_of_its_listener_and_peer() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = Server(loop, ServerLimits())
        listening = bind_socket("127.0.0.1", 0)
        listening.listen(1)
        listener = server.listen(
            "INSIDE", listening, lambda connection, frame: None, open_session=lambda name, host: (name, host)
        )
        server.start()
        with socket.create_connection(listener.address):
            while not server.connections:
                await asyncio.sleep(0)
            (connection,) = server.connections
            assert connection.session == ("INSIDE", "127.0.0.1")
        server.stop_accepting()
        await server.drain(30)

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))
