"""A compacted log in random histories, and a plain judge of what its readers must see.

Everything is drawn from a seed: sizes of segments, indexes, batches and of the key map (often so small that it is full
in the middle of a segment), keys, producers with sequences, transactions that interleave, commit and abort, tombstones
that expire, deleted records, cleanings that are interrupted anywhere, stops of every kind, and checkpoint files that
are lost, damaged or put back from an earlier time.

The judge keeps a list of what was written and reads the log as clients do, piece by piece, skipping what each piece
says was aborted. It knows no segments, no indexes and no cleaner.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.config import LogConfig
from ottla.disk import read_file
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.records import batch, control
from ottla.storage import checkpoints, cleaner
from ottla.storage.clean_mark import CLEAN_SHUTDOWN_FILE
from ottla.storage.cleaning_job import CleaningJob
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.testing.audit import audit, batches_of
from ottla.testing.disk import EVERY_FATE, DiskStopped, Fate, SimulatedDisk
from ottla.testing.log_upkeep import commit_cleaning, unlink_due, write_checkpoints

ROOT = "/data"
NAME = TopicPartition("model", 0)
START_MS = 1_700_000_000_000
STEPS = 120
MAP_SLOT_BYTES = 24
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (10, 11, 12)
CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.CLEANER_OFFSETS,
    CLEAN_SHUTDOWN_FILE,
    f"{NAME}/{checkpoints.LEADER_EPOCHS}",
)


class WrongError(AssertionError):
    """A reader saw what it must not, or did not see what it must."""


class Written(NamedTuple):
    """A record as it was sent."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Event:
    """One batch: records, or the end of a transaction."""

    offset: int
    end_offset: int
    producer_id: int = -1
    epoch: int = -1
    next_sequence: int = 0
    is_transactional: bool = False
    records: tuple[Written, ...] = ()
    commit: bool | None = None  # of a marker


class Judge:
    """What was written, in order; everything else is worked out from it each time."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def forget_from(self, end_offset: int) -> None:
        """What was not flushed is lost."""
        self.events = [event for event in self.events if event.end_offset <= end_offset]

    def forget_missing(self, start: int, there: set[int]) -> None:
        """The same for batches in between, from `start` on."""
        self.events = [event for event in self.events if event.end_offset <= start or event.offset in there]

    def last_of(self, producer_id: int) -> Event | None:
        return next((event for event in reversed(self.events) if event.producer_id == producer_id), None)

    def is_open(self, producer_id: int) -> bool:
        last = self.last_of(producer_id)
        return last is not None and last.is_transactional and last.commit is None

    def decided(self, first_offset: int, end_offset: int) -> tuple[list[Written], set[int], int]:
        """(committed records, offsets of aborted ones, the first offset that is not decided).

        A transaction of which nothing is left from `first_offset` on needs no decision.
        """
        open_: dict[int, list[Event]] = {}
        committed: list[Written] = []
        aborted: set[int] = set()
        for event in self.events:
            if event.commit is None and event.is_transactional:
                open_.setdefault(event.producer_id, []).append(event)
            elif event.commit is None:
                committed += event.records
            else:
                for ended in open_.pop(event.producer_id, []):
                    if event.commit:
                        committed += ended.records
                    else:
                        aborted.update(record.offset for record in ended.records)
        undecided = [events for events in open_.values() if events[-1].offset >= first_offset]
        stable = min((events[0].offset for events in undecided), default=end_offset)
        return sorted(committed), aborted, stable


class History:
    """One log, driven by random numbers."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.keys = rng.randint(1, 12)
        self.map_keys = rng.choice([1, 2, 3, 4, 6, 1000])
        self.records_max = rng.choice([1, 2, 4])
        self.config = LogConfig(
            segment_bytes=rng.choice([200, 400, 800, 3000]),
            index_interval_bytes=rng.choice([0, 80, 300]),
            segment_index_bytes=rng.choice([36, 60, 200]),
            cleanup_policy=("compact",),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=rng.choice([0, 100, 5000]),
            file_delete_delay_ms=rng.choice([0, 500]),
            max_message_bytes=1000,
        )
        self.disk = SimulatedDisk()
        self.judge = Judge()
        self.now_ms = START_MS
        self.epoch = 0
        self.durable_end = 0
        self.found_end = 0  # after the last stop
        self.log_start = self.durable_start = 0
        self.has_start_gone_back = False
        self.cleaned_end = 0  # what lies behind was never in the reach of a cleaning
        self.earlier: dict[str, bytes] = {}  # copies of checkpoint files
        self.story: list[str] = []
        self._open()

    def play(self) -> None:
        rng = self.rng
        steps = (
            [self.append] * rng.randint(1, 10)
            + [self.append_in_transaction] * rng.randint(1, 10)
            + [self.end_transaction] * rng.randint(3, 15)
            + [self.roll] * rng.randint(0, 2)
            + [self.clean] * rng.randint(1, 3)
            + [self.delete_records, self.take_copies, self.checkpoint, self.wait, self.stop, self.unlink]
        )
        try:
            for _ in range(STEPS):
                step = rng.choice(steps)
                self.story.append(step.__name__)
                step()
                if step not in (self.append, self.append_in_transaction, self.end_transaction):
                    self.look()
        except Exception as error:
            error.add_note(" → ".join(self.story))
            raise

    # -- writing -------------------------------------------------------------------------------------------------------

    def _records(self) -> list[tuple[bytes, bytes | None]]:
        rng = self.rng
        return [
            (b"k%d" % rng.randrange(self.keys), None if rng.random() < 0.25 else b"%d" % rng.getrandbits(40))
            for _ in range(rng.randint(1, self.records_max))
        ]

    def _append(self, producer_id: int = -1, *, is_transactional: bool = False) -> None:
        self.now_ms += self.rng.randint(0, 20)
        records = self._records()
        epoch, sequence = self._next_of(producer_id)
        data = batch.build(
            [key for key, _ in records],
            [value for _, value in records],
            self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        appended = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        first = appended.first_offset
        self.judge.events.append(
            Event(
                first,
                appended.last_offset + 1,
                producer_id,
                epoch,
                sequence + len(records),
                is_transactional,
                tuple(Written(first + number, *record) for number, record in enumerate(records)),
            )
        )

    def _next_of(self, producer_id: int) -> tuple[int, int]:
        """The epoch and the sequence with which a producer goes on."""
        if producer_id < 0:
            return -1, -1
        last = self.judge.last_of(producer_id)
        return (0, 0) if last is None else (last.epoch, last.next_sequence)

    def append(self) -> None:
        self._append(self.rng.choice((-1, -1, *IDEMPOTENT)))

    def append_in_transaction(self) -> None:
        self._append(self.rng.choice(TRANSACTIONAL), is_transactional=True)

    def end_transaction(self) -> None:
        """Now and then with a raised epoch (KIP-890), or without any data here."""
        open_ = [producer_id for producer_id in TRANSACTIONAL if self.judge.is_open(producer_id)]
        if not open_ and self.rng.random() < 0.8:
            return
        producer_id = self.rng.choice(open_ or TRANSACTIONAL)
        marker = control.EndTransactionMarker(commit=self.rng.random() < 0.5, coordinator_epoch=1)
        epoch, sequence = self._next_of(producer_id)
        raised = self.rng.randint(0, 1)
        appended = self.log.append_marker(
            producer_id, epoch + raised, marker, leader_epoch=self.epoch, now_ms=self.now_ms
        )
        self.judge.events.append(
            Event(
                appended.first_offset,
                appended.last_offset + 1,
                producer_id,
                epoch + raised,
                0 if raised else sequence,
                is_transactional=True,
                commit=marker.commit,
            )
        )

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.durable_end = self.log.end_offset

    def checkpoint(self) -> None:
        write_checkpoints(self.logs)
        self.durable_start = min(self.log_start, self.log.recovery_point)

    def wait(self) -> None:
        self.now_ms += self.rng.choice([50, 200, 10_000])

    def unlink(self) -> None:
        self.now_ms += 1000
        unlink_due(self.logs, self.now_ms)

    def delete_records(self) -> None:
        _, _, stable = self.judge.decided(0, self.log.end_offset)
        self.log_start = self.rng.randint(self.log_start, max(self.log_start, stable))
        self.log.advance_log_start(self.log_start)
        if self.rng.random() < 0.5:
            self.log.delete_expired(self.now_ms, self.log.end_offset)

    def clean(self) -> None:
        self.log.roll(self.now_ms)
        self.flush()
        self.log.producers.passed_high_watermark(self.log.end_offset)
        job = cleaner.plan(
            self.log,
            self.logs.clean_offset(NAME),
            high_watermark=self.log.end_offset,
            now_ms=self.now_ms,
            dedupe_buffer_bytes=(self.map_keys + self.map_keys // 9 + 1) * MAP_SLOT_BYTES,
        )
        if job is None:
            return
        self.cleaned_end = max(self.cleaned_end, job.end_offset)
        if self.rng.random() < 0.2:
            self._clean_until_a_stop(job)
        else:
            self._clean(job)

    def _clean(self, job: CleaningJob) -> None:
        try:
            result = cleaner.run_job(job, self.disk)
        except OttlaError as error:
            if self.map_keys >= self.records_max or "do not fit" not in str(error):
                raise
            return
        if not commit_cleaning(self.logs, NAME, result, now_ms=self.now_ms):
            raise WrongError("a cleaning of a log that nobody cut was not put in place")
        self._check_keys_are_single(result.end_offset)

    def _clean_until_a_stop(self, job: CleaningJob) -> None:
        self.disk.stop_at(len(self.disk.operations) + self.rng.randint(0, 40))
        try:
            self._clean(job)
        except DiskStopped:
            self._come_back()
        else:
            self.disk.stop()
            self._come_back()

    # -- stops ---------------------------------------------------------------------------------------------------------

    def take_copies(self) -> None:
        for name in CHECKPOINTS:
            if self.disk.exists(os.path.join(ROOT, name)):
                self.earlier[name] = read_file(self.disk, os.path.join(ROOT, name))

    def stop(self) -> None:
        if self.rng.random() < 0.3:
            self.logs.close()
            self.durable_end, self.durable_start = self.log.end_offset, self.log_start
            self.story.append("cleanly")
            self._reopen(is_sound=self._disturb())
        else:
            self._come_back()

    def _come_back(self) -> None:
        """From a kill, which loses nothing, or from a loss of power."""
        if self.rng.random() < 0.5:
            self.disk = self.disk.kill()
            self.durable_end, self.durable_start = self.judge_end, self.log_start
            self.story.append("killed")
            is_sound = self._disturb()
            self.durable_start = 0  # known to the process alone
            self._reopen(is_sound=is_sound)
        else:
            fates = self.rng.choice([(Fate.DROPPED,), (Fate.KEPT,), EVERY_FATE])
            self.disk = self.disk.crash(self.rng.getrandbits(32), fates)
            self.story.append(f"lost power {fates}")
            self._reopen(is_sound=self._disturb())

    @property
    def judge_end(self) -> int:
        return max(self.found_end, self.judge.events[-1].end_offset if self.judge.events else 0)

    def _disturb(self) -> bool:
        """Something happens to a checkpoint file, or nothing."""
        name = self.rng.choice(CHECKPOINTS)
        path = os.path.join(ROOT, name)
        what = self.rng.choice(["nothing", "lost", "damaged", "earlier"])
        if what == "nothing" or (what == "earlier" and name not in self.earlier):
            return True
        if what == "lost":
            self.disk.unlink(path)
        else:
            content = self.earlier.get(name, b"")
            if what == "damaged":
                content = read_file(self.disk, path) if self.disk.exists(path) else content
                content = damaged(content, self.rng)
            file = self.disk.open(path, create=True, writable=True)
            file.truncate(0)
            file.write(0, content)
            file.sync()
        self.story.append(f"{name} {what}")
        self.disk.sync_directory(os.path.dirname(path))
        return False

    def _reopen(self, *, is_sound: bool) -> None:
        self._open()
        log = self.log
        if not self.durable_end <= log.end_offset <= self.judge_end:
            raise WrongError(f"ends at {log.end_offset}: flushed {self.durable_end}, written {self.judge_end}")
        lowest = self.durable_start if is_sound else 0
        if not lowest <= log.log_start_offset <= self.log_start:
            raise WrongError(f"starts at {log.log_start_offset}: durable {lowest}, asked for {self.log_start}")
        self.has_start_gone_back = self.has_start_gone_back or log.log_start_offset < self.log_start
        self.judge.forget_from(log.end_offset)
        if not is_sound:
            # Where nobody knows what was flushed, a gap is not taken for the end: compaction may have made it.
            first_offset = log.segments[0].base_offset
            there = {header.base_offset for header, _ in batches_of(log, first_offset)}
            self.judge.forget_missing(max(self.durable_end, first_offset), there)
        self.log_start = self.durable_start = log.log_start_offset
        self.durable_end = self.found_end = log.end_offset
        self.epoch += 1

    def _open(self) -> None:
        self.logs = Logs(self.disk, [ROOT], lambda topic: self.config, rng=random.Random(1))
        self.logs.open(self.now_ms)
        self.log: Log = self.logs.create(NAME, now_ms=self.now_ms)

    # -- looking -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Both kinds of readers read everything, and one of each from somewhere in the middle."""
        log = self.log
        audit(log, may_have_gaps=True)
        log.producers.passed_high_watermark(log.end_offset)
        committed, aborted, stable = self.judge.decided(log.segments[0].base_offset, log.end_offset)
        if log.last_stable_offset(log.end_offset) != max(stable, log.log_start_offset):
            raise WrongError(f"stable up to {log.last_stable_offset(log.end_offset)}, in fact {stable}")
        for start in {self.log_start, self.rng.randint(self.log_start, max(self.log_start, stable))}:
            self._check_committed(start, committed, stable)
        self._check_uncommitted(aborted, stable)

    def _check_committed(self, start: int, committed: list[Written], stable: int) -> None:
        """A read_committed reader sees committed records only, and the last one of each key."""
        seen = [record for record in self._read(start, stable, is_committed=True) if record.offset >= start]
        expected = {record.offset: record for record in committed if start <= record.offset < stable}
        for record in seen:
            if expected.get(record.offset) != record:
                raise WrongError(f"a read_committed reader got {record}, which was never committed")
        if table_of(seen) != table_of(expected.values()):
            raise WrongError(
                f"from {start} a read_committed reader has {table_of(seen)} instead of {table_of(expected.values())}"
            )
        offsets = {record.offset for record in seen}
        for record in expected.values():
            if record.offset >= self.cleaned_end and record.offset not in offsets:
                raise WrongError(f"{record} is gone and was never cleaned")

    def _check_uncommitted(self, aborted: set[int], stable: int) -> None:
        """A read_uncommitted reader sees what was sent and nothing else, and all of what is not decided yet."""
        log = self.log
        sent = {record.offset: record for event in self.judge.events for record in event.records}
        seen = {record.offset: record for record in self._read(self.log_start, log.end_offset, is_committed=False)}
        for record in seen.values():
            if sent.get(record.offset) != record:
                raise WrongError(f"a reader got {record}, which was never sent")
        for record in sent.values():
            is_due = record.offset >= max(stable, self.log_start)
            if is_due and record.offset not in aborted and record.offset not in seen:
                raise WrongError(f"{record} is gone and was not decided")

    def _read(self, start: int, upper: int, *, is_committed: bool) -> Iterator[Written]:
        """Reads as a client does: a piece at a time, each with the transactions of its own that were aborted."""
        offset = start
        while offset < upper:
            piece = self.log.read(offset, self.rng.randint(1, 2000), upper_offset=upper)
            if piece is None:
                return
            aborted = self.log.aborted_transactions(offset, piece.upper_offset) if is_committed else []
            waiting = sorted((entry.first_offset, entry.producer_id) for entry in aborted)
            skipped: set[int] = set()
            content = piece.records.read()
            scanned = batch.scan(content)
            for position, header in zip(scanned.positions, scanned.headers, strict=True):
                while waiting and waiting[0][0] <= header.last_offset:
                    skipped.add(waiting.pop(0)[1])
                data = content[position : position + header.size_bytes]
                if header.is_control:
                    marker = control.read_marker(data) if header.record_count else None
                    if marker is not None and not marker.commit:
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    for record in batch.iterate(data):
                        if offset <= record.offset < upper:
                            assert record.key is not None
                            yield Written(record.offset, record.key, record.value)
            if not scanned.headers:
                raise WrongError(f"a read at {offset} has no whole batch")
            offset = scanned.headers[-1].end_offset

    def _check_keys_are_single(self, end_offset: int) -> None:
        _, _, stable = self.judge.decided(0, self.log.end_offset)
        if self.has_start_gone_back:
            return  # what was deleted is there again, and was not cleaned
        keys = [record.key for record in self._read(self.log_start, min(end_offset, stable), is_committed=True)]
        if len(keys) != len(set(keys)):
            raise WrongError(f"a key was left twice below {end_offset}")


def table_of(records: object) -> dict[bytes, bytes]:
    """What a reader that keeps the last value of each key ends up with."""
    table: dict[bytes, bytes] = {}
    for record in records:  # type: ignore[attr-defined]
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


def damaged(content: bytes, rng: random.Random) -> bytes:
    """With another digit somewhere, which no format notices, or cut, or of zeros, or empty."""
    kind = rng.choice(["digit", "digit", "cut", "zeros", "empty"])
    digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    if kind == "digit" and digits:
        changed = bytearray(content)
        changed[rng.choice(digits)] = ord(rng.choice("0123456789"))
        return bytes(changed)
    if kind == "cut" and content:
        return content[: rng.randrange(len(content))]
    return bytes(len(content)) if kind == "zeros" else b""
