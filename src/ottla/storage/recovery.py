"""Opening a log: fast after a clean shutdown, by checking what may be torn after a crash.

What holds after a crash, and is relied on here: everything below the recovery point was synced, files and names; where
the recovery point is not known, nothing was. From the segment of the recovery point on nothing is trusted: every batch
is checked, the log ends before the first one that does not hold, and indexes, producer state and leader epochs are made
again from the batches. What compaction or deletion had begun is finished or undone by the names of the files.

Damage that no crash explains (a cut, zeroed or flipped file that had been synced) is mended where the data allows it:
indexes, snapshots and checkpoints are rebuilt. A sealed segment that does not hold is reported and its damaged part
is refused to readers; the rest of the log is served.
"""

from __future__ import annotations

import bisect
import logging
import os
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.config import LogConfig
from ottla.disk import TEMPORARY_SUFFIX, Disk, make_durable_directory
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition
from ottla.records.batch import BatchHeader
from ottla.storage import checkpoints
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.index import RELATIVE_OFFSET_MAX, AbortedTransaction
from ottla.storage.log import Log
from ottla.storage.producer_replay import marker_if_readable, replay_batch
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from ottla.storage.snapshots import SNAPSHOT_SUFFIX

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

ABORTED_CHECKED_MAX = 64  # entries of one transaction index that are compared with the log when it is opened

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log had to do."""

    recovered_segments: int = 0
    recovered_bytes: int = 0
    dropped_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, problem: str) -> None:
        logger.warning("%s", problem)
        self.problems.append(problem)


def open_log(
    disk: Disk,
    directory: str,
    name: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    is_clean: bool = False,
    recovery_point: int | None = 0,
    log_start_offset: int = 0,
    clean_offset: int = 0,
    rng: random.Random | None = None,
    report: RecoveryReport | None = None,
) -> Log:
    """Opens the log in `directory`, or starts it there.

    `is_clean`: the last owner closed it in order. `recovery_point`: None where nobody knows it any more. Below
    `clean_offset` it was compacted and may have gaps.
    """
    rng = random.Random() if rng is None else rng
    report = RecoveryReport() if report is None else report
    log = _Opening(
        disk, directory, name, config, now_ms, is_clean, recovery_point, log_start_offset, clean_offset, rng, report
    ).run()
    if is_clean or recovery_point is None or recovery_point <= log.end_offset:
        return log
    # What was flushed cannot be gone: the recovery point is of another time, and nothing below it was checked.
    report.note(f"{name} ends at {log.end_offset}: it was never flushed up to {recovery_point}; checked from its start")
    log.abandon()
    return _Opening(
        disk, directory, name, config, now_ms, is_clean, None, log_start_offset, clean_offset, rng, report
    ).run()


class _Opening:
    """The steps of opening one log, and what they know of it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        now_ms: int,
        is_clean: bool,
        recovery_point: int | None,
        log_start_offset: int,
        clean_offset: int,
        rng: random.Random,
        report: RecoveryReport,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.name = name
        self.config = config
        self.now_ms = now_ms
        self.is_clean = is_clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.clean_offset = clean_offset
        self.rng = rng
        self.report = report
        self.segments: list[Segment] = []
        self.epochs_lost = False
        self.has_gaps = False  # records are missing inside of a segment that was checked
        self.transaction_indexes_lost: list[Segment] = []
        self.mended: list[Segment] = []  # sealed segments with an index that was rebuilt

    def run(self) -> Log:
        make_durable_directory(self.disk, self.directory)
        finish_swaps(self.disk, self.directory)
        epochs = self._load_epochs()
        segments = self.segments = self._find_segments() or [self._create_first()]
        torn = self._torn_part(segments)
        sealed = segments[: len(segments) - len(torn)]
        for number, segment in enumerate(sealed[: None if torn else -1]):
            self._check_sealed(segment, next_base_offset=segments[number + 1].base_offset)
        log = self._log_of(sealed, torn, epochs)
        self._learn_epochs(log, sealed)
        log.rebuild_producers(rebuilt_aborted=self.transaction_indexes_lost)
        if torn:
            self._take_in(log, torn)
        self._settle(log)
        return log

    # -- finding -------------------------------------------------------------------------------------------------------

    def _load_epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs(self.disk, os.path.join(self.directory, checkpoints.LEADER_EPOCHS))
        try:
            epochs.load()
        except CorruptFileError as error:
            self.report.note(f"{error}; the leader epochs are read from the log again")
            self.epochs_lost = True
        return epochs

    def _find_segments(self) -> list[Segment]:
        names = set(self.disk.list_directory(self.directory))
        segments = []
        for name in sorted(names):
            matched = _SEGMENT_FILE.fullmatch(name)
            if matched is None or matched[2] == SNAPSHOT_SUFFIX:
                continue
            base_offset = int(matched[1])
            if matched[2] == LOG_SUFFIX:
                segments.append(self._segment(base_offset))
            elif file_name(base_offset, LOG_SUFFIX) not in names:
                self.disk.unlink(os.path.join(self.directory, name))  # an index whose segment is gone
        # Empty segments are left by a crash between a roll and its first batch; only the last one has a use. The first
        # one says where the log begins: without it, what a crash left behind it would be taken for the beginning.
        for segment in segments[1:-1]:
            if segment.size_bytes == 0:
                segment.unlink()
        return [segment for segment in segments if segment.size_bytes or segment in (segments[0], segments[-1])]

    def _segment(self, base_offset: int) -> Segment:
        path = os.path.join(self.directory, file_name(base_offset, LOG_SUFFIX))
        return Segment(
            self.disk,
            self.directory,
            base_offset,
            size_bytes=self.disk.size(path),
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self.now_ms,
        )

    def _create_first(self) -> Segment:
        self.is_clean = False  # there is nothing yet that a clean shutdown could have left
        return Segment.create(
            self.disk,
            self.directory,
            self.log_start_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self.now_ms,
        )

    def _torn_part(self, segments: list[Segment]) -> list[Segment]:
        """The segments, at the end, that have to be checked batch by batch."""
        if self.is_clean:
            return [] if self._try_activate(segments[-1]) else segments[-1:]
        recovery_point = self.recovery_point or 0
        first = sum(segment.base_offset <= recovery_point for segment in segments) - 1
        return segments[max(first, 0) :]

    def _try_activate(self, active: Segment) -> bool:
        """Makes the last segment of a clean log active; False if it is not as a clean shutdown leaves it."""
        try:
            if active.size_bytes and self._missing_indexes(active):
                raise CorruptFileError(active.path(LOG_SUFFIX), "has lost its index")
            active.become_active()
            self._check_transaction_index(active)
        except CorruptFileError as error:
            self.report.note(f"{error}; the segment is recovered although the shutdown was clean")
            return False
        return True

    def _missing_indexes(self, segment: Segment) -> bool:
        return not all(self.disk.exists(segment.path(suffix)) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    # -- sealed segments -----------------------------------------------------------------------------------------------

    def _check_sealed(self, segment: Segment, next_base_offset: int) -> None:
        """A sealed segment has sound indexes and ends with a whole batch, at most where the next one begins."""
        try:
            if self._missing_indexes(segment) or not self._has_sound_index_end(segment):
                self.report.note(f"{segment.path(INDEX_SUFFIX)}: does not match its segment; rebuilt")
                segment.rebuild_indexes()
                segment.seal()
                self.mended.append(segment)
            end_offset = segment.end_of_walk()
            if end_offset > next_base_offset:
                raise CorruptFileError(segment.path(LOG_SUFFIX), f"ends at {end_offset}, inside the next segment")
        except CorruptFileError as error:
            self._limit_reads(segment, error)
        try:
            self._check_transaction_index(segment)
        except CorruptFileError as error:
            self.report.note(f"{error}; the aborted transactions are read from the log again")
            segment.transaction_index.reset()
            self.transaction_indexes_lost.append(segment)
            self.mended.append(segment)

    def _check_transaction_index(self, segment: Segment) -> None:
        """An aborted transaction starts with a batch and ends with a marker of its producer; else CorruptFileError.

        Of very many, some are compared with the log, the last one among them: a clean start must stay a quick one.
        """
        index = segment.transaction_index
        count = index.entry_count
        for number in range(count - 1, -1, -max(1, -(-count // ABORTED_CHECKED_MAX))):
            aborted = index.entry(number)
            first = self._batch_from(self.segments, aborted.first_offset)
            may_be_gone = self.config.is_compacted or aborted.first_offset < self.segments[0].base_offset
            found = segment.find(aborted.last_offset)
            if (
                found is None
                or not found.header.is_control
                or (found.header.producer_id, found.header.last_offset) != (aborted.producer_id, aborted.last_offset)
                or aborted.last_stable_offset > aborted.last_offset + 1
                or not (may_be_gone or first is None or self._is_start(aborted, first))
            ):
                raise CorruptFileError(index.path, f"names a transaction that is none: {aborted}")

    @staticmethod
    def _is_start(aborted: AbortedTransaction, header: BatchHeader) -> bool:
        return (header.base_offset, header.producer_id) == (aborted.first_offset, aborted.producer_id)

    @staticmethod
    def _has_sound_index_end(segment: Segment) -> bool:
        """Whether the last entries of both indexes name batches of the segment, and nothing behind them is newer."""
        try:
            last, latest = segment.offset_index.last(), segment.time_index.last()
            if not segment.size_bytes:
                return segment.offset_index.entry_count == 0
            if segment.offset_index.entry_count and (
                not 0 < last.position < segment.size_bytes  # the first batch has no entry: it is zeros
                or segment.header_at(last.position).last_offset != last.offset
            ):
                return False
            if latest.timestamp >= 0:
                found = segment.find(latest.offset)
                if found is None or found.header.max_timestamp != latest.timestamp:
                    return False
            return all(header.max_timestamp <= latest.timestamp for _, header in segment.walk(last.position))
        except CorruptFileError:
            return False

    def _limit_reads(self, segment: Segment, error: CorruptFileError) -> None:
        """Finds how much of a damaged sealed segment is sound; readers get that much, and an error for the rest."""
        sound = 0
        try:
            for position, header in segment.walk(0):
                sound = position + header.size_bytes
        except CorruptFileError as first:
            error = first
        segment.damaged_from = sound
        self.report.note(
            f"{error}; the {segment.size_bytes - sound} bytes from {sound} on are refused to readers: "
            "restore the file from a replica, or delete its records"
        )

    # -- putting together ----------------------------------------------------------------------------------------------

    def _log_of(self, sealed: list[Segment], torn: list[Segment], epochs: LeaderEpochs) -> Log:
        """The log as far as it needs no check; where everything does, it is empty for now."""
        first_base_offset = (sealed or torn)[0].base_offset
        end_offset = torn[0].base_offset if torn else sealed[-1].become_active()
        return Log(
            self.disk,
            self.directory,
            self.name,
            self.config,
            segments=sealed,
            producers=ProducerStates(),
            epochs=epochs,
            log_start_offset=max(self.log_start_offset, first_base_offset),
            end_offset=end_offset,
            # Nothing of a clean log is unflushed; the torn part is flushed once it is taken in.
            recovery_point=end_offset,
            opened_ms=self.now_ms,
            rng=self.rng,
        )

    def _learn_epochs(self, log: Log, sealed: list[Segment]) -> None:
        """Epochs of the torn part are learned as it is taken in; those of the rest only if their file is lost."""
        log.epochs.truncate_from_end(log.end_offset)
        if not self.epochs_lost and not self._epochs_fit(log, sealed):
            self.report.note(f"{log.epochs.path}: does not fit the log; the leader epochs are read from it again")
            self.epochs_lost = True
        if self.epochs_lost:
            log.epochs.clear()
            for segment in sealed:
                if segment.damaged_from is None:
                    for _, header in segment.walk(0):
                        # The first one starts with the log, also where compaction took its first batches.
                        is_first = not log.epochs.entries
                        log.epochs.assign(
                            header.leader_epoch, sealed[0].base_offset if is_first else header.base_offset
                        )

    def _epochs_fit(self, log: Log, sealed: list[Segment]) -> bool:
        """Whether each epoch starts with a batch of its own, and first and last batch of the log are of known epochs.

        The file has no checksum. And a crash may bring back records whose epochs were forgotten with them.
        """
        last = self._batch_from(sealed, log.end_offset - 1)
        is_deleted = last is None or last.last_offset < log.log_start_offset
        if last is not None and not is_deleted and last.leader_epoch > log.epochs.latest:
            return False
        first = self._batch_from(sealed, log.log_start_offset)
        if first is not None and first.leader_epoch >= 0:
            first_offset = max(first.base_offset, log.log_start_offset)
            if log.epochs.epoch_at(first_offset) < 0:
                return False
        known = log.epochs.entries
        for number, entry in enumerate(known):
            started = self._batch_from(sealed, entry.start_offset)
            # The first epoch is said to start where the log does, even if it wrote what stood before.
            is_first = entry.start_offset <= log.log_start_offset
            before = None if is_first else self._batch_from(sealed, entry.start_offset - 1)
            # Compaction may have taken all records of an epoch: then the next batch is of a later one.
            end_offset = known[number + 1].start_offset if number + 1 < len(known) else log.end_offset
            if started is not None and started.base_offset < end_offset and started.leader_epoch != entry.epoch:
                return False
            if before is not None and before.end_offset <= entry.start_offset and before.leader_epoch >= entry.epoch:
                return False
        return True

    @staticmethod
    def _batch_from(sealed: list[Segment], offset: int) -> BatchHeader | None:
        """The first batch that ends at or past `offset`; None where there is none, or where it cannot be read."""
        first = max(0, bisect.bisect_right(sealed, offset, key=lambda segment: segment.base_offset) - 1)
        try:
            for segment in sealed[first:]:
                found = segment.find(offset)
                if found is not None:
                    return found.header
        except CorruptFileError:
            pass  # known and reported by now
        return None

    def _take_in(self, log: Log, torn: list[Segment]) -> None:
        """Checks the torn segments in order; the log ends before the first batch that does not hold."""
        for number, segment in enumerate(torn):
            hole = segment.base_offset - log.end_offset
            is_compacted = hole > 0 and self._may_be_compacted(segment)
            if number and hole and hole <= RELATIVE_OFFSET_MAX and not is_compacted:
                # We roll where the log ends and compaction leaves no gap between segments. So one is a loss, and an
                # overlap comes from a segment that was cut off.
                self._give_up(
                    torn[number:],
                    f"{log.name} goes on at offset {log.end_offset}, and the segment starts at {segment.base_offset}",
                )
                break
            if number:
                log.seal_active()
                log.end_offset = segment.base_offset
                log.take_snapshot(segment.base_offset)
            log.adopt(segment)
            replay = _Replay(log, segment)
            found = segment.recover(replay.visit)
            self.has_gaps = self.has_gaps or replay.has_gaps
            self.report.recovered_segments += 1
            self.report.recovered_bytes += found.valid_bytes
            self.report.dropped_bytes += found.dropped_bytes
            if found.problem is not None:
                self.report.note(
                    f"{segment.path(LOG_SUFFIX)}: {found.problem}; cut at byte {found.valid_bytes}, "
                    f"{found.dropped_bytes} bytes dropped"
                )
                self._give_up(torn[number + 1 :], "behind a batch that does not hold")
                break

    def _may_be_compacted(self, segment: Segment) -> bool:
        """Whether a gap before a segment may come from compaction by Apache Kafka, or by a release that left such.

        Where nobody knows what was flushed, what was flushed and compacted is checked as well. A topic that was once
        compacted has records missing inside of its segments, which no crash takes.
        """
        if segment.base_offset <= self.clean_offset:
            return True
        is_marked = self.config.is_compacted or self.has_gaps or _begins_with_gap(segment)
        return self.recovery_point is None and is_marked

    def _give_up(self, segments: list[Segment], reason: str) -> None:
        # From the end backwards, so that a crash in between leaves a log without a hole.
        for segment in reversed(segments):
            self.report.dropped_bytes += segment.size_bytes
            self.report.note(f"{segment.path(LOG_SUFFIX)}: dropped, {segment.size_bytes} bytes: {reason}")
            segment.unlink()

    def _settle(self, log: Log) -> None:
        """Brings everything else in line with where the log starts and ends, and makes what was mended durable."""
        if log.end_offset < log.log_start_offset:
            # The checkpoint never says more than was flushed, so it is of another time, and must not cost the log.
            self.report.note(f"{log.name} ends at {log.end_offset}: its start cannot be {log.log_start_offset}")
            log.log_start_offset = log.segments[0].base_offset
        log.epochs.truncate_from_end(log.end_offset)
        log.epochs.truncate_from_start(log.log_start_offset)
        if self.report.problems:
            log.durability.recovery_point = log.segments[0].base_offset
        elif not self.is_clean:
            log.durability.recovery_point = min(self.recovery_point or 0, log.end_offset)
        for segment in self.mended:
            segment.transaction_index.seal()
            log.note_unsynced(segment.index_paths())
        epochs_fit = log.epochs.pending(log.end_offset) is None
        if self.is_clean and not self.report.problems and not self.mended and epochs_fit:
            log.note_clean_start()  # all of it is on disk already, as the stop left it
        else:
            log.flush(self.now_ms)
        log.drop_stray_snapshots()


class _Replay:
    """Takes every batch that recovery finds sound into the log's own state."""

    __slots__ = ("_log", "_segment", "has_gaps")

    def __init__(self, log: Log, segment: Segment) -> None:
        self._log = log
        self._segment = segment
        self.has_gaps = False

    def visit(self, header: BatchHeader, data: Buffer, position: int) -> None:
        log = self._log
        self.has_gaps = self.has_gaps or _has_gap(header, log.end_offset)
        if header.leader_epoch > log.epochs.latest:
            is_first = not log.epochs.entries
            log.epochs.assign(header.leader_epoch, log.segments[0].base_offset if is_first else header.base_offset)
        replay_batch(log.producers, header, marker_if_readable(header, data, position), self._segment)
        log.end_offset = header.base_offset + header.last_offset_delta + 1


def _has_gap(header: BatchHeader, expected_offset: int) -> bool:
    """Whether records are missing in a batch or before it. Only compaction takes such."""
    return header.base_offset != expected_offset or header.record_count != header.last_offset_delta + 1


def _begins_with_gap(segment: Segment) -> bool:
    try:
        return segment.size_bytes > 0 and _has_gap(segment.header_at(0), segment.base_offset)
    except CorruptFileError:
        return False


# -- what deletion and compaction left behind --------------------------------------------------------------------------


def finish_swaps(disk: Disk, directory: str) -> None:
    """Finishes or undoes, by the names of the files, what `Log.replace_segments` and deletions had begun.

    `.deleted` was on its way out: out it goes. `.cleaned` was being written: it is dropped. `.swap` was written and
    synced: it takes the place of what it was made of, unless a `.cleaned` in front of it shows that its group was not
    renamed whole; then the originals are all still there, and it is dropped.
    """
    leftovers = [matched for name in disk.list_directory(directory) if (matched := _SEGMENT_FILE.fullmatch(name))]
    cleaned_logs = [int(m[1]) for m in leftovers if m[3] == CLEANED_SUFFIX and m[2] == LOG_SUFFIX]
    swapped_logs = sorted(int(m[1]) for m in leftovers if m[3] == SWAP_SUFFIX and m[2] == LOG_SUFFIX)
    first_cleaned = min(cleaned_logs, default=None)
    complete = [base for base in swapped_logs if first_cleaned is None or base < first_cleaned]
    for name in disk.list_directory(directory):
        if name.endswith(TEMPORARY_SUFFIX):  # of a `write_atomically` that did not come to its end
            disk.unlink(os.path.join(directory, name))
    for matched in leftovers:
        base_offset, state = int(matched[1]), matched[3]
        path = os.path.join(directory, matched[0])
        is_undone = state == SWAP_SUFFIX and base_offset not in complete
        if is_undone or state in (DELETED_SUFFIX, CLEANED_SUFFIX):
            disk.unlink(path)
    for base_offset in complete:
        _finish_swap(disk, directory, base_offset)


def _finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    swap = Segment(
        disk,
        directory,
        base_offset,
        size_bytes=disk.size(os.path.join(directory, file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)),
        index_interval_bytes=0,
        suffix=SWAP_SUFFIX,
    )
    end_offset = base_offset
    for _, header in swap.walk(0):
        end_offset = header.end_offset
    for name in disk.list_directory(directory):
        matched = _SEGMENT_FILE.fullmatch(name)
        if matched and matched[2] in SEGMENT_SUFFIXES and not matched[3]:
            old = int(matched[1])
            # Indexes at the base offset itself may be the new ones already; `change_suffix` brings the log file last.
            is_replaced = base_offset < old < end_offset or (old == base_offset and matched[2] == LOG_SUFFIX)
            if is_replaced:
                disk.unlink(os.path.join(directory, name))
    swap.change_suffix("")
    disk.sync_directory(directory)
