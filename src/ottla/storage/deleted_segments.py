"""Segments that were deleted from a log and whose files still exist, because readers may be using them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.disk import Disk
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.segment import DELETED_SUFFIX, Segment
from ottla.storage.snapshots import Snapshots


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

    __slots__ = ("_disk", "_entries", "_hold", "_snapshots")

    def __init__(self, disk: Disk, hold: DirectoryHold, snapshots: Snapshots) -> None:
        self._disk = disk
        self._hold = hold
        self._snapshots = snapshots
        self._entries: list[tuple[int, Segment]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, segment: Segment, due_ms: int) -> None:
        segment.change_suffix(DELETED_SUFFIX)
        self._entries.append((due_ms, segment))

    def take_due(self, now_ms: int, delay_ms: int, bases: Collection[int]) -> list[Unlinking]:
        """Those that were deleted `delay_ms` ago. `bases`: of the segments that the log has now."""
        if not self._entries:
            return []
        # Further away than any can be: the clock was set back. Whoever still reads them holds their files.
        latest_ms = now_ms + delay_ms
        due = [segment for due_ms, segment in self._entries if not now_ms < due_ms <= latest_ms]
        self._entries = [(due_ms, segment) for due_ms, segment in self._entries if now_ms < due_ms <= latest_ms]
        return [self._unlinking(segment, has_successor=segment.base_offset in bases) for segment in due]

    def _unlinking(self, segment: Segment, *, has_successor: bool) -> Unlinking:
        """A compacted segment that took its place has the same snapshot, which stays then."""
        snapshot_path = None if has_successor else self._snapshots.path(segment.base_offset)
        return Unlinking(self._disk, self._hold, segment, snapshot_path)
