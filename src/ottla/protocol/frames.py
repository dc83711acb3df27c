"""Frames: a four-byte length and that many bytes. What everybody who sends or receives them needs, without a socket.

How bytes that arrive are kept differs: a server's connections share a buffer, a client has one of its own. What a frame
is, and which lengths are refused, stands here.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.errors import ProtocolError

LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024  # Kafka's `socket.request.max.bytes`

_unpack_length = struct.Struct(">i").unpack_from
_pack_length = struct.Struct(">i").pack


def frame_bytes(
    data: bytes | bytearray | memoryview, position: int, bytes_max: int, *, bytes_min: int = 0, setting: str = ""
) -> int:
    """The bytes of the frame whose length is at `position`; ProtocolError where that is out of bounds.

    `setting`: where the limit comes from, for the message.
    """
    (size,) = _unpack_length(data, position)
    if not bytes_min <= size <= bytes_max:
        source = f" ({setting})" if setting else ""
        raise ProtocolError(f"a frame of {size} bytes: at most {bytes_max} are allowed{source}")
    return int(size)


def frame_length(size_bytes: int) -> bytes:
    """What stands before a frame of so many bytes."""
    return _pack_length(size_bytes)


class FrameParser:
    """Cuts a stream of bytes into frames. Owns the bytes of the frame that has not arrived whole.

    Memory grows with the bytes that came, never with a length that a peer only claims.
    """

    __slots__ = ("_frame_bytes_max", "_pending")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._pending)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames that are whole now, without their lengths; ProtocolError for a length out of bounds."""
        if not self._pending:
            frames, consumed = self._cut(memoryview(data))
            self._pending += memoryview(data)[consumed:]
            return frames
        self._pending += data
        with memoryview(self._pending) as view:
            frames, consumed = self._cut(view)
        if consumed:
            del self._pending[:consumed]
        return frames

    def _cut(self, view: memoryview) -> tuple[list[bytes], int]:
        frames: list[bytes] = []
        start = 0
        while len(view) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + frame_bytes(view, start, self._frame_bytes_max)
            if end > len(view):
                break
            frames.append(bytes(view[start + LENGTH_BYTES : end]))
            start = end
        return frames, start


def framed(*parts: bytes) -> bytes:
    """One frame around header and body."""
    return b"".join((_pack_length(sum(map(len, parts))), *parts))
