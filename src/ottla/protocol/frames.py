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
    """What precedes a frame of this size."""
    return _pack_length(size_bytes)


def framed(*parts: bytes) -> bytes:
    """One frame around header and body."""
    return b"".join((_pack_length(sum(map(len, parts))), *parts))
