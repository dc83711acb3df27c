"""What the benchmarks share: a running process under test, and raw connections that send ready-made frames."""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass

from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import message_schema_of


def cpu_clock(pid: int) -> int:
    """The clock that counts a process's CPU time, all threads, in nanoseconds: /proc has it in hundredths of a second.

    As clock_getcpuclockid(3) makes it on Linux: the process id with all bits turned over, and what it counts.
    """
    scheduled_time = 2
    return (~pid << 3) | scheduled_time


@dataclass
class Peer:
    """A running broker under test, or the floor."""

    name: str
    bootstrap: str
    pid: int
    ready_s: float

    def cpu_s(self) -> float:
        return time.clock_gettime(cpu_clock(self.pid))

    def resident_mb(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class RawConnection:
    """Sends ready-made frames and counts the bytes that come back."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._socket.recv(min(size, 1 << 20))
            assert piece, "the broker closed the connection"
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> None:
        """Receives bytes that nobody looks at."""
        room = bytearray(min(size, 1 << 20))
        while size:
            count = self._socket.recv_into(room, min(size, len(room)))
            assert count, "the broker closed the connection"
            size -= count

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        length = self.receive(4)
        return length + self.receive(struct.unpack(">i", length)[0])

    def close(self) -> None:
        self._socket.close()


def frame_of(request: object, version: int) -> bytes:
    """A request as it goes over the wire, with one correlation id for all."""
    key = message_schema_of(type(request)).key
    assert key is not None, f"{type(request).__name__} is no request"
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="bench")
    body = encode_request_header(header) + encode(request, version)
    return struct.pack(">i", len(body)) + body
