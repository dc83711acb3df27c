"""The disk stops at every operation of a history; what recovery finds is compared with what was promised.

A `Story` is a broker's log directory with one partition and a ledger beside it. The ledger knows what the log *may*
hold after a crash (what was appended, on each side of a cut that is not durable yet) and what it *must* hold (what a
completed flush promised). Each history below is played once to count its operations, and once more for each of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from ottla.config import LogConfig
from ottla.disk import read_file
from ottla.ids import TopicPartition
from ottla.records import batch, control
from ottla.records.batch import Compression
from ottla.storage import checkpoints, cleaner, retention
from ottla.storage.clean_mark import CLEAN_SHUTDOWN_FILE
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.storage.snapshots import SNAPSHOT_SUFFIX
from ottla.testing.audit import audit, check_producers, replay
from ottla.testing.disk import DiskStopped, Fate, SimulatedDisk
from ottla.testing.log_upkeep import commit_cleaning, unlink_due, write_checkpoints

SEEDS = int(os.environ.get("OTTLA_CRASH_SEEDS", "1"))
ROOT = "/data"
NAME = TopicPartition("story", 0)
START_MS = 1_700_000_000_000

CRASHES: list[tuple[int, tuple[Fate, ...]]] = [
    (0, (Fate.DROPPED,)),
    (0, (Fate.KEPT,)),
    *((seed, (Fate.DROPPED, Fate.KEPT, Fate.CUT)) for seed in range(1, SEEDS + 1)),
    *((seed, tuple(Fate)) for seed in range(1, SEEDS + 1)),
]


@dataclass
class Ledger:
    """What the log may and what it must hold."""

    exists: bool = False
    # What was appended; the last list is what the log holds now. The others were cut, and a crash may undo the cut.
    branches: list[list[bytes]] = field(default_factory=lambda: [[]])
    durable_end: int = 0
    lowest_start: int = 0
    highest_start: int = 0
    compacted_end: int = 0

    @property
    def now(self) -> list[bytes]:
        return self.branches[-1]


class Story:
    """One partition in one log directory, driven step by step."""

    def __init__(self, disk: SimulatedDisk, **config: object) -> None:
        self.disk = disk
        self.config = LogConfig(
            **{"segment_bytes": 2000, "index_interval_bytes": 200, "file_delete_delay_ms": 1000, **config}  # type: ignore[arg-type]
        )
        self.ledger = Ledger()
        self.now_ms = START_MS
        self.epoch = 0
        self.rng = random.Random(7)
        self.keys = 5
        self.sequences: dict[int, int] = {}
        self.copies: dict[str, list[bytes]] = {}  # of checkpoint files, from earlier times

    def copy_checkpoints(self) -> None:
        for path in self.disk.walk(ROOT):
            if is_checkpoint(path):
                self.copies.setdefault(path, []).append(read_file(self.disk, path))

    def open(self) -> None:
        self.logs = Logs(self.disk, [ROOT], lambda topic: self.config, rng=random.Random(1))
        self.logs.open(self.now_ms)
        self.log = self.logs.create(NAME, now_ms=self.now_ms)
        self.ledger.exists = True

    # -- steps ---------------------------------------------------------------------------------------------------------

    def batch(self, count: int = 3, **options: object) -> bytearray:
        self.now_ms += 10
        values = [self.rng.randbytes(self.rng.randint(5, 60)) for _ in range(count)]
        keys = [b"key-%d" % self.rng.randint(0, self.keys) for _ in range(count)]
        timestamps = [self.now_ms + self.rng.randint(-50, 5) for _ in range(count)]
        return batch.build(keys, values, timestamps, **options)  # type: ignore[arg-type]

    def append(self, count: int = 3, **options: object) -> None:
        data = self.batch(count, **options)
        expected = bytearray(data)
        batch.stamp(expected, self.log.end_offset, self.epoch)
        self.ledger.now.append(bytes(expected))
        self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)

    def produce(self, producer_id: int, count: int = 2, *, epoch: int = 0, is_transactional: bool = False) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        self.append(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        marker = control.EndTransactionMarker(commit, coordinator_epoch=1)
        data = control.build_marker(
            producer_id, epoch, marker, self.now_ms, base_offset=self.log.end_offset, leader_epoch=self.epoch
        )
        self.ledger.now.append(bytes(data))
        self.log.append_marker(producer_id, epoch, marker, leader_epoch=self.epoch, now_ms=self.now_ms)

    def follow(self, *batches: bytes | bytearray) -> None:
        """Batches of a leader, offsets and epochs stamped in order."""
        end_offset, stamped = self.log.end_offset, []
        for data in batches:
            copy = bytearray(data)
            batch.stamp(copy, end_offset, self.epoch)
            end_offset = batch.read_header(copy).end_offset
            stamped.append(bytes(copy))
        self.ledger.now.extend(stamped)
        self.log.append_as_follower(b"".join(stamped), now_ms=self.now_ms)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def flush(self, between: Callable[[], object] = lambda: None) -> None:
        flush = self.log.begin_flush()
        between()
        flush.run()
        self.ledger.durable_end = max(self.ledger.durable_end, flush.end_offset)
        self.ledger.branches = [self.ledger.now]
        self.log.end_flush(flush, self.now_ms)

    def checkpoint(self) -> None:
        self.copy_checkpoints()
        start = min(self.log.log_start_offset, self.log.recovery_point)
        write_checkpoints(self.logs)
        self.ledger.lowest_start = start

    def truncate(self, offset: int) -> None:
        kept = [data for data in self.ledger.now if batch.read_header(data).end_offset <= offset]
        end_offset = batch.read_header(kept[-1]).end_offset if kept else 0
        self.ledger.branches.append(kept)
        self.ledger.durable_end = min(self.ledger.durable_end, end_offset)
        self.sequences = {}
        self.copy_checkpoints()
        self.logs.truncate(NAME, offset, now_ms=self.now_ms)
        self.ledger.branches = [kept]

    def start_over(self, offset: int) -> None:
        """A follower that is too far behind or ahead."""
        ledger = self.ledger
        ledger.branches.append([])
        ledger.durable_end = 0
        ledger.lowest_start, ledger.highest_start = min(ledger.lowest_start, offset), max(ledger.highest_start, offset)
        self.sequences = {}
        self.copy_checkpoints()
        self.log.truncate_fully(offset, now_ms=self.now_ms)
        write_checkpoints(self.logs)
        ledger.branches = [[]]
        ledger.durable_end = ledger.lowest_start = ledger.highest_start = offset

    def retain(self) -> None:
        log = self.log
        count = retention.expired_count(
            [retention.SegmentAge.of(segment) for segment in log.segments],
            self.config,
            now_ms=self.now_ms,
            log_start_offset=log.log_start_offset,
            high_watermark=log.end_offset,
            end_offset=log.end_offset,
        )
        bases = [*(segment.base_offset for segment in log.segments), log.end_offset]
        self.ledger.highest_start = max(self.ledger.highest_start, bases[count])
        assert log.delete_expired(self.now_ms, log.end_offset) == count > 0

    def unlink_due(self) -> None:
        self.now_ms += 2000
        unlink_due(self.logs, self.now_ms)

    def advance_start(self, offset: int) -> None:
        self.ledger.highest_start = offset
        self.log.advance_log_start(offset)

    def compact(self) -> None:
        self.log.producers.passed_high_watermark(self.log.end_offset)
        job = cleaner.plan(self.log, 0, high_watermark=self.log.end_offset, now_ms=self.now_ms)
        assert job is not None
        self.ledger.compacted_end = job.end_offset
        result = cleaner.run_job(job, self.disk)
        assert commit_cleaning(self.logs, NAME, result, now_ms=self.now_ms)

    def restart(self) -> None:
        end_offset = self.log.end_offset
        self.logs.close()
        self.copy_checkpoints()
        self.ledger.durable_end = end_offset
        self.ledger.branches = [self.ledger.now]
        self.open()
        assert not self.logs.reports[NAME].problems


# -- what must hold ----------------------------------------------------------------------------------------------------


def recover(disk: SimulatedDisk, story: Story) -> tuple[Logs, Log | None]:
    logs = Logs(disk, [ROOT], lambda topic: story.config, rng=random.Random(1))
    logs.open(story.now_ms)
    assert all(directory.is_online for directory in logs.directories)
    assert not logs.unreadable
    return logs, logs.get(NAME)


def check_recovered(log: Log, ledger: Ledger, disturbed: str = "") -> None:
    """`disturbed` is the checkpoint file to which something happened: that costs no record."""
    # Where nobody knows what was flushed, a gap is not taken for the end of a log that may be compacted.
    is_unsure = log.config.is_compacted and disturbed.endswith((checkpoints.RECOVERY_POINTS, checkpoints.CHECKSUMS))
    found = audit(log, may_have_gaps=ledger.compacted_end > 0 or is_unsure)
    assert disturbed or ledger.lowest_start <= log.log_start_offset
    assert log.log_start_offset <= ledger.highest_start
    if ledger.compacted_end or is_unsure:
        check_compacted(log, found, ledger, may_have_holes=is_unsure)
        return
    matching = [branch for branch in ledger.branches if holds(log, found, branch)]
    assert matching, f"the log is no prefix of what was appended: {describe(found)}, {ledger_text(ledger)}"
    assert log.end_offset >= ledger.durable_end, f"ends at {log.end_offset}, flushed up to {ledger.durable_end}"
    if ledger.durable_end >= log.segments[0].base_offset and not disturbed.endswith(SNAPSHOT_SUFFIX):
        # Snapshots are flushed with the log, so even what deleted records said of their producers is known.
        whole = [data for data in matching[0] if batch.read_header(data).end_offset <= log.end_offset]
        check_producers(log.producers, replay((batch.read_header(data), data) for data in whole).producers)


def holds(log: Log, found: list[bytes], branch: list[bytes]) -> bool:
    """Whether the log is `branch`, from some segment on and up to some batch."""
    first_offset = log.segments[0].base_offset
    kept = [data for data in branch if first_offset <= batch.read_header(data).base_offset < log.end_offset]
    ends = {first_offset, *(batch.read_header(data).end_offset for data in branch)}
    return found == kept and log.end_offset in ends


def check_compacted(log: Log, found: list[bytes], ledger: Ledger, *, may_have_holes: bool) -> None:
    """Every record is one that was appended, every last value of a key is there, and the dirty end is untouched."""
    records = {record.offset: record for data in ledger.now for record in batch.iterate(data)}
    kept = {record.offset: record for data in found for record in batch.iterate(data)}
    assert all(records[offset] == record for offset, record in kept.items())
    last = {record.key: record.offset for record in records.values() if is_data(ledger, record.offset)}
    missing = [offset for offset in last.values() if offset not in kept]
    assert all(offset >= ledger.durable_end for offset in missing), f"compaction lost {missing}"
    dirty = [data for data in found if batch.read_header(data).base_offset >= ledger.compacted_end]
    expected = [data for data in ledger.now if batch.read_header(data).base_offset >= ledger.compacted_end]
    assert dirty == ([data for data in expected if data in dirty] if may_have_holes else expected[: len(dirty)])
    assert log.end_offset >= ledger.durable_end


def is_data(ledger: Ledger, offset: int) -> bool:
    """Whether this is a record of a client, and not of a transaction that was aborted."""
    aborted = replay((batch.read_header(data), data) for data in ledger.now).aborted
    for data in ledger.now:
        header = batch.read_header(data)
        if header.base_offset <= offset < header.end_offset:
            is_aborted = header.is_transactional and any(
                entry.producer_id == header.producer_id and entry.first_offset <= offset <= entry.last_offset
                for entry in aborted
            )
            return not header.is_control and not is_aborted
    return False


def is_checkpoint(path: str) -> bool:
    return path.endswith(("-checkpoint", SNAPSHOT_SUFFIX, CLEAN_SHUTDOWN_FILE, checkpoints.CHECKSUMS))


def disturb(disk: SimulatedDisk, story: Story, rng: random.Random) -> str:
    """Loses or damages a checkpoint file, or brings it back from an earlier time; which one."""
    path = rng.choice(sorted({*story.copies, *(path for path in disk.walk(ROOT) if is_checkpoint(path))}))
    content = read_file(disk, path) if disk.exists(path) else b""
    kind = rng.choice(["lost", "earlier", "earliest", "digit", "cut", "zeros"])
    if not disk.is_directory(os.path.dirname(path)):
        return ""
    if kind == "lost":
        disk.unlink(path)
    elif kind in ("earlier", "earliest") and path in story.copies:
        content = story.copies[path][0] if kind == "earliest" else rng.choice(story.copies[path])
    elif kind == "digit" and (digits := [at for at, byte in enumerate(content) if chr(byte).isdigit()]):
        at = rng.choice(digits)
        content = content[:at] + rng.choice("0123456789").encode() + content[at + 1 :]
    elif kind == "cut":
        content = content[: rng.randrange(len(content) + 1)]
    else:
        content = bytes(len(content))
    if kind != "lost":
        file = disk.open(path, create=True, writable=True)
        file.truncate(0)
        file.write(0, content)
        file.sync()
    disk.sync_directory(os.path.dirname(path))
    return path


def describe(batches: list[bytes]) -> list[tuple[int, int, int]]:
    headers = [batch.read_header(data) for data in batches]
    return [(header.base_offset, header.end_offset, header.leader_epoch) for header in headers]


def ledger_text(ledger: Ledger) -> list[list[tuple[int, int, int]]]:
    return [describe(branch) for branch in ledger.branches]


def observe(log: Log) -> tuple[object, ...]:
    """Everything that two recoveries of the same platter must agree on."""
    return (
        b"".join(segment.file.read(0, segment.size_bytes) for segment in log.segments),
        log.log_start_offset,
        log.end_offset,
        [entry for entry in log.epochs.entries if entry.start_offset < log.end_offset],
        log.producers.snapshot(),
        log.aborted_transactions(log.log_start_offset, log.end_offset),
    )


def check_goes_on(logs: Logs, log: Log, ledger: Ledger) -> None:
    """Appends, rolls, flushes, and is whole after one more clean stop."""
    may_have_gaps = ledger.compacted_end > 0
    for _ in range(3):
        log.append(batch.build([b"k"], [b"after"], START_MS), leader_epoch=log.epochs.latest + 1, now_ms=START_MS)
        log.roll(START_MS)
    audit(log, may_have_gaps=may_have_gaps)
    before = observe(log)
    logs.close()
    again = Logs(log.disk, [ROOT], lambda topic: log.config)
    again.open(START_MS)
    reopened = again.get(NAME)
    assert reopened is not None
    assert not again.reports[NAME].problems
    assert observe(reopened) == before
    audit(reopened, may_have_gaps=may_have_gaps)


# -- histories ---------------------------------------------------------------------------------------------------------


def appends_and_rolls(story: Story) -> None:
    """Every codec, batches of one and of many, segments that fill by themselves, flushes now and then."""
    for number, codec in enumerate(Compression):
        story.append(1 + number, compression=codec)
        story.append(4)
        if number % 2:
            story.flush()
            story.checkpoint()
    for _ in range(12):
        story.append(4)
    story.flush()
    story.append(2)
    story.checkpoint()
    story.append(3)


def flushes_with_appends_in_between(story: Story) -> None:
    for round_ in range(4):
        story.append(5)
        story.flush(between=lambda: story.append(2))
        if round_ % 2:
            story.checkpoint()
        story.flush(between=lambda: (story.append(1), story.roll()))  # type: ignore[func-returns-value]
        story.flush()
        story.roll()
        story.flush()
        story.checkpoint()
    story.append(2)
    story.flush(between=story.roll)
    story.checkpoint()
    story.append(2)


def producers_and_transactions(story: Story) -> None:
    for round_ in range(3):
        story.produce(1)
        story.produce(10, is_transactional=True)
        story.produce(11, is_transactional=True)
        story.produce(10, 3, is_transactional=True)
        story.end_transaction(10, commit=round_ % 2 == 0)
        if round_ == 1:
            story.roll()
            story.flush()
            story.checkpoint()
        story.produce(1, 4)
        story.end_transaction(11, commit=False)
        if round_ == 0:
            story.flush()
            story.checkpoint()
    story.produce(12, is_transactional=True)
    story.roll()
    story.sequences[1] = 0
    story.produce(1, epoch=1)
    story.end_transaction(12, commit=False)


def clean_restarts(story: Story) -> None:
    story.produce(1)
    story.produce(10, is_transactional=True)
    story.append(3)
    story.restart()
    story.produce(1)
    story.end_transaction(10, commit=False)
    story.roll()
    story.append(2)
    story.restart()
    story.restart()
    story.produce(1)
    story.append(1)


def follower_truncations(story: Story) -> None:
    for _ in range(5):
        story.follow(story.batch(4), story.batch(2))
        story.follow(story.batch(4), story.batch(2), story.batch(1))
    story.flush()
    story.checkpoint()
    story.follow(story.batch(1))
    story.epoch = 1
    story.truncate(story.log.end_offset - 3)
    story.follow(story.batch(4), story.batch(3))
    story.truncate(story.log.active.base_offset)
    story.epoch = 3
    story.follow(story.batch(3))
    story.truncate(story.log.segments[1].base_offset + 4)
    story.epoch = 4
    story.follow(story.batch(9), story.batch(12), story.batch(12))
    story.follow(story.batch(9), story.batch(12), story.batch(12))
    story.flush()
    story.follow(story.batch(1))
    story.checkpoint()
    story.truncate(0)
    story.epoch = 5
    story.follow(story.batch(2))


def truncation_with_producers(story: Story) -> None:
    for _ in range(4):
        story.produce(1, 4)
        story.produce(10, is_transactional=True)
        story.end_transaction(10, commit=False)
        story.roll()
    story.flush()
    story.checkpoint()
    story.epoch = 1
    story.truncate(story.log.segments[2].base_offset + 2)
    story.produce(2, 4)
    story.produce(11, is_transactional=True)
    story.roll()
    story.produce(2, 4)
    story.end_transaction(11, commit=False)
    story.flush()
    story.restart()
    story.truncate(story.log.segments[1].base_offset)
    story.produce(3)


def starting_over(story: Story) -> None:
    for _ in range(10):
        story.produce(1, 4)
    story.flush()
    story.checkpoint()
    story.epoch = 1
    story.start_over(1000)
    story.produce(2, 4)
    story.flush()
    story.roll()
    story.produce(2, 4)
    story.epoch = 2
    story.start_over(20)
    story.produce(3, 4)
    story.roll()
    story.produce(3, 4)
    story.restart()
    story.produce(3, 1)


def retention_by_size(story: Story) -> None:
    for _ in range(25):
        story.produce(1, 4)
    story.flush()
    story.checkpoint()
    story.retain()
    story.append(2)
    story.unlink_due()
    story.checkpoint()
    for _ in range(10):
        story.append(4)
    story.retain()
    story.flush()
    story.checkpoint()
    story.unlink_due()
    story.append(1)


def retention_of_everything(story: Story) -> None:
    for _ in range(8):
        story.produce(1, 4)
    story.flush()
    story.checkpoint()
    story.now_ms += 10_000_000
    story.retain()
    story.unlink_due()
    story.flush()
    story.checkpoint()
    story.restart()
    story.produce(1, 2)
    story.flush()


def deleted_records(story: Story) -> None:
    for number in range(12):
        story.epoch = number // 3
        story.append(5)
    story.advance_start(story.log.end_offset - 7)
    story.flush()
    story.checkpoint()
    story.retain()
    story.append(2)
    story.unlink_due()
    story.restart()
    story.advance_start(story.log.end_offset)
    story.checkpoint()
    story.epoch = 9
    story.append(2)


def compaction(story: Story) -> None:
    for _ in range(16):
        story.append(5)
    story.roll()
    story.flush()
    story.checkpoint()
    story.append(4)
    story.compact()
    story.append(2)
    story.unlink_due()
    story.checkpoint()
    for _ in range(6):
        story.append(5)
    story.roll()
    story.flush()
    story.compact()
    story.append(1)
    story.unlink_due()


def compaction_before_the_checkpoint(story: Story) -> None:
    story.keys = 60  # so many that each segment keeps some records, and seldom its last
    for _ in range(30):
        story.append(5)
    story.roll()
    story.flush()
    story.compact()
    story.append(4)


def compaction_with_transactions(story: Story) -> None:
    for round_ in range(5):
        story.produce(10, 3, is_transactional=True)
        story.append(5)
        story.produce(1, 3)
        story.end_transaction(10, commit=round_ % 2 == 0)
        story.roll()
    story.flush()
    story.checkpoint()
    story.compact()
    story.restart()
    story.append(5)


HISTORIES: dict[str, tuple[Callable[[Story], None], dict[str, object]]] = {
    "appends_and_rolls": (appends_and_rolls, {}),
    "flushes_with_appends_in_between": (flushes_with_appends_in_between, {}),
    "producers_and_transactions": (producers_and_transactions, {}),
    "clean_restarts": (clean_restarts, {}),
    "follower_truncations": (follower_truncations, {}),
    "truncation_with_producers": (truncation_with_producers, {}),
    "starting_over": (starting_over, {}),
    "retention_by_size": (retention_by_size, {"retention_bytes": 2500}),
    "retention_of_everything": (retention_of_everything, {"retention_ms": 100_000}),
    "deleted_records": (deleted_records, {}),
    "compaction": (compaction, {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0}),
    "compaction_with_full_indexes": (
        compaction,
        {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "segment_index_bytes": 48},
    ),
    "compaction_before_the_checkpoint": (
        compaction_before_the_checkpoint,
        {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0},
    ),
    "compaction_with_transactions": (
        compaction_with_transactions,
        {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0},
    ),
}


def play(history: str, stop_at: int | None = None, written: float = 0.0) -> Story:
    """Plays a history, up to operation `stop_at` if it has so many."""
    steps, config = HISTORIES[history]
    story = Story(SimulatedDisk(), **config)
    if stop_at is not None:
        story.disk.stop_at(stop_at, written=written)
    try:
        story.open()
        steps(story)
    except DiskStopped:
        assert stop_at is not None
    return story


def stopping_points(history: str) -> Iterator[tuple[int, float]]:
    """Before every operation; in the middle and at the end of every write."""
    for number, operation in enumerate(play(history).disk.operations):
        yield number, 0.0
        if operation.kind == "write":
            yield number, 0.5
            yield number, 1.0


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_leaves_a_sound_log(history: str) -> None:
    story = play(history)
    check_recovered(story.log, story.ledger)
    check_goes_on(story.logs, story.log, story.ledger)


@pytest.mark.parametrize("history", HISTORIES)
def test_nothing_flushed_is_lost_and_nothing_torn_is_served_wherever_the_disk_stops(history: str) -> None:
    for number, written in stopping_points(history):
        stopped = play(history, number, written)
        for choice, (seed, fates) in enumerate(CRASHES):
            disk = stopped.disk.crash(seed, fates)
            try:
                logs, log = recover(disk, stopped)
                assert log is not None or not stopped.ledger.exists
                if log is not None:
                    check_recovered(log, stopped.ledger)
                    if choice == number % len(CRASHES):
                        check_goes_on(logs, log, stopped.ledger)
            except Exception as error:
                error.add_note(f"{history}, {stopped.disk.operations[number]} ({number}, {written}), {seed}, {fates}")
                raise


@pytest.mark.parametrize("history", HISTORIES)
def test_no_checkpoint_file_costs_data_whatever_becomes_of_it(history: str) -> None:
    """At every stop something happens to one of them."""
    rng = random.Random(history)
    for number, written in stopping_points(history):
        if written not in (0.0, 0.5) or (number % 3 and SEEDS == 1):
            continue
        stopped = play(history, number, written)
        seed, fates = rng.choice(CRASHES)
        disk = stopped.disk.kill() if rng.random() < 0.5 else stopped.disk.crash(seed, fates)
        if not any(is_checkpoint(path) for path in disk.walk("/")):
            continue
        disturbed = disturb(disk, stopped, rng)
        try:
            _, log = recover(disk, stopped)
            assert log is not None or not stopped.ledger.exists
            if log is not None:
                check_recovered(log, stopped.ledger, disturbed or "none")
        except Exception as error:
            error.add_note(f"{history}, {stopped.disk.operations[number]} ({number}, {written}), {seed}, {fates}")
            error.add_note(f"{disturbed}: {read_file(disk, disturbed) if disk.exists(disturbed) else 'lost'!r}")
            raise


@pytest.mark.parametrize("seed", range(20 * SEEDS))
def test_crashes_one_after_the_other_lose_nothing_that_was_there_after_one_of_them(seed: int) -> None:
    """A process that was killed loses nothing, and what the next one found survives a loss of power."""
    rng = random.Random(seed)
    story = Story(SimulatedDisk())
    story.open()
    for _ in range(5):
        for _ in range(rng.randint(0, 15)):
            rng.choice([story.append, story.append, story.append, story.roll, story.flush, story.checkpoint])()
        written = list(story.ledger.now)
        is_killed = rng.random() < 0.5
        story.disk = story.disk.kill() if is_killed else story.disk.crash(rng.getrandbits(32), rng.choice(CRASHES)[1])
        story.open()
        found = audit(story.log)
        assert found == written[: len(found)]
        assert story.log.end_offset >= story.ledger.durable_end
        assert not is_killed or found == written, f"a kill cost {len(written) - len(found)} batches"
        story.ledger.branches = [found]
        story.ledger.durable_end = story.log.end_offset
        story.epoch += 1


@pytest.mark.parametrize("history", HISTORIES)
def test_recovery_that_is_interrupted_anywhere_comes_to_the_same_end(history: str) -> None:
    rng = random.Random(history)
    points = list(stopping_points(history))
    for number, written in sorted(rng.sample(points, min(len(points), 10 * SEEDS))):
        stopped = play(history, number, written)
        seed, fates = rng.choice(CRASHES)
        disk = stopped.disk.crash(seed, fates)
        _, log = recover(disk, stopped)
        if log is None:
            continue
        expected = observe(log)
        for interrupted_at in range(len(disk.operations)):
            try:
                again = stopped.disk.crash(seed, fates)
                again.stop_at(interrupted_at)
                with pytest.raises(DiskStopped):
                    recover(again, stopped)
                _, log = recover(again.crash(interrupted_at), stopped)
                assert log is not None
                check_recovered(log, stopped.ledger)
                assert observe(log) == expected
            except Exception as error:
                error.add_note(
                    f"{history}, {stopped.disk.operations[number]} ({number}, {written}), {seed}, {fates}, then "
                    f"{again.operations[-1]} of recovery ({interrupted_at})"
                )
                raise
