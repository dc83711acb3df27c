"""The log of one partition: its segments, its offsets, its producers and its leader epochs.

One event loop owns a `Log`, so there are no locks. Nothing here waits for the disk to sync: `begin_flush` hands out a
`Flush` whose `run` does nothing but sync files and may run in any thread, and `end_flush` moves the recovery point.
High watermark and role belong to the partition above; where they matter they come as arguments.

What is durable when: a batch is on disk (in the page cache) when `append` returns; it survives a power loss once the
recovery point has passed it. Behind the recovery point nothing is trusted after a crash: see `recovery`.
"""

from __future__ import annotations

import bisect
import logging
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import LogConfig
from ottla.disk import Disk, File, read_file, write_atomically
from ottla.errors import ApiError, CorruptFileError, ErrorCode, RecordsError, StorageError
from ottla.ids import NO_TIMESTAMP, TopicPartition
from ottla.records import batch, control
from ottla.records.batch import BatchHeader
from ottla.storage import retention
from ottla.storage.admission import Admission, Admitted
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.flush import Flush, SnapshotSync
from ottla.storage.index import RELATIVE_OFFSET_MAX, AbortedTransaction, TimestampOffset
from ottla.storage.lookups import Looked
from ottla.storage.producer_state import ProducedBatch, ProducerStates
from ottla.storage.segment import DELETED_SUFFIX, SWAP_SUFFIX, FileSlice, Segment, file_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
PRODUCER_EXPIRATION_MS = 86_400_000


class Appended(NamedTuple):
    """Where a batch went. A duplicate of an earlier batch names where that one went."""

    first_offset: int
    last_offset: int
    append_time_ms: int  # -1 where the records keep their producer's time
    is_duplicate: bool = False

    @classmethod
    def again(cls, produced: ProducedBatch) -> Appended:
        """Of what was sent once more. Its time is that of the first, whosever that is: Kafka does not tell either."""
        return cls(produced.first_offset, produced.last_offset, produced.timestamp, is_duplicate=True)


class LogSlice(NamedTuple):
    """Whole batches of one segment, the last perhaps cut by the size limit. `upper_offset` is past all of them."""

    records: FileSlice
    first_offset: int
    upper_offset: int
    attributes: int  # of the first batch: its codec may be unknown to an old reader


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


class Log:
    """One partition's log. Made by `recovery.open_log`; not to be made by hand."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        *,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        log_start_offset: int,
        end_offset: int,
        recovery_point: int,
        opened_ms: int,
        rng: random.Random,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.hold = DirectoryHold()
        self.name = name
        self.config = config
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._rng = rng
        self._doomed: list[tuple[int, Segment]] = []  # deleted, and when their files may go
        # Snapshots and the indexes of sealed segments: written whole, and not known to be durable yet.
        self._unsynced: set[str] = set()
        self._truncation_count = 0
        self._state_on_disk: tuple[object, ...] | None = None
        self._last_flush_ms = opened_ms
        self.is_closed = False

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Settings change while the log is in use; what is written already stays as it is."""
        self._config = config
        self.admission = Admission(config)
        self._roll_after_ms = config.segment_ms_max

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, *, leader_epoch: int, now_ms: int, at_once: bool = False) -> Appended:
        """As the leader: checks, stamps and writes one batch of a producer. `data` is stamped in place if writable.

        So the bytes are used up, even where they could not be written: who tries again takes a fresh copy.
        With `at_once` a batch that takes long to check is a TakesLongError: it goes the way of `admission`.
        """
        appended = self._append_plain(data, leader_epoch, now_ms)
        if appended is not None:
            return appended
        admitted = self.admission.admit(data, now_ms, at_once=at_once)
        return self.append_admitted(admitted, leader_epoch=leader_epoch, now_ms=now_ms)

    def _append_plain(self, data: Buffer, leader_epoch: int, now_ms: int) -> Appended | None:
        """The same in few steps for a batch that is plain, as most are.

        None where the admission has to look closer, for whatever reason; not a byte has been touched then.
        """
        rules = self.admission
        first_offset = self.end_offset
        stamped = batch.stamp_plain(
            data, first_offset, leader_epoch, rules.plain_bytes_max, now_ms + rules.after_max_ms, rules.needs_keys
        )
        if stamped is None:
            return None
        record_count, max_timestamp, header = stamped
        if header is not None:
            produced = self.producers.check(header)
            if produced is not None:
                return Appended.again(produced)
        last_offset = first_offset + record_count - 1
        self._write_batch(data, first_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        if header is not None:
            self.producers.record(header, max_timestamp)
            self.producers.end_offset = self.end_offset
        return Appended(first_offset, last_offset, NO_TIMESTAMP)

    def append_admitted(self, admitted: Admitted, *, leader_epoch: int, now_ms: int) -> Appended:
        """The same with a batch that `admission` has let in, in whatever thread."""
        data, header, append_time_ms = admitted
        self._check_fits_segment(header.size_bytes)
        if header.producer_id >= 0:
            produced = self.producers.check(header)
            if produced is not None:
                return Appended.again(produced)
        first_offset = self.end_offset
        last_offset = first_offset + header.last_offset_delta
        batch.stamp(data, first_offset, leader_epoch)
        self._write_batch(data, first_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)
        if header.producer_id >= 0:
            header = header._replace(base_offset=first_offset, leader_epoch=leader_epoch)
            self.producers.record(header, header.max_timestamp)
            self.producers.end_offset = self.end_offset
        return Appended(first_offset, last_offset, append_time_ms)

    def append_own(self, data: bytearray, record_count: int, *, leader_epoch: int, now_ms: int) -> int:
        """As the leader: writes a batch of this broker's own, of no producer and made now; the offset behind it.

        Nobody has to look at what was made here, so this is the shortest way there is.
        """
        self._check_fits_segment(len(data))
        first_offset = self.end_offset
        batch.stamp(data, first_offset, leader_epoch)
        self._write_batch(data, first_offset, first_offset + record_count - 1, now_ms, leader_epoch, now_ms)
        return self.end_offset

    def _check_fits_segment(self, batch_bytes: int) -> None:
        bytes_max = self._config.segment_bytes
        if batch_bytes > bytes_max:
            raise RecordsError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {batch_bytes} bytes, a segment {bytes_max} (segment.bytes)",
            )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: control.EndTransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """As the leader: ends a transaction of this partition, as its coordinator decided."""
        first_offset = self.end_offset
        data = control.build_marker(
            producer_id, producer_epoch, marker, now_ms, base_offset=first_offset, leader_epoch=leader_epoch
        )
        header = batch.read_header(data)
        self.producers.check_marker(header, marker)
        self._write_headed(data, header, now_ms)
        self._record_marker(header, marker, self.active)
        return Appended(first_offset, first_offset, -1)

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> Appended | None:
        """The leader's batches as they are, offsets and epochs included; None where `data` holds no whole batch.

        The bytes were checked by the leader; what can be damaged on the way is checked again: lengths and checksums.
        """
        view = memoryview(data)
        scanned = batch.scan(view)
        if scanned.problem is not None:
            raise RecordsError(ErrorCode.CORRUPT_MESSAGE, f"from the leader of {self.name}: {scanned.problem}")
        position = 0
        first_offset = self.end_offset
        for header in scanned.headers:
            if header.base_offset < self.end_offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.name} ends at {self.end_offset}, the leader sent offset {header.base_offset}",
                )
            self._write_headed(view[position : position + header.size_bytes], header, now_ms)
            self.replay_batch(header, view, position, self.active)
            position += header.size_bytes
        if not scanned.headers:
            return None
        return Appended(first_offset, self.end_offset - 1, -1)

    def _write_headed(self, data: Buffer, header: BatchHeader, now_ms: int) -> None:
        self._write_batch(
            data, header.base_offset, header.last_offset, header.max_timestamp, header.leader_epoch, now_ms
        )

    def _write_batch(
        self, data: Buffer, base_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Every batch comes to the log here. By values and not by its header, which takes as long to make."""
        if self.is_closed:
            raise StorageError(self.directory, "the log is closed: it was deleted or its directory is offline")
        size_bytes = len(data)  # type: ignore[arg-type]
        segment = self._segment_for(size_bytes, base_offset, last_offset, max_timestamp, now_ms)
        position = segment.write(data)
        segment.note_batch(base_offset, last_offset, max_timestamp, position, size_bytes)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.end_offset = last_offset + 1

    def replay_batch(self, header: BatchHeader, data: Buffer, position: int, segment: Segment) -> None:
        """Takes a batch that stands in `segment` into the producer state: on followers and in recovery."""
        if header.producer_id >= 0:
            if not header.is_control:
                self.producers.record(header, header.max_timestamp)
            elif not header.record_count:
                self.producers.record_emptied_marker(header)
            elif (marker := control.read_marker(data, position)) is not None:
                self._record_marker(header, marker, segment)
        self.producers.end_offset = header.end_offset

    def _record_marker(
        self, header: BatchHeader, marker: control.EndTransactionMarker, segment: Segment | None
    ) -> None:
        """Ends a transaction in the producer state and, if it aborted, in the transaction index of `segment`."""
        ended = self.producers.record_marker(header, marker)
        if ended is not None and ended.is_aborted and segment is not None:
            segment.transaction_index.append(
                AbortedTransaction(
                    ended.producer_id,
                    ended.first_offset,
                    ended.last_offset,
                    self.producers.last_stable_offset_after(ended),
                )
            )
        self.producers.end_offset = header.end_offset

    def assign_epoch(self, epoch: int) -> None:
        """A new leader starts its epoch here, before its first batch."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.end_offset)

    # -- segments ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def truncation_count(self) -> int:
        """How often the end of the log was cut since it was opened: what was read before may not hold any more."""
        return self._truncation_count

    def was_cut_since(self, truncation_count: int) -> bool:
        return truncation_count != self._truncation_count

    def adopt(self, segment: Segment) -> None:
        """Recovery adds a segment that it is about to check at the end of the log."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def _segment_for(
        self, batch_bytes: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """The segment that takes a batch: the active one, or a new one where it must roll first."""
        active = self._segments[-1]
        size_bytes = active.size_bytes
        if size_bytes:
            config = self._config
            first = active.first_timestamp
            # By record time where records have one, so that a replayed or mirrored log rolls where its source did.
            waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - active.created_ms
            if (
                size_bytes + batch_bytes > config.segment_bytes
                or waited_ms > self._roll_after_ms - active.jitter_ms
                or active.index_bytes_needed > config.segment_index_bytes
            ):
                return self.roll(now_ms)
        if last_offset - active.base_offset <= RELATIVE_OFFSET_MAX:
            return active
        # Only offsets that compaction left on a leader jump so far that the new segment cannot start where we end.
        is_reachable = last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
        return self.roll(now_ms, self.end_offset if is_reachable else base_offset)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and starts the next one, at the end of the log."""
        base_offset = self.end_offset if base_offset is None else base_offset
        active = self._segments[-1]
        if active.size_bytes == 0 and active.base_offset == base_offset:
            active.created_ms = now_ms
            return active
        # What can fail comes first, so that after an error the active segment is what it was.
        if active.size_bytes:
            active.write_indexes(sync=False)
            self.note_unsynced(active.index_paths())
        self.take_snapshot(base_offset)
        jitter_ms = self._rng.randint(0, self.config.segment_jitter_ms) if self.config.segment_jitter_ms else 0
        segment = Segment.create(
            self.disk,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
            jitter_ms=min(jitter_ms, self.config.segment_ms),
        )
        if active.size_bytes:
            active.seal()
        else:  # a log has no empty segments but the active one
            self._drop_last_segment()
        self._segments.append(segment)
        self._bases.append(base_offset)
        return segment

    def seal_active(self) -> None:
        """Writes the indexes of the active segment, which takes no more; the next flush makes them durable."""
        if self.active.size_bytes:
            self.active.seal()
            self.note_unsynced(self.active.index_paths())

    def note_unsynced(self, paths: Iterable[str]) -> None:
        """The next flush makes these files durable as well."""
        self._unsynced.update(paths)

    def take_snapshot(self, offset: int) -> None:
        """The producer state at `offset`, in the page cache; the next flush makes it durable.

        One that stands there already stays, for to replace it takes a sync: a cut takes those behind it, so it is of
        the same batches and can only name producers that have expired since.
        """
        path = self.snapshot_path(offset)
        self.note_unsynced([path])
        if self.disk.exists(path):
            return
        file = self.disk.open(path, create=True, writable=True)
        try:
            file.write(0, self.producers.snapshot())
        except StorageError:
            self.disk.unlink(path)  # what there is of it must not stand for the whole
            raise
        finally:
            file.close()

    def _replace_snapshot(self, offset: int) -> None:
        """The same for whoever may wait. Whole or not at all: retention may have taken those before it."""
        path = self.snapshot_path(offset)
        data = self.producers.snapshot()
        self.note_unsynced([path])
        if not self.disk.exists(path):
            self.take_snapshot(offset)
        elif read_file(self.disk, path) != data:
            write_atomically(self.disk, path, [data])

    def snapshot_path(self, offset: int) -> str:
        return os.path.join(self.directory, file_name(offset, SNAPSHOT_SUFFIX))

    def _number_of_segment(self, offset: int) -> int:
        """The number of the segment that holds `offset`, or would."""
        return max(0, bisect.bisect_right(self._bases, offset) - 1)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice | None:
        """Batches from the one that holds `offset`, below `upper_offset`; None where there is nothing to read yet.

        With `at_least_one` the first batch comes whole even if it is larger than `max_bytes`.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.end_offset}, asked for {offset}",
            )
        upper_offset = self.end_offset if upper_offset is None else min(upper_offset, self.end_offset)
        if offset >= upper_offset:
            return None
        number = self._number_of_segment(offset)
        while number < len(self._segments):
            segment = self._segments[number]
            found = segment.find(offset)
            number += 1
            if found is None:
                continue  # compaction took everything from `offset` to the end of this segment
            next_base = self._bases[number] if number < len(self._bases) else self.end_offset
            if found.header.end_offset > next_base:
                raise CorruptFileError(
                    segment.file.path, f"the batch at byte {found.position} claims offsets of the next segment"
                )
            if found.header.base_offset >= upper_offset:
                return None
            return self._slice(segment, next_base, found.position, found.header, max_bytes, upper_offset, at_least_one)
        return None

    @staticmethod
    def _slice(
        segment: Segment,
        next_base: int,
        position: int,
        header: BatchHeader,
        max_bytes: int,
        upper_offset: int,
        at_least_one: bool,
    ) -> LogSlice | None:
        limit = segment.size_bytes if segment.damaged_from is None else segment.damaged_from
        if upper_offset < next_base:
            upper = segment.find(upper_offset)
            if upper is not None:
                limit = upper.position
        if limit <= position:
            return None  # the bound is inside of the first batch
        size_bytes = min(limit - position, max_bytes)
        first_bytes = header.size_bytes
        if size_bytes < first_bytes:
            if not at_least_one:
                return None
            size_bytes = first_bytes
        bound = min(upper_offset, next_base, segment.offset_past(position + size_bytes, next_base))
        return LogSlice(segment.slice(position, size_bytes), header.base_offset, bound, header.attributes)

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed reader of [start_offset, upper_offset) must know."""
        found = []
        for segment in self._segments[self._number_of_segment(start_offset) :]:
            for aborted in segment.transaction_index.ended_from(start_offset):
                if aborted.first_offset < upper_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_offset:
                    return found
        return found

    def last_stable_offset(self, high_watermark: int) -> int:
        """Everything below is decided: no open transaction, and none that the high watermark has not passed."""
        unstable = self.producers.first_unstable_offset
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def offset_for_time(self, timestamp: int, looked: Looked | None = None) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`.

        LongLookupError, where that takes long and `looked` says that somebody waits: see `lookups`.
        """
        for segment in self._segments[self._number_of_segment(self.log_start_offset) :]:
            if segment.max_timestamp.timestamp >= timestamp:
                found = segment.first_at_or_after(timestamp, self.log_start_offset, looked)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self, looked: Looked | None = None) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None in a log without timestamps.

        LongLookupError as above.
        """
        latest = max(self._segments, key=lambda segment: segment.max_timestamp.timestamp)
        if latest.max_timestamp.timestamp < 0:
            return None
        return latest.first_at_or_after(latest.max_timestamp.timestamp, self.log_start_offset, looked)

    # -- cutting the end -----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drops everything from `offset` on, and the rest of the batch that holds it."""
        if offset >= self.end_offset:
            # An epoch that began here and wrote nothing may contradict the history of the leader that asks for this.
            self.epochs.truncate_from_end(self.end_offset)
            return
        if offset < self._bases[0]:
            self.truncate_fully(offset, now_ms=now_ms)
            return
        self._truncation_count += 1
        self.recovery_point = min(self.recovery_point, offset)
        # From the end backwards and durable step by step, so that a crash in between leaves a log without a hole, and
        # what was cut off does not come back behind records that were written in its place.
        while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
            self._drop_last_segment()
        self.disk.sync_directory(self.directory)
        active = self._segments[-1]
        active.truncate_to(offset)
        self.end_offset = active.become_active()
        self.log_start_offset = min(self.log_start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.rebuild_producers()

    def _drop_last_segment(self) -> None:
        segment = self._segments.pop()
        self._bases.pop()
        segment.unlink()

    def truncate_fully(self, offset: int, *, now_ms: int) -> None:
        """Drops everything and starts again, empty, at `offset`: a follower that is too far behind or ahead."""
        self._truncation_count += 1
        while self._segments:
            self._drop_last_segment()
        for snapshot in self.snapshots():
            self.disk.unlink(self.snapshot_path(snapshot))
        self._unsynced.clear()
        segment = Segment.create(
            self.disk,
            self.directory,
            offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
        )
        self._segments, self._bases = [segment], [offset]
        self.log_start_offset = self.end_offset = self.recovery_point = offset
        self.epochs.clear()
        self.producers.clear()
        self.producers.end_offset = offset
        self.disk.sync_directory(self.directory)

    def snapshots(self) -> list[int]:
        """The offsets of all snapshot files, rising."""
        return sorted(
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in self.disk.list_directory(self.directory)
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
        )

    def drop_stray_snapshots(self) -> None:
        """Drops what nothing would start from: all but the newest and those at the start of a segment.

        Every clean stop leaves a snapshot at the end of the log, wherever that is.
        """
        for offset in self.snapshots()[:-1]:
            if offset not in self._bases:
                self.disk.unlink(self.snapshot_path(offset))

    def rebuild_producers(self, *, aborted_anew: Sequence[Segment] = ()) -> None:
        """Makes the producer state anew: the newest sound snapshot within the log, then the batches behind it.

        `aborted_anew` are segments whose transaction index was lost: it is filled again on the way.
        """
        self.producers.clear()
        newest = min((segment.base_offset for segment in aborted_anew), default=self.end_offset)
        start_offset = self._load_snapshot(newest)
        for segment in self._segments[self._number_of_segment(start_offset) :]:
            try:
                self._replay_segment(segment, start_offset, segment in aborted_anew)
            except CorruptFileError as error:
                logger.warning("%s; the state of its producers is not known from there on", error)
        self.producers.end_offset = self.end_offset

    def _replay_segment(self, segment: Segment, start_offset: int, fill_transaction_index: bool) -> None:
        found = segment.find(start_offset)
        if found is None:
            return
        for position, header in segment.walk(found.position):
            if header.producer_id < 0 or header.base_offset < start_offset:
                continue
            if not header.is_control:
                self.producers.record(header, header.max_timestamp)
            elif not header.record_count:
                self.producers.record_emptied_marker(header)
            elif (marker := control.read_marker(segment.file.read(position, header.size_bytes))) is not None:
                self._record_marker(header, marker, segment if fill_transaction_index else None)

    def _load_snapshot(self, newest: int) -> int:
        """Loads the last sound snapshot up to `newest` and returns its offset; those that do not fit the log go."""
        first_offset = self._bases[0] if self._bases else self.end_offset
        for offset in reversed(self.snapshots()):
            path = self.snapshot_path(offset)
            if newest < offset <= self.end_offset:
                continue
            if first_offset <= offset <= newest:
                try:
                    self.producers.load(read_file(self.disk, path), offset, path)
                    self._close_transactions_that_are_gone(first_offset, path)
                    return offset
                except CorruptFileError as error:
                    logger.warning("%s; using an earlier snapshot or the log itself", error)
            self.disk.unlink(path)
        self.producers.clear()
        return first_offset

    def _close_transactions_that_are_gone(self, log_first_offset: int, path: str) -> None:
        """A snapshot is as old as its segment: deletion and compaction may have taken a transaction that it calls open.

        CorruptFileError where neither explains that the transaction is not in the log: the snapshot is not of this log.
        """
        for _, producer_id in list(self.producers.ongoing_transactions()):
            last_offset = self.producers.producers[producer_id].last_offset
            is_deleted = last_offset < log_first_offset
            # What is decided goes from the front, so as long as the last batch is there, others may be.
            if not is_deleted and self._has_batch(producer_id, last_offset):
                continue
            if not is_deleted and not self.config.is_compacted:
                raise CorruptFileError(path, f"names a batch of producer {producer_id} at {last_offset} that is none")
            self.producers.close_transaction(producer_id)

    def _has_batch(self, producer_id: int, last_offset: int) -> bool:
        """Whether a batch of this producer ends there."""
        found = self._segments[self._number_of_segment(last_offset)].find(last_offset)
        return found is not None and (found.header.last_offset, found.header.producer_id) == (last_offset, producer_id)

    # -- cutting the beginning -----------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers (DeleteRecords); retention takes their segments later."""
        if offset > self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {self.end_offset}, before {offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def begin_deletion(self, now_ms: int, high_watermark: int, count_max: int | None = None) -> SnapshotSync | None:
        """What must be durable before `delete_expired`, asked the same, takes segments away; None where all of it is.

        For whoever must not wait for the disk: it lets a thread run this and tells `snapshot_synced` of it.
        """
        count = self._expired_count(now_ms, high_watermark, count_max)
        return self._unsynced_snapshot(self._bases[count]) if count else None

    def delete_expired(self, now_ms: int, high_watermark: int, count_max: int | None = None) -> int:
        """Deletes the segments that retention no longer keeps, the oldest of them, and returns how many.

        See `retention`.
        """
        count = self._expired_count(now_ms, high_watermark, count_max)
        if count:
            self.delete_first(count, now_ms)
            self.advance_log_start(self._bases[0])
        return count

    def _expired_count(self, now_ms: int, high_watermark: int, count_max: int | None) -> int:
        """How many segments go; where all of them do, there is a new one behind them from here on."""
        count = retention.expired_count(
            [retention.SegmentAge.of(segment) for segment in self._segments],
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            end_offset=self.end_offset,
        )
        if count_max is not None:
            count = min(count, count_max)
        if count and count == len(self._segments):
            self.roll(now_ms)
        return count

    def delete_first(self, count: int, now_ms: int) -> None:
        """Takes the oldest segments out of the log; their files follow after `file.delete.delay.ms`."""
        self._sync_snapshot(self._bases[count])
        doomed, self._segments = self._segments[:count], self._segments[count:]
        self._bases = self._bases[count:]
        for segment in doomed:
            self._doom(segment, now_ms)

    def _sync_snapshot(self, offset: int) -> None:
        """Makes sure of a snapshot before the records that it sums up go away."""
        sync = self._unsynced_snapshot(offset)
        if sync is not None:
            sync.run()
            self.snapshot_synced(sync)

    def _unsynced_snapshot(self, offset: int) -> SnapshotSync | None:
        path = self.snapshot_path(offset)
        if path not in self._unsynced or not self.disk.exists(path):
            return None
        return SnapshotSync(self.disk, self.directory, self.disk.open(path, writable=True))

    def snapshot_synced(self, sync: SnapshotSync) -> None:
        self._unsynced.discard(sync.file.path)

    def _doom(self, segment: Segment, now_ms: int) -> None:
        segment.change_suffix(DELETED_SUFFIX)
        self._doomed.append((now_ms + self.config.file_delete_delay_ms, segment))

    def take_due(self, now_ms: int) -> list[Unlinking]:
        """The segments that were deleted long enough ago, for a thread that may wait for the disk."""
        if not self._doomed:
            return []
        # Further away than any can be: the clock was set back. Whoever still reads them holds their files.
        latest_ms = now_ms + self.config.file_delete_delay_ms
        due = [segment for due_ms, segment in self._doomed if not now_ms < due_ms <= latest_ms]
        self._doomed = [(due_ms, segment) for due_ms, segment in self._doomed if now_ms < due_ms <= latest_ms]
        standing = set(self._bases)
        return [
            # One whose place a compacted one took has the same snapshot.
            Unlinking(
                self.disk,
                self.hold,
                one,
                None if one.base_offset in standing else self.snapshot_path(one.base_offset),
            )
            for one in due
        ]

    # -- replacing the middle ------------------------------------------------------------------------------------------

    def replace_segments(self, cleaned: list[Segment], old: list[Segment], now_ms: int) -> None:
        """Puts compacted segments (`.cleaned`, complete and synced) in the place of those they were made of.

        Crash-safe at each step, for names become durable in their order: see `recovery.finish_swaps`, which completes
        or undoes what this began. The old ones go in rising order: what a crash leaves of them is never older than
        what it took. The caller syncs the directory before anything relies on it.
        """
        # The lowest offset last: as long as a `.cleaned` stands in front of it, a `.swap` is known to be incomplete.
        for segment in reversed(cleaned):
            segment.change_suffix(SWAP_SUFFIX)
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == old, "only sealed segments that still stand are replaced"
        for segment in old:
            self._doom(segment, now_ms)
        for segment in cleaned:
            segment.change_suffix("")
        self._segments[first : first + len(old)] = cleaned
        self._bases = [segment.base_offset for segment in self._segments]

    # -- making durable ------------------------------------------------------------------------------------------------

    def is_flush_due(self, now_ms: int) -> bool:
        unflushed = self.end_offset - self.recovery_point
        return unflushed > 0 and (
            self.recovery_point < self.log_start_offset  # a deletion counts after a crash once it is flushed
            or unflushed >= self.config.flush_messages
            # Before the last one: the clock was set back, and nobody knows how long ago it was.
            or not 0 <= now_ms - self._last_flush_ms < self.config.flush_ms
            or self.recovery_point < self.active.base_offset  # flush on roll
        )

    def begin_flush(self) -> Flush:
        """What has to be synced so that everything written until now survives a power loss."""
        return self._flush_of(list(self._unflushed_files()))

    def _unflushed_files(self) -> Iterator[File]:
        """Opened one at a time: recovery flushes logs that have more files than a process may hold open."""
        for segment in self._segments[self._number_of_segment(self.recovery_point) :]:
            yield segment.file
        for path in sorted(self._unsynced):
            if self.disk.exists(path):
                yield self.disk.open(path, writable=True)

    def _flush_of(self, files: Iterable[File]) -> Flush:
        return Flush(
            self.disk,
            self.directory,
            self.hold,
            files,
            frozenset(self._unsynced),
            self.epochs.pending(self.end_offset),
            self.epochs.path,
            self.end_offset,
            self._truncation_count,
        )

    def end_flush(self, flush: Flush, now_ms: int = 0) -> None:
        """The flush succeeded: everything that stood when it began is durable, unless the log was cut meanwhile."""
        self._last_flush_ms = now_ms
        if flush.epochs is not None:
            self.epochs.written(flush.epochs)
        if flush.truncation_count != self._truncation_count:
            return
        self._unsynced -= flush.unsynced
        self.recovery_point = max(self.recovery_point, flush.end_offset)

    def flush(self, now_ms: int = 0) -> None:
        """All three in one, for whoever may wait; nothing, where nothing was ever written."""
        if self._was_never_written and self.epochs.pending(self.end_offset) is None:
            return
        flush = self._flush_of(self._unflushed_files())
        flush.run()
        self.end_flush(flush, now_ms)

    def close(self) -> None:
        """Leaves everything on disk as a clean start wants it. The log takes nothing after this.

        A log that was never written, or not since a clean start, is like that already: a broker of a thousand quiet
        partitions stops without thousands of syncs.
        """
        if not self._was_never_written and self._state_on_disk != self._state():
            self.active.write_indexes(sync=True)
            self._replace_snapshot(self.end_offset)
            self.flush()
        for segment in self._segments:
            segment.close()
        self.is_closed = True

    @property
    def _was_never_written(self) -> bool:
        return self.end_offset == 0 and self._truncation_count == 0 and not self._unsynced

    def note_clean_start(self) -> None:
        """Recovery opened the log as a clean stop had left it."""
        self._state_on_disk = self._state()

    def _state(self) -> tuple[object, ...]:
        """What a clean stop writes down, in short: equal states need no second writing.

        An epoch in which nothing was written is not among it: every start of a broker begins one.
        """
        epochs = self.epochs.begun_before(self.end_offset)
        return self.end_offset, self._truncation_count, tuple(self._bases), epochs, self.size_bytes

    def abandon(self) -> None:
        """Lets go of all files without writing anything: the directory failed, or a test ends."""
        for segment in self._segments:
            segment.close()
        self.is_closed = True

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def expire_producers(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        return self.producers.expire(now_ms, expiration_ms)

    def release_idle_files(self) -> None:
        """Closes what nobody read since the last call; a log of a thousand segments need not hold a thousand files."""
        for segment in self._segments[:-1]:
            segment.release_all_if_idle()

    def batches(self, start_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch from `start_offset` with its bytes: for tools and tests, not for serving."""
        offset = self.log_start_offset if start_offset is None else start_offset
        for segment in self._segments[self._number_of_segment(offset) :]:
            found = segment.find(offset)
            if found is None:
                continue
            for position, header in segment.walk(found.position):
                yield header, segment.file.read(position, header.size_bytes)
