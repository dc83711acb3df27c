"""One segment of a log: a file of record batches with its three indexes.

The segment knows bytes, batch headers and positions. It knows nothing of producers, epochs or transactions; `Log` does,
and hands down what belongs into the transaction index. Records are never decoded here, except to find one by its time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.disk import Disk, File
from ottla.errors import CorruptFileError, RecordsError, StorageError
from ottla.ids import NO_TIMESTAMP
from ottla.records import batch, legacy
from ottla.records.batch import HEADER_BYTES, LENGTH_PREFIX, BatchHeader
from ottla.records.layout import Run
from ottla.storage import lookups
from ottla.storage.file_slice import FileSlice
from ottla.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex, TimestampOffset, TransactionIndex
from ottla.storage.lookups import Looked, LookupKey, TimeLookup

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# Appended to all of the above while a segment is in one of these states.
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

WALK_BYTES = 8 * 1024  # read at once when going from header to header
RECOVERY_BYTES = 4 * 1024 * 1024  # read at once when checking a whole segment
RECENT_BATCHES_MAX = 128  # positions remembered for readers at the tail


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader


class Recovered(NamedTuple):
    """What a full check of a segment found: `problem` says why the bytes past `valid_bytes` were given up."""

    valid_bytes: int
    dropped_bytes: int
    end_offset: int
    problem: str | None


BatchVisitor = Callable[[BatchHeader, "Buffer", int], None]


class Segment:
    """A segment and its files. `size_bytes` is where the next batch goes."""

    __slots__ = (
        "__weakref__",
        "_disk",
        "_file",
        "_max_timestamp",
        "_recent",
        "_suffix",
        "_used",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "damaged_from",
        "directory",
        "first_timestamp",
        "index_bytes_needed",
        "index_interval_bytes",
        "jitter_ms",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size_bytes: int,
        index_interval_bytes: int,
        created_ms: int = 0,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self._suffix = suffix
        self.index_interval_bytes = index_interval_bytes
        self.bytes_since_index = 0
        # What the larger index takes with one more entry and the one that sealing adds: past the limit, the log rolls.
        self.index_bytes_needed = 0
        self._file: File | None = None
        self._used = False
        # By their base offset: where they stand, and from their first reader on also their header.
        self._recent: dict[int, int | FoundBatch] = {}
        self._max_timestamp: TimestampOffset | None = None
        self.first_timestamp: int | None = None
        # Set where a sealed segment was found cut or overwritten: reads past it are refused, not answered.
        self.damaged_from: int | None = None
        self.offset_index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(disk, self.path(TRANSACTION_INDEX_SUFFIX))

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """A new, empty, active segment; whatever stood under its names is overwritten."""
        segment = cls(
            disk,
            directory,
            base_offset,
            size_bytes=0,
            index_interval_bytes=index_interval_bytes,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
            suffix=suffix,
        )
        segment._file = disk.open(segment.path(LOG_SUFFIX), create=True, writable=True)
        disk.open_files.note(segment)
        segment.file.truncate(0)
        segment._reset_indexes()
        segment._max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)
        return segment

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, suffix) + self._suffix)

    def modified_ms(self) -> int:
        """When the last batch was written, by the file system's clock: the age of records without a time."""
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    # -- the file ------------------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path(LOG_SUFFIX), writable=True)
            self._disk.open_files.note(self)
        self._used = True
        return file

    def release_if_idle(self) -> bool:
        """Gives up the file if nobody used it since the last call; whether it did. See `disk.Holder`."""
        if self._used:
            self._used = False
            return False
        self.release()
        return True

    def release(self) -> None:
        """Gives up the file until somebody needs it again; slices in flight keep their own."""
        self._file = None

    def release_all_if_idle(self) -> None:
        """The same for the file and the maps of the indexes."""
        if self.release_if_idle():
            self._close_file()

    def _close_file(self) -> None:
        """Closes everything: whoever wants more opens it again."""
        self._file = None
        self._disk.open_files.forget(self)
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> int:
        """Adds bytes at the end and returns their position; after an error the segment is as it was before."""
        position = self.size_bytes
        view = data if type(data) is memoryview else memoryview(data)
        file = self.file
        try:
            file.write(position, view)
        except StorageError:
            if file.size() > position:
                file.truncate(position)
                # Here, and not with the next flush: where everything below is durable already, nobody looks at the end
                # of this segment after a power loss, which may bring back what was cut off.
                file.sync()
            raise
        self.size_bytes = position + view.nbytes
        return position

    def note_headed(self, header: BatchHeader, position: int) -> None:
        """Takes a batch that stands at `position` into the indexes."""
        self.note_batch(header.base_offset, header.last_offset, header.max_timestamp, position, header.size_bytes)

    def note_batch(
        self, base_offset: int, last_offset: int, max_timestamp: int, position: int, size_bytes: int
    ) -> None:
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp.timestamp:
            self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self.bytes_since_index > self.index_interval_bytes:
            self._add_index_entry(last_offset, position)
        self.bytes_since_index += size_bytes
        self._remember(base_offset, position)

    def note_run(self, run: Run, position: int) -> None:
        """`note_batch` for each batch of a run; but only the first is remembered: readers at the tail go on where the
        run before it ended."""
        _, base_offset, _, _, first_timestamp, max_timestamp, offset_of_max, bytes_since_index, index_entries, _ = run
        if position == 0:
            self.first_timestamp = first_timestamp
        largest = self.max_timestamp.timestamp
        for last_offset, inside, timestamp, offset in index_entries:
            if timestamp > largest:
                largest = timestamp
                self._max_timestamp = TimestampOffset(timestamp, offset)
            self._add_index_entry(last_offset, position + inside)
        if max_timestamp > largest:
            self._max_timestamp = TimestampOffset(max_timestamp, offset_of_max)
        self.bytes_since_index = bytes_since_index
        self._remember(base_offset, position)

    def _remember(self, base_offset: int, position: int) -> None:
        recent = self._recent
        recent[base_offset] = position
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.append_if_later(*self.max_timestamp)
        self.bytes_since_index = 0
        self._count_index_bytes()

    def _reset_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._count_index_bytes()

    def _count_index_bytes(self) -> None:
        self.index_bytes_needed = max(self.offset_index.bytes_needed, self.time_index.bytes_needed)

    def seal(self) -> None:
        """The segment takes no more batches: what is pending of its indexes is written, memory is given back."""
        self.write_indexes(sync=False)
        self.offset_index.seal()
        self.time_index.seal()
        self.transaction_index.seal()
        self._recent = {}

    def write_indexes(self, *, sync: bool) -> None:
        """Puts the indexes on disk; the largest timestamp goes into the time index."""
        if self.size_bytes:
            self.time_index.append_if_later(*self.max_timestamp)
        self.offset_index.write_pending(sync=sync)
        self.time_index.write_pending(sync=sync)
        self.transaction_index.write_pending(sync=sync)

    def index_paths(self) -> set[str]:
        """The index files that there are."""
        paths = (self.path(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX))
        return {path for path in paths if self._disk.exists(path)}

    def sync_indexes(self) -> None:
        """Makes the indexes of a sealed segment durable; they are on disk already, if perhaps only in its cache."""
        for path in sorted(self.index_paths()):
            file = self._disk.open(path, writable=True)
            try:
                file.sync()
            finally:
                file.close()

    def truncate_to(self, offset: int) -> None:
        """Drops the batch that holds `offset` and all after it; `become_active` has to follow."""
        found = self.find(offset)
        if found is None:
            return
        self.file.truncate(found.position)
        self.file.sync()
        self.size_bytes = found.position
        self.damaged_from = None
        self.offset_index.truncate_to(found.header.base_offset)
        self.time_index.truncate_to(found.header.base_offset)
        self.transaction_index.truncate_to(found.header.base_offset)
        self._recent = {}

    # -- becoming what it was ------------------------------------------------------------------------------------------

    def become_active(self) -> int:
        """Makes an existing, whole segment ready to grow and returns its end offset.

        CorruptFileError where its tail does not hold; it has to be recovered then.
        """
        # All of them into memory now: an append must not find out, behind its write, that one cannot be read.
        for index in (self.offset_index, self.time_index, self.transaction_index):
            if self.size_bytes == 0:
                index.reset()  # a crash may have kept the indexes of batches that it took
            index.activate()
        self._count_index_bytes()
        start = self.offset_index.last()
        end_offset, self.bytes_since_index = self.base_offset, 0
        largest = self.time_index.last()
        if self.size_bytes == 0:
            self._max_timestamp, self.first_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset), None
            return end_offset
        for _, header in self.walk(start.position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            self.bytes_since_index += header.size_bytes
            end_offset = header.end_offset
        self._max_timestamp = largest
        self.first_timestamp = self.header_at(0).max_timestamp
        return end_offset

    def end_of_walk(self) -> int:
        """The end offset of a sealed segment, by its last index entry and the headers behind it."""
        end_offset = self.base_offset
        for _, header in self.walk(self.offset_index.last().position):
            end_offset = header.end_offset
        return end_offset

    def recover(self, visit: BatchVisitor) -> Recovered:
        """Checks every batch, rebuilds the indexes and cuts the file at the first batch that does not hold."""
        self._reset_indexes()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.bytes_since_index = 0
        self._recent = {}
        self.first_timestamp = None
        self.damaged_from = None
        file_bytes = self.file.size()
        end_offset, problem, position = self.base_offset, None, 0
        while position < file_bytes and problem is None:
            chunk = self.file.read(position, RECOVERY_BYTES)
            scanned = batch.scan(chunk)
            if scanned.end_position == 0 and scanned.problem is None:
                chunk = self._read_whole_batch(position, chunk, file_bytes)
                scanned = batch.scan(chunk)
            problem = scanned.problem
            if scanned.is_legacy and self._is_legacy_message(position + scanned.end_position, file_bytes):
                raise CorruptFileError(
                    self.path(LOG_SUFFIX),
                    f"{problem} at byte {position + scanned.end_position}: formats 0 and 1 are not read from disk; "
                    "mirror the topic from the broker that wrote it",
                )
            inside = 0
            for header in scanned.headers:
                if header.base_offset < end_offset:
                    problem = f"offset {header.base_offset} comes after {end_offset - 1}"
                    break
                if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                    problem = f"offset {header.last_offset} is out of this segment's reach"
                    break
                visit(header, chunk, inside)
                self.note_headed(header, position + inside)
                inside += header.size_bytes
                end_offset = header.end_offset
            position += inside
            if problem is None and inside == 0:
                problem = f"{file_bytes - position} bytes of a batch that was not written whole"
        if position < file_bytes:
            self.file.truncate(position)
        self.size_bytes = position
        return Recovered(position, file_bytes - position, end_offset, problem)

    def _is_legacy_message(self, position: int, file_bytes: int) -> bool:
        """Zeros in the place of the magic are torn bytes; only a message that holds is a reason to stop."""
        start = self.file.read(position, batch.LENGTH_PREFIX)
        return legacy.is_message(self._read_whole_batch(position, start, file_bytes))

    def _read_whole_batch(self, position: int, chunk: bytes, file_bytes: int) -> bytes:
        """A batch larger than the chunk: read all of it, if the file has it."""
        if len(chunk) < LENGTH_PREFIX:
            return chunk
        needed = LENGTH_PREFIX + int.from_bytes(chunk[8:12], "big", signed=True)
        if needed <= len(chunk) or position + needed > file_bytes:
            return chunk
        return self.file.read(position, needed)

    # -- reading -------------------------------------------------------------------------------------------------------

    def slice(self, position: int, size_bytes: int) -> FileSlice:
        return FileSlice(self.file, position, size_bytes)

    def header_at(self, position: int) -> BatchHeader:
        return self._parse(self.file.read(position, HEADER_BYTES), 0, position)

    def _parse(self, data: bytes, at: int, position: int) -> BatchHeader:
        try:
            header = batch.read_header(data, at)
        except RecordsError as error:
            raise CorruptFileError(self.path(LOG_SUFFIX), f"no batch at byte {position}: {error}") from error
        if (
            header.batch_length < HEADER_BYTES - LENGTH_PREFIX
            or header.last_offset_delta < 0
            or not 0 <= header.base_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            or position + header.size_bytes > self.size_bytes
        ):
            raise CorruptFileError(self.path(LOG_SUFFIX), f"the batch header at byte {position} makes no sense")
        return header

    def walk(self, position: int) -> Iterator[FoundBatch]:
        """The batches from `position`, the start of one, to the end; CorruptFileError where one does not hold."""
        start, data = position, b""
        end_offset = self.base_offset
        while position < self.size_bytes:
            if self.damaged_from is not None and position >= self.damaged_from:
                raise CorruptFileError(self.path(LOG_SUFFIX), f"damaged from byte {self.damaged_from} on")
            at = position - start
            if at + HEADER_BYTES > len(data):
                start, data, at = position, self.file.read(position, WALK_BYTES), 0
            header = self._parse(data, at, position)
            if header.base_offset < end_offset:
                # Offsets stand in front of what the checksum covers, so this is how a damaged one shows.
                raise CorruptFileError(
                    self.path(LOG_SUFFIX),
                    f"offset {header.base_offset} at byte {position} comes after {end_offset - 1}",
                )
            yield FoundBatch(position, header)
            end_offset = header.end_offset
            position += header.size_bytes

    def find(self, offset: int) -> FoundBatch | None:
        """The first batch that ends at or past `offset`; None where the segment ends before it."""
        recent = self._recent.get(offset)
        if isinstance(recent, int):
            recent = self._recent[offset] = FoundBatch(recent, self.header_at(recent))
        if recent is not None:
            return recent
        walk = self.walk(self._walk_start(offset))
        for found in walk:
            if found.header.last_offset >= offset:
                if found.header.base_offset > offset:
                    next(walk, None)  # a gap, or a damaged offset: then the next batch does not follow
                return found
        return None

    def tail_from(self, offset: int, bytes_max: int) -> FileSlice | None:
        """All that follows from a batch on that was added lately; None where it was not, or that is too much."""
        recent = self._recent.get(offset)
        if recent is None or self.damaged_from is not None:
            return None
        position = recent if isinstance(recent, int) else recent.position
        size_bytes = self.size_bytes - position
        return self.slice(position, size_bytes) if size_bytes <= bytes_max else None

    def offset_past(self, position: int, default: int) -> int:
        """An offset past every batch that starts before `position`, near it where the index knows one."""
        entry = self.offset_index.first_from(position)
        if entry is None:
            return default
        try:
            if self.header_at(entry.position).last_offset == entry.offset:
                return entry.offset
        except CorruptFileError:
            pass  # an entry into the middle of a batch, mended here
        self.rebuild_indexes()
        entry = self.offset_index.first_from(position)
        return default if entry is None else entry.offset

    def _walk_start(self, offset: int) -> int:
        """The position from which a walk reaches `offset`, checked against the file; a wrong index is rebuilt."""
        try:
            entry = self.offset_index.lookup(offset)
            if entry.position == 0:
                return 0
            if 0 < entry.position < self.size_bytes and self.header_at(entry.position).base_offset <= entry.offset:
                return entry.position
        except CorruptFileError:
            pass  # a cut index, or an entry into the middle of a batch: both are mended below
        self._mend_indexes()
        return self.offset_index.lookup(offset).position

    def rebuild_indexes(self) -> None:
        """Rebuilds offset and time index from the batch headers."""
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.bytes_since_index = 0
        for position, header in self.walk(0):
            self.note_headed(header, position)
        self.write_indexes(sync=False)

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp with the last offset of its batch; (-1, base offset) where nothing has one."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last()
        return self._max_timestamp

    def first_timestamp_on_disk(self) -> int:
        """The largest timestamp of the first batch, from which the age of the segment follows; -1 where it is empty."""
        if self.first_timestamp is None and self.size_bytes:
            self.first_timestamp = self.header_at(0).max_timestamp
        return NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp

    def first_at_or_after(
        self, timestamp: int, start_offset: int, looked: Looked | None = None
    ) -> TimestampOffset | None:
        """The first record at or past `start_offset` whose timestamp is at least `timestamp`; see `lookups`."""
        entry = self._time_entry(timestamp)
        # Every batch up to the entry's offset is older, so the search may begin there.
        first = self.find(max(entry.offset, start_offset))
        if first is None:
            return None
        for position, header in self.walk(first.position):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                data = self.file.read(position, header.size_bytes)
                lookup = TimeLookup(LookupKey(header, timestamp, start_offset), data)
                found = lookups.first_at_or_after(lookup, looked)
                if found is not None:
                    return TimestampOffset(found[1], found[0])
        return None

    def _time_entry(self, timestamp: int) -> TimestampOffset:
        """The time index entry before `timestamp`, checked against its batch; a wrong index is rebuilt."""
        try:
            entry = self.time_index.lookup(timestamp)
            if entry.timestamp < 0:
                return entry
            found = self.find(entry.offset)
            if found is not None and found.header.max_timestamp == entry.timestamp:
                return entry
        except CorruptFileError:
            pass  # a cut index, or an entry into nothing: mended like one that names the wrong batch
        self._mend_indexes()
        return self.time_index.lookup(timestamp)

    def _mend_indexes(self) -> None:
        """A lookup met an index that does not fit: no crash explains that, so it is logged."""
        logger.warning("%s: an index does not match its segment; rebuilt from the batches", self.path(LOG_SUFFIX))
        self.rebuild_indexes()

    # -- going away ----------------------------------------------------------------------------------------------------

    def change_suffix(self, suffix: str) -> None:
        """Renames all files of the segment; those that do not exist are passed over."""
        renames = []
        for kind in SEGMENT_SUFFIXES:
            source = self.path(kind)
            if self._disk.exists(source):
                renames.append((source, os.path.join(self.directory, file_name(self.base_offset, kind) + suffix)))
        # The log file goes first when the segment leaves and last when it arrives: without it, the rest is nothing.
        if self._suffix:
            renames.reverse()
        for source, target in renames:
            self._disk.rename(source, target)
        self._suffix = suffix
        self._rename_indexes()

    def moved_to(self, directory: str) -> None:
        """The directory has another name: files are opened there from now on."""
        self.directory = directory
        self.release()
        self._rename_indexes()

    def _rename_indexes(self) -> None:
        self.offset_index.renamed(self.path(INDEX_SUFFIX))
        self.time_index.renamed(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.renamed(self.path(TRANSACTION_INDEX_SUFFIX))

    def unlink(self) -> None:
        for kind in SEGMENT_SUFFIXES:
            self._disk.unlink(self.path(kind))
        self._close_file()

    def close(self) -> None:
        self._close_file()
