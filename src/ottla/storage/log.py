"""The log of one partition: its segments, its offsets, its producers and its leader epochs.

One event loop owns a `Log`, so there are no locks. Appends and reads do not wait for the disk to sync: see
`durability`. High watermark and role belong to the partition above; where they matter they come as arguments.

What is durable when: a batch is on disk (in the page cache) when `append` returns; it survives a power loss once the
recovery point has passed it. Behind the recovery point nothing is trusted after a crash: see `recovery`.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.config import LogConfig
from ottla.disk import Disk
from ottla.errors import ApiError, ErrorCode, RecordsError, StorageError
from ottla.ids import NO_TIMESTAMP, TopicPartition
from ottla.records import batch, control
from ottla.records.batch import BatchHeader, walk_run
from ottla.storage import retention
from ottla.storage.admission import Admission, Admitted
from ottla.storage.appended import Appended
from ottla.storage.deleted_segments import DeletedSegments, Unlinking
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.durability import Durability
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.file_slice import FileSlice
from ottla.storage.flush import Flush, SnapshotSync
from ottla.storage.index import RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES, AbortedTransaction, TimestampOffset
from ottla.storage.log_slice import LogSlice
from ottla.storage.lookups import Looked
from ottla.storage.producer_replay import ProducerReplay, marker_of, record_marker, replay_batch
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import SWAP_SUFFIX, Segment
from ottla.storage.segments import Segments
from ottla.storage.snapshots import Snapshots

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 86_400_000


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
        self.name = name
        self.config = config
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.snapshots = Snapshots(disk, directory)
        self.hold = DirectoryHold()
        self._segments = Segments(segments)
        self.durability = Durability(
            disk, directory, self.hold, self._segments, epochs, recovery_point=recovery_point, opened_ms=opened_ms
        )
        self._rng = rng
        self._deleted_segments = DeletedSegments(disk, self.hold, self.snapshots)
        self._state_on_disk: tuple[object, ...] | None = None
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
        rules = self.admission
        first_offset = self.end_offset
        # In few steps for a batch that is plain, as most are.
        stamped = batch.stamp_plain(
            data, first_offset, leader_epoch, rules.plain_bytes_max, now_ms + rules.after_max_ms, rules.needs_keys
        )
        if stamped is None:  # the admission has to look closer, for whatever reason; not a byte has been touched
            admitted = rules.admit(data, now_ms, at_once=at_once)
            return self.append_admitted(admitted, leader_epoch=leader_epoch, now_ms=now_ms)
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
        self.admission.check_fits_segment(header.size_bytes)
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
        self.admission.check_fits_segment(len(data))
        first_offset = self.end_offset
        batch.stamp(data, first_offset, leader_epoch)
        self._write_batch(data, first_offset, first_offset + record_count - 1, now_ms, leader_epoch, now_ms)
        return self.end_offset

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
        record_marker(self.producers, header, marker, self.active)
        return Appended(first_offset, first_offset, -1)

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> int:
        """The leader's whole batches as they are, offsets and epochs included; the offset behind them. What can be
        damaged on the way is checked again: lengths and checksums."""
        if not self._append_run(data, now_ms):
            self._append_one_by_one(memoryview(data), now_ms)
        return self.end_offset

    def _append_run(self, data: Buffer, now_ms: int) -> bool:
        """All in one write. Where something is unusual about them (see `walk_run`), or the active segment may have to
        roll before one of them, nothing is changed and False returned."""
        segment = self._segments.items[-1]
        run = walk_run(data, self.end_offset, segment.bytes_since_index, segment.index_interval_bytes)
        if run is None or self.is_closed:
            return False
        run_bytes, base_offset, last_offset, leader_epoch, start, max_timestamp, _, _, index_entries, of_producers = run
        config, size_bytes = self._config, segment.size_bytes
        first = segment.first_timestamp if size_bytes else start
        waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
        if (
            size_bytes + run_bytes > config.segment_bytes
            or waited_ms > self._roll_after_ms - segment.jitter_ms
            or segment.index_bytes_needed + len(index_entries) * TIME_ENTRY_BYTES > config.segment_index_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            return False
        if run_bytes < len(data):  # type: ignore[arg-type]
            data = memoryview(data)[:run_bytes]
        segment.note_run(run, segment.write(data))
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.end_offset = last_offset + 1
        for header in of_producers:
            self.producers.record(header, header.max_timestamp)
        self.producers.end_offset = last_offset + 1
        return True

    def _append_one_by_one(self, view: memoryview, now_ms: int) -> None:
        scanned = batch.scan(view)
        if scanned.problem is not None:
            raise RecordsError(ErrorCode.CORRUPT_MESSAGE, f"from the leader of {self.name}: {scanned.problem}")
        position, start_offset, first = 0, self.log_start_offset, next(iter(scanned.headers), None)
        # Where records were deleted up to the middle of a batch, the leader sends the whole one.
        if first and self.end_offset == start_offset and first.base_offset < start_offset < first.end_offset:
            self.truncate_fully(first.base_offset, now_ms=now_ms)
        for header in scanned.headers:
            if header.base_offset < self.end_offset:
                found = f"{self.name} ends at {self.end_offset}, the leader sent offset {header.base_offset}"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, found)
            marker = marker_of(header, view, position)
            self._write_headed(view[position : position + header.size_bytes], header, now_ms)
            replay_batch(self.producers, header, marker, self.active)
            position += header.size_bytes
            if self.log_start_offset < start_offset:  # what was deleted stays so
                self.advance_log_start(start_offset)

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

    def assign_epoch(self, epoch: int) -> None:
        """A new leader starts its epoch here, before its first batch."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.end_offset)

    # -- segments ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._segments.active

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments.items)

    def adopt(self, segment: Segment) -> None:
        """Recovery adds a segment that it is about to check at the end of the log."""
        self._segments.add(segment)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    def _segment_for(
        self, batch_bytes: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """The segment that takes a batch: the active one, or a new one where it must roll first."""
        active = self._segments.items[-1]
        is_full, size_bytes = False, active.size_bytes
        if size_bytes:
            config = self._config
            first = active.first_timestamp
            # By record time where records have one, so that a replayed or mirrored log rolls where its source did.
            waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - active.created_ms
            is_full = (
                size_bytes + batch_bytes > config.segment_bytes
                or waited_ms > self._roll_after_ms - active.jitter_ms
                or active.index_bytes_needed > config.segment_index_bytes
            )
        if not is_full and last_offset - active.base_offset <= RELATIVE_OFFSET_MAX:
            return active
        # Only offsets that compaction left on a leader jump so far that the new segment cannot start where we end.
        is_reachable = last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
        return self.roll(now_ms, self.end_offset if is_reachable else base_offset)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and starts the next one, at the end of the log."""
        base_offset = self.end_offset if base_offset is None else base_offset
        active = self._segments.active
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
            self._segments.drop_last()
        self._segments.add(segment)
        return segment

    def seal_active(self) -> None:
        """Writes the indexes of the active segment, which takes no more; the next flush makes them durable."""
        if self.active.size_bytes:
            self.active.seal()
            self.note_unsynced(self.active.index_paths())

    def note_unsynced(self, paths: Iterable[str]) -> None:
        """The next flush makes these files durable as well."""
        self.durability.unsynced.note(paths)

    def take_snapshot(self, offset: int) -> None:
        """The producer state at `offset`, in the page cache; the next flush makes it durable."""
        self.note_unsynced([self.snapshots.path(offset)])
        self.snapshots.add(offset, self.producers.snapshot())

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
        return self._segments.read(offset, max_bytes, upper_offset, self.end_offset, at_least_one)

    def tail_from(self, offset: int, bytes_max: int) -> FileSlice | None:
        """What was appended lately from `offset` on, all of it; None where `read` has to look for it."""
        return self.active.tail_from(offset, bytes_max)

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed reader of [start_offset, upper_offset) must know."""
        return self._segments.aborted_transactions(start_offset, upper_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Everything below is decided: no open transaction, and none that the high watermark has not passed."""
        unstable = self.producers.first_unstable_offset
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def offset_for_time(self, timestamp: int, looked: Looked | None = None) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`.

        LongLookupError, where that takes long and `looked` says that somebody waits: see `lookups`.
        """
        return self._segments.first_at_or_after(timestamp, self.log_start_offset, looked)

    def offset_of_max_timestamp(self, looked: Looked | None = None) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None in a log without timestamps.

        LongLookupError as above.
        """
        return self._segments.first_of_max_timestamp(self.log_start_offset, looked)

    # -- cutting the end -----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drops everything from `offset` on, and the rest of the batch that holds it."""
        if offset >= self.end_offset:
            # An epoch that began here and wrote nothing may contradict the history of the leader that asks for this.
            self.epochs.truncate_from_end(self.end_offset)
            return
        if offset < self._segments.bases[0]:
            self.truncate_fully(offset, now_ms=now_ms)
            return
        self.durability.note_truncation(offset)
        # From the end backwards and durable step by step, so that a crash in between leaves a log without a hole, and
        # what was cut off does not come back behind records that were written in its place.
        while len(self._segments) > 1 and self._segments.active.base_offset > offset:
            self._segments.drop_last()
        self.disk.sync_directory(self.directory)
        active = self._segments.active
        active.truncate_to(offset)
        self.end_offset = active.become_active()
        self.log_start_offset = min(self.log_start_offset, self.end_offset)
        self.durability.recovery_point = min(self.durability.recovery_point, self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.rebuild_producers()

    def truncate_fully(self, offset: int, *, now_ms: int) -> None:
        """Drops everything and starts again, empty, at `offset`: a follower that is too far behind or ahead."""
        self.durability.note_truncation(offset)
        while self._segments:
            self._segments.drop_last()
        self.snapshots.drop_all()
        self.durability.unsynced.clear()
        segment = Segment.create(
            self.disk,
            self.directory,
            offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
        )
        self._segments.add(segment)
        self.log_start_offset = self.end_offset = self.durability.recovery_point = offset
        self.epochs.clear()
        self.producers.clear()
        self.producers.end_offset = offset
        self.disk.sync_directory(self.directory)

    def drop_stray_snapshots(self) -> None:
        self.snapshots.drop_strays(self._segments.bases)

    def rebuild_producers(self, *, rebuilt_aborted: Sequence[Segment] = ()) -> None:
        """Rebuilds the producer state from snapshots and batches; see `producer_replay`."""
        ProducerReplay(
            self.producers,
            self._segments,
            self.snapshots,
            end_offset=self.end_offset,
            is_compacted=self.config.is_compacted,
        ).run(rebuilt_aborted)

    def moved_to(self, directory: str) -> None:
        """The directory of the log has another name: files are opened there from now on."""
        self.directory = directory
        self.epochs.path = os.path.join(directory, os.path.basename(self.epochs.path))
        self.snapshots = Snapshots(self.disk, directory)
        self.durability.moved_to(directory)
        for segment in self._segments:
            segment.moved_to(directory)

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

        For whoever must not wait for the disk: it runs this in a thread and calls `snapshot_synced` then.
        """
        count = self._expired_count(now_ms, high_watermark, count_max)
        return self.durability.unsynced.sync_of(self.snapshots.path(self._segments.bases[count])) if count else None

    def delete_expired(self, now_ms: int, high_watermark: int, count_max: int | None = None) -> int:
        """Deletes the segments that retention no longer keeps, the oldest of them, and returns how many.

        See `retention`.
        """
        count = self._expired_count(now_ms, high_watermark, count_max)
        if count:
            self.delete_first(count, now_ms)
            self.advance_log_start(self._segments.bases[0])
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
        self._sync_snapshot(self._segments.bases[count])
        for segment in self._segments.take_first(count):
            self._deleted_segments.add(segment, now_ms + self.config.file_delete_delay_ms)

    def _sync_snapshot(self, offset: int) -> None:
        """Makes sure of a snapshot before the records that it sums up go away."""
        sync = self.durability.unsynced.sync_of(self.snapshots.path(offset))
        if sync is not None:
            sync.run()
            self.snapshot_synced(sync)

    def snapshot_synced(self, sync: SnapshotSync) -> None:
        self.durability.unsynced.settle([sync.file.path])

    def take_due(self, now_ms: int) -> list[Unlinking]:
        """The segments that were deleted long enough ago, for a thread that may wait for the disk."""
        return self._deleted_segments.take_due(now_ms, self.config.file_delete_delay_ms, self._segments.bases)

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
        assert self._segments.has_run(old), "only sealed segments that still stand are replaced"
        for segment in old:
            self._deleted_segments.add(segment, now_ms + self.config.file_delete_delay_ms)
        for segment in cleaned:
            segment.change_suffix("")
        self._segments.replace(old, cleaned)

    # -- making durable ------------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Everything below survives a power loss."""
        return self.durability.recovery_point

    def is_flush_due(self, now_ms: int) -> bool:
        return self.durability.is_flush_due(self.config, self.log_start_offset, self.end_offset, now_ms)

    def begin_flush(self) -> Flush:
        """What has to be synced so that everything written until now survives a power loss."""
        return self.durability.begin_flush(self.end_offset)

    def end_flush(self, flush: Flush, now_ms: int = 0) -> None:
        """The flush succeeded: moves the recovery point."""
        self.durability.end_flush(flush, now_ms)

    def flush(self, now_ms: int = 0) -> None:
        """All three in one, for callers that may wait for the disk."""
        self.durability.flush(self.end_offset, now_ms)

    def close(self) -> None:
        """Leaves everything on disk as a clean start wants it. The log takes nothing after this.

        A log that was never written, or not since a clean start, is like that already: a broker of a thousand quiet
        partitions stops without thousands of syncs.
        """
        if not self.durability.is_untouched(self.end_offset) and self._state_on_disk != self._state():
            self.active.write_indexes(sync=True)
            self.note_unsynced([self.snapshots.path(self.end_offset)])
            self.snapshots.replace(self.end_offset, self.producers.snapshot())
            self.flush()
        for segment in self._segments:
            segment.close()
        self.is_closed = True

    def note_clean_start(self) -> None:
        """Recovery opened the log as a clean stop had left it."""
        self._state_on_disk = self._state()

    def _state(self) -> tuple[object, ...]:
        """What a clean stop writes down, in short: equal states need no second writing.

        An epoch in which nothing was written is not among it: every start of a broker begins one.
        """
        epochs = self.epochs.begun_before(self.end_offset)
        return self.end_offset, self.durability.truncation_count, tuple(self._segments.bases), epochs, self.size_bytes

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
        for segment in self._segments.items[:-1]:
            segment.release_all_if_idle()
