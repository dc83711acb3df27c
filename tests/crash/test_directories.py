"""Several partitions in two log directories: made, deleted and made again, while the disk stops at every operation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage.log_moves import common_end
from ottla.storage.logs import Logs
from ottla.testing.audit import audit
from ottla.testing.disk import DiskStopped, Fate, SimulatedDisk
from ottla.testing.log_upkeep import unlink_due, write_checkpoints, write_high_watermarks

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=1000)
ROOTS = ["/one", "/two"]
START_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
A, B, C = (TopicPartition(topic, 0) for topic in "abc")
CRASHES: list[tuple[int, tuple[Fate, ...]]] = [
    (0, (Fate.DROPPED,)),
    (0, (Fate.KEPT,)),
    (1, tuple(Fate)),
    (2, tuple(Fate)),
]


@dataclass
class Life:
    """What one partition may and must hold. A deleted one may still be there until the deletion is done."""

    must_exist: bool = False
    may_exist: bool = True
    batches: list[bytes] = field(default_factory=list)
    durable_end: int = 0


class Broker:
    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.lives: dict[TopicPartition, Life] = {}
        self.rng = random.Random(5)

    def open(self) -> None:
        self.logs = Logs(self.disk, ROOTS, lambda topic: CONFIG, rng=random.Random(2))
        self.logs.open(START_MS)

    def create(self, name: TopicPartition) -> None:
        self.lives[name] = Life()
        self.logs.create(name, now_ms=START_MS)
        self.lives[name].must_exist = True

    def append(self, name: TopicPartition, times: int = 1) -> None:
        log = self.logs.get(name)
        assert log is not None
        for _ in range(times):
            data = batch.build(None, [self.rng.randbytes(self.rng.randint(20, 90))] * 2, START_MS)
            expected = bytearray(data)
            batch.stamp(expected, log.end_offset, 0)
            self.lives[name].batches.append(bytes(expected))
            log.append(data, leader_epoch=0, now_ms=START_MS)

    def flush(self, name: TopicPartition) -> None:
        log = self.logs.get(name)
        assert log is not None
        log.flush()
        self.lives[name].durable_end = log.end_offset

    def delete(self, name: TopicPartition) -> None:
        self.lives[name].must_exist = False
        self.logs.delete(name, now_ms=START_MS)
        self.lives[name].may_exist = False

    def copy(self, name: TopicPartition) -> None:
        """Copies what there is into the directory where the log is not, as a move does."""
        source = self.logs.get(name)
        assert source is not None
        if name not in self.logs.moves:
            other = next(one for one in self.logs.directories if one is not self.logs.directory_of(name))
            plan = self.logs.moves.begin(source, other, TOPIC_ID, START_MS)
            assert self.logs.moves.adopt(plan, plan.make())
        directory = self.logs.moves.target_of(name)
        assert directory is not None
        copy = directory.future_logs[name]
        copy.truncate_to(common_end(source, copy), now_ms=START_MS)
        while (found := source.read(copy.end_offset, 300)) is not None:
            copy.append_as_follower(found.records.read(), now_ms=START_MS)

    def swap(self, name: TopicPartition, appended: int) -> None:
        """Puts the copy in place; some batches are appended to it before that is durable."""
        plan = self.logs.moves.swap(name, START_MS)
        self.append(name, appended)
        plan.run()
        plan.copy.end_flush(plan.flush)
        self.logs.end_delete(plan.deletion)

    def restart(self) -> None:
        self.logs.close()
        for name, life in self.lives.items():
            life.durable_end = len(life.batches) * 2
            assert self.logs.directory_of(name) is not None or not life.must_exist
        self.open()

    def check(self) -> None:
        assert all(directory.is_online for directory in self.logs.directories)
        for name, life in self.lives.items():
            log = self.logs.get(name)
            assert log is not None or not life.must_exist, f"{name} is gone"
            assert log is None or life.may_exist, f"{name} is back"
            if log is not None:
                found = audit(log)
                assert found == life.batches[: len(found)], f"{name} holds other batches"
                assert log.end_offset >= life.durable_end or not life.must_exist, f"{name} lost what was flushed"


def history(broker: Broker) -> None:
    broker.open()
    for name in (A, B, C):
        broker.create(name)
        broker.append(name, 6)
    broker.flush(A)
    write_checkpoints(broker.logs)
    broker.append(A, 2)
    broker.delete(B)
    broker.flush(C)
    broker.create(B)
    broker.append(B, 3)
    unlink_due(broker.logs, START_MS + 5000)
    broker.restart()
    broker.append(A)
    broker.delete(A)
    broker.append(C)
    write_high_watermarks(broker.logs, {C: 4})
    broker.restart()
    broker.append(C)


def moves(broker: Broker) -> None:
    """A log goes to the other directory and back, over restarts."""
    broker.open()
    broker.create(A)
    broker.append(A, 6)
    broker.flush(A)
    broker.copy(A)
    broker.append(A, 3)
    broker.restart()
    broker.copy(A)
    broker.flush(A)
    broker.swap(A, 2)
    broker.flush(A)
    broker.append(A, 2)
    unlink_due(broker.logs, START_MS + 5000)
    broker.copy(A)
    broker.swap(A, 0)
    write_checkpoints(broker.logs)
    broker.append(A, 2)
    broker.restart()
    broker.append(A)


def play(stop_at: int | None = None, history: Callable[[Broker], None] = history) -> Broker:
    broker = Broker(SimulatedDisk())
    if stop_at is not None:
        broker.disk.stop_at(stop_at)
    try:
        history(broker)
    except DiskStopped:
        assert stop_at is not None
    return broker


@pytest.mark.parametrize("history", [history, moves])
def test_partitions_of_two_directories_are_whole_wherever_the_disk_stops(history: Callable[[Broker], None]) -> None:
    for number in range(len(play(None, history).disk.operations)):
        stopped = play(number, history)
        for seed, fates in CRASHES:
            recovered = Broker(stopped.disk.crash(seed, fates))
            recovered.lives = stopped.lives
            try:
                recovered.open()
                recovered.check()
            except Exception as error:
                error.add_note(f"{stopped.disk.operations[number]} ({number}), {seed}, {fates}")
                raise


@pytest.mark.parametrize("seed", range(6))
def test_a_partition_that_is_made_again_inherits_nothing_wherever_its_deletion_stopped(seed: int) -> None:
    def deleted(stop_at: int | None) -> tuple[Broker, int]:
        broker = Broker(SimulatedDisk())
        broker.open()
        broker.create(A)
        broker.append(A, 20)
        broker.flush(A)
        write_checkpoints(broker.logs)
        start = len(broker.disk.operations)
        if stop_at is not None:
            broker.disk.stop_at(start + stop_at)
        try:
            broker.delete(A)
        except DiskStopped:
            assert stop_at is not None
        return broker, start

    whole, start = deleted(None)
    for number in range(len(whole.disk.operations) - start):
        stopped, _ = deleted(number)
        again = Broker(stopped.disk.crash(seed))
        again.open()
        if again.logs.get(A) is not None:
            again.lives[A] = Life(must_exist=True, batches=list(stopped.lives[A].batches))
            again.delete(A)
        again.create(A)
        again.append(A, 18)
        recovered = Broker(again.disk.crash(seed))
        recovered.lives = again.lives
        recovered.open()
        try:
            recovered.check()
        except AssertionError as error:
            error.add_note(f"{stopped.disk.operations[-1]} ({number})")
            raise
