"""Buffers of large frames that are filled again."""

from __future__ import annotations

from typing import Final

SPARE_FRAMES_MAX: Final = 3


class SpareFrames:
    """The buffers of the last large frames, to be filled again once nobody looks at them any more.

    A consumer that reads at full speed has three of them in turn: one that is read, one that waits, one that arrives.
    Memory that comes fresh from the system costs more than receiving what is written there.
    """

    def __init__(self) -> None:
        self._frames: list[bytearray] = []

    def handed_out(self, frame: bytearray) -> None:
        self._frames.append(frame)
        if len(self._frames) > SPARE_FRAMES_MAX:
            del self._frames[0]

    def take(self, bytes_min: int) -> bytearray | None:
        """The largest that is free, and has at least room for this."""
        free = [frame for frame in self._frames if len(frame) >= bytes_min and not _is_viewed(frame)]
        if not free:
            return None
        taken = max(free, key=len)
        self._frames = [frame for frame in self._frames if frame is not taken]
        return taken

    def clear(self) -> None:
        self._frames.clear()


def _is_viewed(frame: bytearray) -> bool:
    """Whether a view of it is left: as long as there is one, it cannot change its size."""
    try:
        last = frame.pop()
    except BufferError:
        return True
    frame.append(last)
    return False
