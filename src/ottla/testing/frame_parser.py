"""Cuts a stream of bytes into frames in the simplest way; what connections do in place is compared with it."""

from __future__ import annotations

from ottla.protocol.frames import FRAME_BYTES_MAX, LENGTH_BYTES, frame_bytes


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
