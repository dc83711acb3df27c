"""What a connection has to send: bytes and ranges of files, in order.

A range of a file is sent by the kernel; a small one is read instead and leaves with the bytes before it, in one call.
Limits: so much of one file, and so long for many, before others get their turn.
"""

from __future__ import annotations

import errno
import math
import os
from collections import deque
from typing import Any, Protocol, TypeAlias

from ottla.errors import StorageError
from ottla.net.transport import Transport
from ottla.runtime.turns import Turns

SEND_PARTS_MAX = 64  # parts handed to one sendmsg
SENDFILE_BYTES_MAX = 1024 * 1024  # sent of one slice before others get their turn
READ_BYTES_MAX = 256 * 1024  # of one slice, where the kernel cannot send it
READ_ALONG_BYTES_MAX = 32 * 1024  # a slice that is sent with the bytes before it: for so few, a copy costs less
SLICES_S = 0.002  # spent on slices of files, which are a call of the system each, before others get their turn


class FileRange(Protocol):
    """A range of a file, to be sent by the kernel."""

    @property
    def position(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor; OSError where the file is none of the operating system's."""
        ...

    def read(self) -> bytes: ...


Part: TypeAlias = bytes | bytearray | memoryview | FileRange


class Outbox:
    """The parts that are still to be sent. Who owns it appends to `parts`."""

    __slots__ = ("_slices_end", "_timer", "_transport", "parts")

    def __init__(self, transport: Transport, turns: Turns) -> None:
        self._transport = transport
        self._timer = turns.timer
        self._slices_end = math.inf  # when others get their turn, by the timer
        self.parts: deque[Any] = deque()  # of Part: told apart by type when they are sent

    def send(self) -> bool:
        """Sends as much as the socket takes; True when nothing is left."""
        parts = self.parts
        read_bytes = 0
        self._slices_end = math.inf
        while parts:
            part = parts[0]
            if _is_in_memory(part):
                if not self._send_bytes():
                    return False
            else:
                if read_bytes >= SENDFILE_BYTES_MAX or not self._may_take_slice() or not self._send_file(part):
                    return False
                if not self._transport.can_sendfile:
                    read_bytes += len(parts[0])
        return True

    def _may_take_slice(self) -> bool:
        """Whether there is time for one more slice of a file before others have their turn; for the first there is."""
        now = self._timer()
        if self._slices_end == math.inf:
            self._slices_end = now + SLICES_S
        return now < self._slices_end

    def _send_bytes(self) -> bool:
        """Sends the leading parts that are in memory, or soon are, together; False when the socket is full."""
        parts = self.parts
        try:
            sent = self._transport.send(parts[0]) if len(parts) == 1 else self._transport.sendmsg(self._leading())
        except (BlockingIOError, InterruptedError):
            return False
        while sent or (parts and _is_empty(parts[0])):
            part = parts[0]
            if sent < len(part):
                parts[0] = memoryview(part)[sent:]
                return False
            sent -= len(part)
            parts.popleft()
        return True

    def _leading(self) -> list[bytes | bytearray | memoryview]:
        """What leaves in one call; small ranges of files are read for it while there is time."""
        leading: list[bytes | bytearray | memoryview] = []
        room = READ_BYTES_MAX
        for place, part in enumerate(self.parts):
            if len(leading) == SEND_PARTS_MAX:
                break
            if _is_in_memory(part):
                room -= len(part)
                leading.append(part)
                continue
            room -= part.size_bytes
            piece = None if room < 0 else self._read_along(part)
            if piece is None:
                break
            self.parts[place] = piece
            leading.append(piece)
        return leading

    def _read_along(self, part: FileRange) -> bytes | None:
        """The bytes of a small range of a file. They leave with those before them, and the peer is not woken twice."""
        descriptor = None
        if part.size_bytes <= READ_ALONG_BYTES_MAX and self._transport.can_sendfile and self._may_take_slice():
            descriptor = _descriptor_of(part)
        if descriptor is None:
            return None
        piece = os.pread(descriptor, part.size_bytes, part.position)
        # Where the file is shorter, sending it finds that out.
        return piece if len(piece) == part.size_bytes else None

    def _send_file(self, part: FileRange) -> bool:
        """Lets the kernel send a range of a file; False when the socket is full, or others should have a turn."""
        transport = self._transport
        descriptor = _descriptor_of(part)
        if descriptor is None:
            try:
                self.parts[0] = part.read()
            except StorageError as error:  # as the kernel would say
                raise OSError(errno.EIO, str(error)) from error
            return True
        position, left = part.position, part.size_bytes
        if not transport.can_sendfile:
            self._read_file(part, descriptor)
            return True
        try:
            sent = transport.sendfile(descriptor, position, min(left, SENDFILE_BYTES_MAX))
        except (BlockingIOError, InterruptedError):
            return False
        if sent == 0 and left:
            raise OSError(errno.EIO, "the file is shorter than the slice that was promised")
        self.parts.popleft()
        if sent < left:
            self.parts.appendleft(_Unsent(part, sent))
            return False
        return True

    def _read_file(self, part: FileRange, descriptor: int) -> None:
        """Puts the next piece of a range of a file in its place: its transport sends bytes only."""
        piece = os.pread(descriptor, min(part.size_bytes, READ_BYTES_MAX), part.position)
        if not piece:
            raise OSError(errno.EIO, "the file is shorter than the slice that was promised")
        self.parts.popleft()
        if len(piece) < part.size_bytes:
            self.parts.appendleft(_Unsent(part, len(piece)))
        self.parts.appendleft(piece)


def _is_in_memory(part: Part) -> bool:
    return type(part) is bytes or isinstance(part, (bytearray, memoryview))


def _is_empty(part: Part) -> bool:
    return _is_in_memory(part) and not part


def _descriptor_of(part: FileRange) -> int | None:
    """None where the file is none of the operating system's, as on a simulated disk."""
    try:
        return part.fileno()
    except OSError:
        return None


class _Unsent:
    """What is left of a file range after a part of it was sent."""

    __slots__ = ("_range", "position", "size_bytes")

    def __init__(self, whole: FileRange, sent: int) -> None:
        self._range = whole
        self.position = whole.position + sent
        self.size_bytes = whole.size_bytes - sent

    def fileno(self) -> int:
        return self._range.fileno()

    def read(self) -> bytes:
        return self._range.read()[-self.size_bytes :]
