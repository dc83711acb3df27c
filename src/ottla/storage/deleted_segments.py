"""Segments that were deleted from a log and whose files still exist, because readers may be using them."""

from __future__ import annotations

from typing import NamedTuple

from ottla.disk import Disk
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.segment import DELETED_SUFFIX, Segment


class Unlinking(NamedTuple):
    """A deleted segment whose files go, with the snapshot that belonged to it. `run` may run in any thread."""

    disk: Disk
    hold: DirectoryHold
    segment: Segment
    snapshot_path: str | None

    def run(self) -> None:
        with self.hold as is_ours:
            if not is_ours:
                return  # the whole directory goes
            self.segment.unlink()
            if self.snapshot_path is not None:
                self.disk.unlink(self.snapshot_path)


class DeletedSegments:
    """Owns the deleted segments of one log, and when their files may go."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, Segment]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, segment: Segment, due_ms: int) -> None:
        segment.change_suffix(DELETED_SUFFIX)
        self._entries.append((due_ms, segment))

    def take_due(self, now_ms: int, delay_ms: int) -> list[Segment]:
        """Those that were deleted `delay_ms` ago."""
        if not self._entries:
            return []
        # Further away than any can be: the clock was set back. Whoever still reads them holds their files.
        latest_ms = now_ms + delay_ms
        due = [segment for due_ms, segment in self._entries if not now_ms < due_ms <= latest_ms]
        self._entries = [(due_ms, segment) for due_ms, segment in self._entries if now_ms < due_ms <= latest_ms]
        return due
