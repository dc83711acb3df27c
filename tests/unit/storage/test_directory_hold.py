"""Threads that work in a log's directory by path, while the log is deleted and another of its name is made."""

from __future__ import annotations

import random

import pytest

from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.testing.disk import SimulatedDisk

NAME = TopicPartition("t", 0)
NOW = 1_700_000_000_000


@pytest.fixture
def logs() -> Logs:
    logs = Logs(SimulatedDisk(), ["/data"], lambda topic: LogConfig(segment_bytes=200), rng=random.Random(0))
    logs.open(NOW)
    return logs


def produce(log: Log, leader_epoch: int = 0) -> None:
    log.append(batch.build(None, [b"x" * 50], NOW), leader_epoch=leader_epoch, now_ms=NOW)


def made_again(logs: Logs) -> Log:
    """Deletes the log and makes another one of the same name."""
    logs.delete(NAME, now_ms=NOW)
    return logs.create(NAME, now_ms=NOW)


def test_a_flush_that_comes_after_the_deletion_writes_no_epochs_into_the_next_log(logs: Logs) -> None:
    log = logs.create(NAME, now_ms=NOW)
    produce(log, leader_epoch=7)
    flush = log.begin_flush()
    new = made_again(logs)
    flush.run()
    assert not new.disk.exists(new.epochs.path)


def test_a_flush_that_comes_after_the_deletion_finds_no_directory_and_is_no_failing_disk(logs: Logs) -> None:
    log = logs.create(NAME, now_ms=NOW)
    produce(log, leader_epoch=7)
    flush = log.begin_flush()
    logs.delete(NAME, now_ms=NOW)
    flush.run()


def test_deleted_segments_that_are_due_after_the_deletion_take_nothing_of_the_next_log(logs: Logs) -> None:
    log = logs.create(NAME, now_ms=NOW)
    for _ in range(4):
        produce(log)
    log.delete_first(1, NOW)
    due = log.take_due(NOW + log.config.file_delete_delay_ms)
    assert due
    new = made_again(logs)
    new.take_snapshot(0)
    for unlinking in due:
        unlinking.run()
    assert new.snapshots.offsets() == [0]


def test_whoever_takes_the_name_away_waits_for_those_who_work_there() -> None:
    hold = DirectoryHold()
    with hold as is_ours:
        assert is_ours
        assert not hold._lock.acquire(blocking=False), "giving up has to wait"
    hold.give_up()
    with hold as is_ours:
        assert not is_ours
