"""Reads offset and time indexes, and checks them entry by entry against the segment beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ottla.cli.inspection.files import LogFile
from ottla.cli.inspection.findings import Damage, Note
from ottla.cli.inspection.segments import SegmentWalk, StoredBatch
from ottla.disk import RealDisk
from ottla.ids import NO_TIMESTAMP
from ottla.storage.index import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset

Entry = TypeVar("Entry", OffsetPosition, TimestampOffset)


def read_offset_index(file: LogFile, *, verify: bool) -> Iterator[OffsetPosition | Note | Damage]:
    entries = OffsetIndex(RealDisk(), str(file.path), file.base_offset).entries()
    found = _without_unused(entries, OffsetPosition(file.base_offset, 0))
    return _check_offsets(file, found) if verify else found


def read_time_index(file: LogFile, *, verify: bool) -> Iterator[TimestampOffset | Note | Damage]:
    entries = TimeIndex(RealDisk(), str(file.path), file.base_offset).entries()
    found = _without_unused(entries, TimestampOffset(0, file.base_offset))
    return _check_times(file, found) if verify else found


def _without_unused(entries: Iterable[Entry], unused: Entry) -> Iterator[Entry | Note | Damage]:
    """The entries in front of the zeros that Kafka reserves in the index of a segment that still grows."""
    zeros = 0
    for number, entry in enumerate(entries):
        if entry == unused:
            zeros += 1
            continue
        if zeros:
            yield Damage(f"{zeros} entries of zeros before entry {number}")
            zeros = 0
        yield entry
    if zeros:
        yield Note(f"{zeros} unused entries of zeros at the end: reserved space, or what a crash left")


class _Segment:
    """The segment of an index, walked once from front to back as the entries ask for it."""

    def __init__(self, file: LogFile) -> None:
        path = file.segment_path()
        self.is_there = path.exists()
        self.max_timestamp = NO_TIMESTAMP  # of all batches up to the current one
        walk = SegmentWalk(path, file.base_offset) if self.is_there else ()
        self._batches = (found for found in walk if isinstance(found, StoredBatch))
        self._current: StoredBatch | None = None
        self._advance()

    def notes(self) -> Iterator[Note]:
        if not self.is_there:
            yield Note("no segment beside it: the entries are compared with each other only")

    def at(self, position: int) -> StoredBatch | None:
        """The first batch that begins at or past `position`."""
        while self._current is not None and self._current.position < position:
            self._advance()
        return self._current

    def holding(self, offset: int) -> StoredBatch | None:
        """The first batch that ends at or past `offset`."""
        while self._current is not None and self._current.header.last_offset < offset:
            self._advance()
        return self._current

    def _advance(self) -> None:
        self._current = next(self._batches, None)
        if self._current is not None:
            self.max_timestamp = max(self.max_timestamp, self._current.header.max_timestamp)


def _check_offsets(
    file: LogFile, found: Iterable[OffsetPosition | Note | Damage]
) -> Iterator[OffsetPosition | Note | Damage]:
    """Every entry must rise above the one before and lead to a batch that does not begin past its offset."""
    segment = _Segment(file)
    yield from segment.notes()
    last = OffsetPosition(-1, -1)
    for entry in found:
        yield entry
        if not isinstance(entry, OffsetPosition):
            continue
        if entry.offset <= last.offset or entry.position <= last.position:
            yield Damage(f"the entry does not rise above the one before ({last})", offset=entry.offset)
            continue
        last = entry
        stored = segment.at(entry.position)
        # Not its last offset: a follower that takes several batches at once indexes them as one.
        is_right = (
            stored is not None and stored.position == entry.position and stored.header.base_offset <= entry.offset
        )
        if segment.is_there and not is_right:
            yield Damage(
                f"no batch that leads to it begins at byte {entry.position} of the segment",
                offset=entry.offset,
            )


def _check_times(
    file: LogFile, found: Iterable[TimestampOffset | Note | Damage]
) -> Iterator[TimestampOffset | Note | Damage]:
    """Every entry must rise above the one before and name the largest timestamp up to its offset."""
    segment = _Segment(file)
    yield from segment.notes()
    last = TimestampOffset(NO_TIMESTAMP, -1)
    for entry in found:
        yield entry
        if not isinstance(entry, TimestampOffset):
            continue
        if entry.timestamp <= last.timestamp or entry.offset < last.offset:
            yield Damage(f"the entry does not rise above the one before ({last})", offset=entry.offset)
            continue
        last = entry
        if not segment.is_there:
            continue
        if segment.holding(entry.offset) is None:
            yield Damage("the segment ends before it", offset=entry.offset)
        elif segment.max_timestamp != entry.timestamp:
            yield Damage(
                f"the largest timestamp up to it is {segment.max_timestamp}, not {entry.timestamp}",
                offset=entry.offset,
            )
