"""The segments of one log, in the order of their offsets, and what is looked up across them."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from ottla.errors import CorruptFileError
from ottla.storage.index import AbortedTransaction, TimestampOffset
from ottla.storage.log_slice import LogSlice, slice_of
from ottla.storage.lookups import Looked
from ottla.storage.segment import Segment


class Segments:
    """Owns the list. The last segment is active: it takes what is appended. `bases` are the base offsets of `items`."""

    __slots__ = ("bases", "items")

    def __init__(self, items: list[Segment]) -> None:
        self.items = items
        self.bases = [segment.base_offset for segment in items]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    @property
    def active(self) -> Segment:
        return self.items[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.items)

    # -- finding -------------------------------------------------------------------------------------------------------

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds `offset`, or would."""
        return max(0, bisect.bisect_right(self.bases, offset) - 1)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, or would, and those behind it."""
        return self.items[self.number_of(offset) :]

    def read(
        self, offset: int, bytes_max: int, upper_offset: int, end_offset: int, at_least_one: bool
    ) -> LogSlice | None:
        """Batches of one segment from the one that holds `offset`, below `upper_offset`; None if there are none."""
        items, bases = self.items, self.bases
        number = self.number_of(offset)
        while number < len(items):
            segment = items[number]
            found = segment.find(offset)
            number += 1
            if found is None:
                continue  # compaction took everything from `offset` to the end of this segment
            next_base = bases[number] if number < len(bases) else end_offset
            if found.header.end_offset > next_base:
                raise CorruptFileError(
                    segment.file.path, f"the batch at byte {found.position} claims offsets of the next segment"
                )
            if found.header.base_offset >= upper_offset:
                return None
            return slice_of(segment, next_base, found.position, found.header, bytes_max, upper_offset, at_least_one)
        return None

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        found = []
        for segment in self.from_offset(start_offset):
            for aborted in segment.transaction_index.ended_from(start_offset):
                if aborted.first_offset < upper_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_offset:
                    return found
        return found

    def first_at_or_after(self, timestamp: int, start_offset: int, looked: Looked | None) -> TimestampOffset | None:
        """The first record from `start_offset` on whose timestamp is at least `timestamp`; see `lookups`."""
        for segment in self.from_offset(start_offset):
            if segment.max_timestamp.timestamp >= timestamp:
                found = segment.first_at_or_after(timestamp, start_offset, looked)
                if found is not None:
                    return found
        return None

    def first_of_max_timestamp(self, start_offset: int, looked: Looked | None) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None where no record has one."""
        latest = max(self.items, key=lambda segment: segment.max_timestamp.timestamp)
        if latest.max_timestamp.timestamp < 0:
            return None
        return latest.first_at_or_after(latest.max_timestamp.timestamp, start_offset, looked)

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        self.items.append(segment)
        self.bases.append(segment.base_offset)

    def drop_last(self) -> None:
        """Takes the last segment and its files away."""
        segment = self.items.pop()
        self.bases.pop()
        segment.unlink()

    def take_first(self, count: int) -> list[Segment]:
        """Takes the oldest segments out; their files stay."""
        taken, self.items = self.items[:count], self.items[count:]
        self.bases = self.bases[count:]
        return taken

    def has_run(self, segments: list[Segment]) -> bool:
        """Whether these stand here, one behind the other."""
        first = self.items.index(segments[0])
        return self.items[first : first + len(segments)] == segments

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        first = self.items.index(old[0])
        self.items[first : first + len(old)] = new
        self.bases = [segment.base_offset for segment in self.items]
