"""Compaction: keep the last value of each key.

Three steps, so that the heavy one can run in another process. `plan` looks at a log and says what is worth cleaning;
`run_job` reads the sealed segments named by the job and writes compacted ones beside them (`.cleaned`), touching
nothing that is in use; `commit` puts them in place, unless the log was cut meanwhile. A job and its result are plain
values that can be sent between processes.

Rules, as in Kafka: a record stays if no later record up to the end of the cleaned part has its key; a record without a
key goes. A tombstone stays until `delete.retention.ms` after the first cleaning that met it: the batch carries that
moment as its delete horizon (KIP-534). Data of aborted transactions goes at once, their markers once no data is left
and the same time has passed. The last batch of a producer stays, empty if need be, because its sequence is still
needed. Offsets never change.

What is written reaches to where the next segment begins, with an empty batch at the last offset if need be: recovery
then knows that a gap between two segments is a loss, without knowing what was compacted.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import LogConfig
from ottla.disk import Disk, RealDisk
from ottla.errors import CorruptFileError, OttlaError
from ottla.records import batch, codec, control
from ottla.records.batch import BatchHeader
from ottla.records.codec import KeyOffsetMap
from ottla.records.layout import Compression
from ottla.storage.cleaned_output import CleanedOutput
from ottla.storage.cleaning_job import (
    DEDUPE_BUFFER_BYTES,
    CleanedGroup,
    CleaningJob,
    CleaningResult,
    LastOfProducer,
    SegmentRange,
)
from ottla.storage.index import RELATIVE_OFFSET_MAX, AbortedTransaction, TransactionIndex
from ottla.storage.log import Log
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

READ_BYTES = 4 * 1024 * 1024


class Cleanable(NamedTuple):
    """How much of a log there is to clean."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # max.compaction.lag.ms has passed for some record

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether enough is dirty, or has been for long enough."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


# -- planning ----------------------------------------------------------------------------------------------------------


def look(log: Log, first_dirty_offset: int, *, high_watermark: int, now_ms: int) -> Cleanable:
    """What of `log` is dirty and may be cleaned now.

    Only what is sealed, flushed (a crash then never meets a half-known segment), decided by its transactions and older
    than `min.compaction.lag.ms`.
    """
    config = log.config
    segments = log.segments
    if not log.log_start_offset <= first_dirty_offset <= log.end_offset:
        first_dirty_offset = log.log_start_offset  # the checkpoint is of another life of this log
    limit = min(log.active.base_offset, log.recovery_point, log.last_stable_offset(high_watermark))
    if config.min_compaction_lag_ms > 0:
        for segment, following in pairwise(segments):
            is_dirty = following.base_offset > first_dirty_offset
            if is_dirty and segment.max_timestamp.timestamp > now_ms - config.min_compaction_lag_ms:
                limit = min(limit, segment.base_offset)
                break
    clean_bytes = dirty_bytes = 0
    end_offset = first_dirty_offset
    is_overdue = False
    for segment, following in pairwise(segments):
        if following.base_offset > limit or segment.damaged_from is not None:
            break
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
            continue
        dirty_bytes += segment.size_bytes
        end_offset = following.base_offset
        first = segment.first_timestamp_on_disk()
        is_overdue = is_overdue or 0 <= first < now_ms - config.max_compaction_lag_ms
    return Cleanable(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, is_overdue)


def plan(
    log: Log,
    first_dirty_offset: int,
    *,
    high_watermark: int,
    now_ms: int,
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    bytes_per_second_max: float = float("inf"),
) -> CleaningJob | None:
    """The compaction that `log` needs now; None where it needs none."""
    if not log.config.is_compacted:
        return None
    cleanable = look(log, first_dirty_offset, high_watermark=high_watermark, now_ms=now_ms)
    if not cleanable.is_due(log.config):
        return None
    segments = [segment for segment in log.segments if segment.base_offset < cleanable.end_offset]
    return CleaningJob(
        directory=log.directory,
        segments=tuple(SegmentRange(segment.base_offset, segment.size_bytes) for segment in segments),
        log_start_offset=log.log_start_offset,
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=cleanable.end_offset,
        truncation_count=log.durability.truncation_count,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        index_bytes_max=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        aborted=tuple(log.aborted_transactions(cleanable.end_offset, cleanable.end_offset)),
        last_of_producers={
            producer.producer_id: LastOfProducer(
                producer.batches[-1].last_offset if producer.batches else None, producer.epoch
            )
            for producer in log.producers.producers.values()
        },
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        bytes_per_second_max=bytes_per_second_max,
    )


# -- running -----------------------------------------------------------------------------------------------------------


def run_job(job: CleaningJob, disk: Disk | None = None) -> CleaningResult:
    """Writes the compacted segments of `job` beside the old ones, synced. Safe to run in another process."""
    return _Run(job, RealDisk() if disk is None else disk).run()


class _Transactions:
    """Follows the transactions while batches are read in order: which data was aborted, which markers may go.

    `aborted` entries wait, ordered by first offset, until the reading reaches them.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_with_data: set[int] = set()
        self._committed_with_data: set[int] = set()

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, entry = heapq.heappop(self._waiting)
            self._aborted[entry.producer_id] = entry

    def note_data(self, header: BatchHeader) -> bool:
        """A data batch was read; returns whether it belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._aborted.get(header.producer_id)
        if entry is not None and header.last_offset <= entry.last_offset:
            self._aborted_with_data.add(header.producer_id)
            return True
        self._committed_with_data.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, marker: control.EndTransactionMarker) -> tuple[bool, AbortedTransaction | None]:
        """A marker was read: (no data of its transaction was met, the aborted transaction if its index entry stays)."""
        self._reach(header.last_offset)
        if marker.commit:
            had_data = header.producer_id in self._committed_with_data
            self._committed_with_data.discard(header.producer_id)
            return not had_data, None
        entry = self._aborted.pop(header.producer_id, None)
        had_data = header.producer_id in self._aborted_with_data
        self._aborted_with_data.discard(header.producer_id)
        return not had_data, entry if had_data else None


class _Group(NamedTuple):
    """Neighbouring segments that become one, and where the segment behind them begins."""

    segments: tuple[SegmentRange, ...]
    end_offset: int


class _Run:
    """One compaction."""

    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self.job = job
        self.disk = disk
        self.keys = KeyOffsetMap(job.dedupe_buffer_bytes)
        self.mapped_end = job.end_offset  # the keys of what lies behind were not looked at
        self.result = CleaningResult(job.end_offset, job.truncation_count)
        self.bytes_read = 0  # both passes together, for the throttle
        self.started = time.monotonic()

    def run(self) -> CleaningResult:
        for name in self.disk.list_directory(self.job.directory):
            if name.endswith(CLEANED_SUFFIX):  # of a run that was given up; would be taken for a part of this one
                self.disk.unlink(os.path.join(self.job.directory, name))
        aborted = [*self._aborted_in_segments(), *self.job.aborted]
        self.mapped_end = self.result.end_offset = self._note_keys(_Transactions(aborted))
        self.result.keys = len(self.keys)
        transactions = _Transactions(aborted)
        emptied: tuple[SegmentRange, ...] = ()
        groups = list(self._groups())
        for group in groups:
            old = emptied + group.segments
            new = CleanedOutput(self.job, self.disk, old[0].base_offset)
            last = self._clean_group(group.segments, transactions, new)
            if new.is_empty and group is not groups[-1]:
                emptied = old  # they lend their base offset to what comes next
                continue
            new.reach(group.end_offset, last)
            self.result.groups.append(CleanedGroup(old, new.finish()))
            emptied = ()
        self.result.bytes_written = sum(one.size_bytes for group in self.result.groups for one in group.new)
        self.disk.sync_directory(self.job.directory)
        return self.result

    def _aborted_in_segments(self) -> Iterator[AbortedTransaction]:
        for segment in self.job.segments:
            path = os.path.join(self.job.directory, file_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX))
            yield from TransactionIndex(self.disk, path).entries()

    def _clean_group(
        self, segments: tuple[SegmentRange, ...], transactions: _Transactions, new: CleanedOutput
    ) -> BatchHeader:
        """Reads the segments of a group and writes what stays of them; the last batch that was read."""
        last: BatchHeader | None = None
        for segment in segments:
            self.result.bytes_read += segment.size_bytes
            for header, data in self._batches(segment):
                self._clean(header, data, transactions, new)
                last = header
        assert last is not None, "a group has a batch"
        return last

    def _batches(self, segment: SegmentRange) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a sealed segment, read in large pieces; CorruptFileError where one does not hold."""
        path = os.path.join(self.job.directory, file_name(segment.base_offset, LOG_SUFFIX))
        file = self.disk.open(path)
        try:
            position, wanted = 0, READ_BYTES
            while position < segment.size_bytes:
                data = memoryview(file.read(position, min(wanted, segment.size_bytes - position)))
                scanned = batch.scan(data)
                if scanned.problem is not None or (scanned.end_position == 0 and wanted >= segment.size_bytes):
                    at = position + scanned.end_position
                    raise CorruptFileError(path, f"cannot be compacted, byte {at}: {scanned.problem or 'is cut'}")
                wanted = READ_BYTES if scanned.end_position else wanted * 4  # a batch larger than the piece
                inside = 0
                for header in scanned.headers:
                    yield header, data[inside : inside + header.size_bytes]
                    inside += header.size_bytes
                position += inside
                self._throttle(inside)
        finally:
            file.close()

    def _throttle(self, bytes_read: int) -> None:
        """Keeps to `log.cleaner.io.max.bytes.per.second`; this is not an event loop, it may sleep."""
        self.bytes_read += bytes_read
        ahead = self.bytes_read / self.job.bytes_per_second_max - (time.monotonic() - self.started)
        if ahead > 0.01:
            time.sleep(ahead)

    def _note_keys(self, transactions: _Transactions) -> int:
        """Fills the map from the dirty part and returns where it ends: at a batch, before the map would overflow."""
        for segment, following in _with_next(self.job.segments, self.job.end_offset):
            if following <= self.job.first_dirty_offset:
                continue
            for header, data in self._batches(segment):
                if header.last_offset < self.job.first_dirty_offset:
                    continue
                if header.is_control:
                    if header.record_count and (marker := control.read_marker(data)) is not None:
                        transactions.end(header, marker)
                    continue
                if transactions.note_data(header) or not header.record_count:
                    continue
                records = batch.records_of(data)
                self.keys.note(records, header.record_count, header.base_offset, self.job.first_dirty_offset)
                if self.keys.is_full:
                    if header.base_offset <= self.job.first_dirty_offset:
                        raise OttlaError(
                            f"{self.job.directory}: the keys of one batch do not fit into "
                            f"{self.job.dedupe_buffer_bytes} bytes; raise log.cleaner.dedupe.buffer.size"
                        )
                    return header.base_offset
        return self.job.end_offset

    def _groups(self) -> Iterator[_Group]:
        """Neighbouring segments that together become one: no larger than a segment, within the reach of its index."""
        group: list[SegmentRange] = []
        size = 0
        end_offset = self.job.segments[0].base_offset
        for segment, following in _with_next(self.job.segments, self.job.end_offset):
            if segment.base_offset >= self.mapped_end:
                break
            # A group has a batch: an empty segment, which a crash may leave at the beginning, goes with the next one.
            if size and (
                size + segment.size_bytes > self.job.segment_bytes
                or following - group[0].base_offset > RELATIVE_OFFSET_MAX
            ):
                yield _Group(tuple(group), end_offset)
                group, size = [], 0
            group.append(segment)
            size += segment.size_bytes
            end_offset = following
        if size:
            yield _Group(tuple(group), end_offset)

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _clean(self, header: BatchHeader, data: memoryview, transactions: _Transactions, new: CleanedOutput) -> None:
        self.result.records_read += header.record_count
        if header.is_control:
            self._clean_control(header, data, transactions, new)
        elif transactions.note_data(header):
            self._keep_empty_if_last(header, new)
        elif header.base_offset >= self.mapped_end:
            # Its keys are for the next cleaning. How transactions ended is known of all batches, and has to be noted.
            self._keep(header, data, new)
        else:
            self._clean_records(header, data, new)

    def _keep(self, header: BatchHeader, data: Buffer, new: CleanedOutput) -> None:
        new.add(header, data)
        self.result.records_kept += header.record_count

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.job.last_of_producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.last_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    def _keep_empty_if_last(self, header: BatchHeader, new: CleanedOutput) -> None:
        if self._is_last_of_producer(header):
            empty = batch.rebuild(
                header, b"", record_count=0, max_timestamp=header.max_timestamp, compression=Compression.NONE
            )
            new.add(batch.read_header(empty), empty)

    def _clean_control(
        self, header: BatchHeader, data: memoryview, transactions: _Transactions, new: CleanedOutput
    ) -> None:
        marker = control.read_marker(data) if header.record_count else None
        if marker is None:
            # Already emptied: it stays as long as it is the last that is known of its producer.
            self._keep_empty_if_last(header, new)
            return
        is_free, aborted = transactions.end(header, marker)
        if aborted is not None:
            new.add_aborted(aborted)
        horizon_ms = header.delete_horizon_ms
        if is_free and horizon_ms is not None and horizon_ms <= self.job.now_ms:
            self._keep_empty_if_last(header, new)
        elif is_free and horizon_ms is None:
            self._keep_with_horizon(header, data, new)
        else:
            self._keep(header, data, new)

    def _keep_with_horizon(self, header: BatchHeader, data: memoryview, new: CleanedOutput) -> None:
        """Starts the clock of a marker that nothing needs any more: it goes `delete.retention.ms` from now."""
        horizon_ms = self.job.now_ms + self.job.delete_retention_ms
        columns = batch.decode(data)
        rebuilt = batch.build(
            columns.keys,
            columns.values,
            columns.timestamps,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=True,
            delete_horizon_ms=horizon_ms,
        )
        self._keep(batch.read_header(rebuilt), rebuilt, new)

    def _clean_records(self, header: BatchHeader, data: memoryview, new: CleanedOutput) -> None:
        records = batch.records_of(data)
        horizon_ms = header.delete_horizon_ms
        drop_tombstones = horizon_ms is not None and horizon_ms <= self.job.now_ms
        arguments = (records, header.record_count, header.base_offset, self.keys, drop_tombstones)
        retained = codec.retain(*arguments)
        if retained.record_count == 0:
            self._keep_empty_if_last(header, new)
            return
        base_timestamp = header.base_timestamp
        if retained.has_tombstones and horizon_ms is None and header.base_offset < self.job.first_dirty_offset:
            # Every cleaning gives its tombstones a horizon: this part was never cleaned, whatever the checkpoint says,
            # and earlier values may stand before it. It is for the next cleaning, unless nobody reads it any more.
            if header.base_offset >= self.job.log_start_offset:
                self.result.end_offset = min(self.result.end_offset, header.base_offset)
        elif retained.has_tombstones and horizon_ms is None:
            base_timestamp = horizon_ms = self.job.now_ms + self.job.delete_retention_ms
            retained = codec.retain(*arguments, header.base_timestamp - base_timestamp)
        if not retained.has_dropped and horizon_ms == header.delete_horizon_ms:
            self._keep(header, data, new)
            return
        rebuilt = batch.rebuild(
            header,
            retained.records,
            record_count=retained.record_count,
            max_timestamp=header.max_timestamp
            if header.is_log_append_time
            else base_timestamp + retained.max_timestamp_delta,
            delete_horizon_ms=horizon_ms,
        )
        self._keep(batch.read_header(rebuilt), rebuilt, new)


def _with_next(segments: tuple[SegmentRange, ...], end_offset: int) -> Iterator[tuple[SegmentRange, int]]:
    """Each segment with the base offset of the one behind it."""
    bases = [segment.base_offset for segment in segments[1:]]
    return zip(segments, [*bases, end_offset], strict=True)


# -- committing --------------------------------------------------------------------------------------------------------


def commit(log: Log, result: CleaningResult, now_ms: int, *, is_moving: bool = False) -> bool:
    """Puts the compacted segments in place; False, with nothing changed, where the log was cut in the meantime.

    Nor of one that `is_moving` to another directory: the copy would keep what it took before, without what deletes it.
    """
    standing = {segment.base_offset: segment for segment in log.segments[:-1]}
    # A log that was cut may have grown back to segments of the same size with other records.
    is_valid = (
        not is_moving
        and result.truncation_count == log.durability.truncation_count
        and all(
            old.base_offset in standing and standing[old.base_offset].size_bytes == old.size_bytes
            for group in result.groups
            for old in group.old
        )
    )
    _drop_strays(log, result)
    for group in result.groups:
        cleaned = [
            Segment(
                log.disk,
                log.directory,
                new.base_offset,
                size_bytes=new.size_bytes,
                index_interval_bytes=log.config.index_interval_bytes,
                created_ms=now_ms,
                suffix=CLEANED_SUFFIX,
            )
            for new in group.new
        ]
        if is_valid:
            log.replace_segments(cleaned, [standing[old.base_offset] for old in group.old], now_ms)
        else:
            for segment in cleaned:
                segment.unlink()
    return is_valid


def _drop_strays(log: Log, result: CleaningResult) -> None:
    """Removes what a job of a deleted log of the same name wrote here by path.

    A `.cleaned` file before a `.swap` means for recovery that the swap is incomplete.
    """
    own = {file_name(new.base_offset, "") for group in result.groups for new in group.new}
    for name in log.disk.list_directory(log.directory):
        if name.endswith(CLEANED_SUFFIX) and name.partition(".")[0] not in own:
            log.disk.unlink(os.path.join(log.directory, name))
