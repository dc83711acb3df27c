"""What a connection has to send: bytes and ranges of files leave in order, in few calls, and hold little memory."""

from __future__ import annotations

import os
import socket
from typing import Any, BinaryIO

from ottla.net.outbox import READ_ALONG_BYTES_MAX, READ_BYTES_MAX, Outbox
from ottla.net.transport import Plain
from ottla.runtime.turns import Turns


class FileRange:
    """A range of an open file."""

    def __init__(self, file: BinaryIO, position: int, size_bytes: int) -> None:
        self._file = file
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size_bytes, self.position)


def test_a_small_slice_of_a_file_leaves_with_the_bytes_around_it_in_one_call(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10) + b"records" + b"x" * 100_000)
    calls: list[list[bytes]] = []

    with path.open("rb") as file:
        ours, theirs = socket.socketpair()

        def noted(parts: Any) -> int:
            calls.append([bytes(part) for part in parts])
            return ours.sendmsg(calls[-1])

        transport = Plain(ours)
        transport.sendmsg = noted  # type: ignore[assignment]
        outbox = Outbox(transport, Turns())
        outbox.parts.extend([b"head", FileRange(file, 10, 7), b"middle", FileRange(file, 17, 60_000), b"tail"])
        assert outbox.send()
        assert calls == [[b"head", b"records", b"middle"]], "the large one is for the kernel"
        received = b""
        while len(received) < 4 + 7 + 6 + 60_000 + 4:
            received += theirs.recv(1 << 20)
        assert received == b"headrecordsmiddle" + b"x" * 60_000 + b"tail"
        ours.close()
        theirs.close()


def test_parts_without_bytes_are_passed_over() -> None:
    ours, theirs = socket.socketpair()
    outbox = Outbox(Plain(ours), Turns())
    for parts in ([b""], [b"", b""], [b"a", b"", b"b", b""], [memoryview(b"")]):
        outbox.parts.extend(parts)
        assert outbox.send()
        assert not outbox.parts
    assert theirs.recv(10) == b"ab"
    ours.close()
    theirs.close()


def test_little_is_read_of_files_for_a_peer_that_takes_next_to_nothing(tmp_path: Any) -> None:
    """However often it takes a little: what was read for it before counts."""
    path = tmp_path / "file"
    path.write_bytes(bytes(READ_ALONG_BYTES_MAX))
    with path.open("rb") as file:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        transport = Plain(ours)
        taken = 0

        def a_little(parts: Any) -> int:
            nonlocal taken
            taken += 1
            if taken % 2 == 0:
                raise BlockingIOError
            return 1

        transport.sendmsg = a_little  # type: ignore[assignment]
        outbox = Outbox(transport, Turns())
        outbox.parts.extend(part for _ in range(30) for part in (b"head", FileRange(file, 0, READ_ALONG_BYTES_MAX)))
        for _ in range(100):
            assert not outbox.send()
            assert sum(len(part) for part in outbox.parts if not isinstance(part, FileRange)) <= READ_BYTES_MAX + 200
        ours.close()
        theirs.close()
