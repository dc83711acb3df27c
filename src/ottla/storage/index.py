"""The indexes of a segment: offset → position, timestamp → offset, and the aborted transactions.

Bytes as Kafka writes them, big-endian: an offset entry is (relative offset int32, position int32), a time entry
(timestamp int64, relative offset int32). The index of the active segment lives in memory and is written when it
is rolled or closed: a crash loses nothing by that, because recovery rebuilds the indexes of what was not
flushed. The index of a sealed segment is mapped at its first use and costs nothing before.

Neither index is trusted: `Segment` checks what it finds at an indexed position and has a wrong index rebuilt.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.disk import Disk
from ottla.errors import CorruptFileError
from ottla.ids import NO_TIMESTAMP

if TYPE_CHECKING:
    from typing_extensions import Buffer

RELATIVE_OFFSET_MAX = 2**31 - 1

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
TIME_ENTRY_BYTES = _TIME_ENTRY.size


class OffsetPosition(NamedTuple):
    """The batch whose last offset is `offset` starts at byte `position`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """The largest timestamp of the segment up to and including `offset`."""

    timestamp: int
    offset: int


class IndexFile:
    """Fixed-size entries that only grow: in memory while the segment is active, mapped from disk once it is sealed."""

    __slots__ = ("__weakref__", "_disk", "_entry_bytes", "_mapped", "_tail", "_written_bytes", "path")

    def __init__(self, disk: Disk, path: str, entry_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self._entry_bytes = entry_bytes
        self._tail: bytearray | None = None  # the whole index, while the segment is active
        self._written_bytes = 0  # how much of the tail is on disk
        self._mapped: Buffer | None = None

    def activate(self) -> bytearray:
        """Brings the index into memory, ready to grow."""
        if self._tail is None:
            self._tail = bytearray(self._content()) if self._disk.exists(self.path) else bytearray()
            self._written_bytes = len(self._tail)
            self.close()
        return self._tail

    def reset(self) -> None:
        """Forgets every entry: the index is about to be rebuilt."""
        self.close()
        self._tail = bytearray()
        self._written_bytes = -1  # what is on disk is of no use: write from the beginning

    def truncate(self, entry_count: int) -> None:
        tail = self.activate()
        size = entry_count * self._entry_bytes
        if size < len(tail):
            del tail[size:]
            if size < self._written_bytes:
                self._written_bytes = -1

    def write_pending(self, *, sync: bool = False) -> None:
        """Puts the entries that are only in memory on disk."""
        tail = self._tail
        if tail is None or (len(tail) == self._written_bytes and not sync and self._disk.exists(self.path)):
            return
        file = self._disk.open(self.path, create=True, writable=True)
        try:
            if self._written_bytes < 0:
                file.truncate(0)
                self._written_bytes = 0
            pending = bytes(tail[self._written_bytes :])
            if pending:
                file.write(self._written_bytes, pending)
                self._written_bytes = len(tail)
            if sync:
                file.sync()
        finally:
            file.close()

    def seal(self) -> None:
        """Writes what is pending and gives the memory back; lookups map the file from now on."""
        self.write_pending()
        self._tail = None

    def release(self) -> None:
        """Gives the map up, which is a descriptor as well, until the next lookup."""
        self._mapped = None

    def release_if_idle(self) -> bool:
        """Maps have no second chance: what a lookup costs is the batch, not the map. See `disk.Holder`."""
        self.release()
        return True

    def close(self) -> None:
        self._mapped = None
        self._disk.open_files.forget(self)

    @property
    def buffer(self) -> Buffer:
        if self._tail is not None:
            return self._tail
        mapped = self._mapped
        if mapped is None:
            mapped = self._mapped = self._content()
            if memoryview(mapped).nbytes:
                self._disk.open_files.note(self)
        return mapped

    def _content(self) -> Buffer:
        content = self._disk.map(self.path)
        size = memoryview(content).nbytes
        if size % self._entry_bytes:
            raise CorruptFileError(self.path, f"{size} bytes are no whole number of {self._entry_bytes}-byte entries")
        return content

    @property
    def size_bytes(self) -> int:
        tail = self._tail
        return memoryview(self.buffer).nbytes if tail is None else len(tail)

    @property
    def entry_count(self) -> int:
        return self.size_bytes // self._entry_bytes

    def renamed(self, path: str) -> None:
        self.path = path


class OffsetIndex(IndexFile):
    """Finds the position of a batch near an offset."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, _OFFSET_ENTRY.size)
        self.base_offset = base_offset

    def append(self, offset: int, position: int) -> None:
        tail = self._tail
        if tail is None:
            tail = self.activate()
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX, "the segment rolls before an offset outgrows its index"
        tail += _OFFSET_ENTRY.pack(relative, position)

    @property
    def bytes_needed(self) -> int:
        """What it takes with one more entry."""
        return self.size_bytes + _OFFSET_ENTRY.size

    def entry(self, number: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack_from(self.buffer, number * _OFFSET_ENTRY.size)
        return OffsetPosition(self.base_offset + relative, position)

    def entries(self) -> Iterator[OffsetPosition]:
        for relative, position in _OFFSET_ENTRY.iter_unpack(self.buffer):
            yield OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or before `offset`; the start of the segment where there is none."""
        number = _count_at_or_below(self.buffer, _OFFSET_ENTRY, 0, offset - self.base_offset)
        return self.entry(number - 1) if number else OffsetPosition(self.base_offset, 0)

    def first_from(self, position: int) -> OffsetPosition | None:
        """The first entry of a batch that starts at or past `position`."""
        number = _count_at_or_below(self.buffer, _OFFSET_ENTRY, 1, position - 1)
        return self.entry(number) if number < self.entry_count else None

    def last(self) -> OffsetPosition:
        count = self.entry_count
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at or past `offset`."""
        self.truncate(_count_at_or_below(self.buffer, _OFFSET_ENTRY, 0, offset - self.base_offset - 1))


class TimeIndex(IndexFile):
    """Finds the offset from which on timestamps are larger than a given one."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, _TIME_ENTRY.size)
        self.base_offset = base_offset

    def append_if_later(self, timestamp: int, offset: int) -> None:
        tail = self._tail
        if tail is None:
            tail = self.activate()
        last_timestamp, last_relative = NO_TIMESTAMP, 0
        if tail:
            last_timestamp, last_relative = _TIME_ENTRY.unpack_from(tail, len(tail) - _TIME_ENTRY.size)
        if timestamp > last_timestamp:
            assert offset - self.base_offset >= last_relative, "offsets of a time index only rise"
            tail += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    @property
    def bytes_needed(self) -> int:
        """What it takes with one more entry and the one that sealing adds."""
        return self.size_bytes + 2 * TIME_ENTRY_BYTES

    def entry(self, number: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack_from(self.buffer, number * _TIME_ENTRY.size)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def entries(self) -> Iterator[TimestampOffset]:
        for timestamp, relative in _TIME_ENTRY.iter_unpack(self.buffer):
            yield TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is at or before `timestamp`; (-1, base offset) where there is none."""
        number = _count_at_or_below(self.buffer, _TIME_ENTRY, 0, timestamp)
        return self.entry(number - 1) if number else TimestampOffset(-1, self.base_offset)

    def last(self) -> TimestampOffset:
        count = self.entry_count
        return self.entry(count - 1) if count else TimestampOffset(-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at or past `offset`."""
        self.truncate(_count_at_or_below(self.buffer, _TIME_ENTRY, 1, offset - self.base_offset - 1))


def _count_at_or_below(buffer: Buffer, entry: struct.Struct, column: int, limit: int) -> int:
    """How many leading entries have `column` at or below `limit`, by binary search."""
    low, high = 0, memoryview(buffer).nbytes // entry.size
    size, unpack = entry.size, entry.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack(buffer, middle * size)[column] <= limit:
            low = middle + 1
        else:
            high = middle
    return low


_ABORTED_ENTRY = struct.Struct(">hqqqq")
_ABORTED_VERSION = 0
_ABORTED_FIRST_OFFSET, _ABORTED_LAST_OFFSET = 2, 3  # where they stand in an entry


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` in [first_offset, last_offset] were aborted; last_offset is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # the log's, once this transaction had ended: no later search needs an earlier entry


class TransactionIndex(IndexFile):
    """The aborted transactions that ended in this segment, in the order of their markers. Most segments have none.

    Searched like the others, never unpacked whole: a log may hold a hundred thousand of them. Only where there are
    any does it have a file.
    """

    __slots__ = ("_is_checked",)

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path, _ABORTED_ENTRY.size)
        self._is_checked = False

    def _content(self) -> Buffer:
        if not self._disk.exists(self.path):
            return b""
        content = super()._content()
        if not self._is_checked:
            _check_aborted(content, self.path)
            self._is_checked = True
        return content

    def reset(self) -> None:
        super().reset()
        self._is_checked = True

    def write_pending(self, *, sync: bool = False) -> None:
        if self._tail or self._disk.exists(self.path):
            super().write_pending(sync=sync)

    def append(self, aborted: AbortedTransaction) -> None:
        tail = self.activate()
        tail += _ABORTED_ENTRY.pack(_ABORTED_VERSION, *aborted)

    def entry(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*_ABORTED_ENTRY.unpack_from(self.buffer, number * _ABORTED_ENTRY.size)[1:])

    def entries(self) -> Iterator[AbortedTransaction]:
        return self.ended_from(0)

    def ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """The transactions whose markers stand at `offset` or behind it."""
        first = _count_at_or_below(self.buffer, _ABORTED_ENTRY, _ABORTED_LAST_OFFSET, offset - 1)
        for number in range(first, self.entry_count):
            yield self.entry(number)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that ended at or past `offset`."""
        self.truncate(_count_at_or_below(self.buffer, _ABORTED_ENTRY, _ABORTED_LAST_OFFSET, offset - 1))


def _check_aborted(content: Buffer, path: str) -> None:
    """Every entry is of the version we know, and their markers rise; else CorruptFileError.

    By columns, which takes a fraction of a microsecond per entry.
    """
    data = bytes(content)
    for high, low in zip(data[0 :: _ABORTED_ENTRY.size], data[1 :: _ABORTED_ENTRY.size], strict=True):
        if high or low != _ABORTED_VERSION:
            raise CorruptFileError(path, f"has an entry of unknown version {high << 8 | low}")
    first, last = (_column(data, field) for field in (_ABORTED_FIRST_OFFSET, _ABORTED_LAST_OFFSET))
    if first and min(first) < 0:
        raise CorruptFileError(path, "names a negative offset")
    if not all(map(operator.lt, first, last)):
        raise CorruptFileError(path, "has a transaction that ends before it begins")
    if not all(map(operator.lt, last, last[1:])):
        raise CorruptFileError(path, "has an entry that ends before the one in front of it")


def _column(data: bytes, field: int) -> array[int]:
    """One of the 64-bit fields of all entries."""
    start = 2 + 8 * (field - 1)  # behind the version
    column = bytearray(len(data) // _ABORTED_ENTRY.size * 8)
    for byte in range(8):
        column[byte::8] = data[start + byte :: _ABORTED_ENTRY.size]
    numbers = array("q", bytes(column))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
