"""Compaction in a broker that runs: what cannot be compacted holds nobody up, and a stop waits for nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.compaction import Compaction
from ottla.disk import RealDisk
from ottla.errors import StorageError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage import cleaner
from ottla.storage.cleaning_job import CleaningJob, CleaningResult
from ottla.storage.logs import Logs
from ottla.store.embedded import EmbeddedStore
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, produce
from ottla.testing.waiting import wait_until

SETTINGS = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.0"}
SEALED = 20  # of the records below are in whole segments
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576"}


def one_value(number: int) -> bytes:
    return bytes(
        batch.build([b"key-%d" % (number % 3)], [b"%d" % (number % 10) * 100_000], [1_700_000_000_000 + number])
    )


def fill(client: RawClient, topic: str) -> None:
    client.ask(create_topic(topic, config=COMPACTED), 5)
    for number in range(25):
        client.ask(produce(topic, one_value(number)), 9)


def clean_offset(broker: Broker, topic: str) -> int:
    return broker.running.logs.clean_offset(TopicPartition(topic, 0))


def damage_first_segment(directory: Path, topic: str) -> None:
    file = directory / f"{topic}-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def test_a_log_that_cannot_be_compacted_is_told_once_and_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    idle = SETTINGS | {"log.cleaner.enable": "false"}
    with Broker(idle, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        for topic in ("damaged", *(f"sound-{number}" for number in range(5))):
            fill(client, topic)
    damage_first_segment(tmp_path, "damaged")
    with caplog.at_level(logging.ERROR), Broker(SETTINGS, directory=tmp_path) as broker:
        wait_until(lambda: all(clean_offset(broker, f"sound-{number}") >= SEALED for number in range(5)))
        # Every log is looked at in each round, so by now the damaged one was, and in the next ones it is left alone.
        wait_until(lambda: "damaged-0 could not be compacted" in caplog.text)
        with RawClient(broker.bootstrap_servers) as client:
            fill(client, "later")
        wait_until(lambda: clean_offset(broker, "later") >= SEALED)
        assert caplog.text.count("damaged-0 could not be compacted") == 1
        assert "cannot be compacted, byte" in caplog.text, "why is told as well"
        assert clean_offset(broker, "damaged") == 0


def test_a_disk_that_fails_under_the_cleaner_takes_its_directory_offline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "run_job", fail_as_a_disk)
    with Broker(SETTINGS, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        fill(client, "orders")
        wait_until(lambda: broker.running.logs.failure is not None)
    assert "cannot read: Input/output error" in caplog.text


def fail_as_a_disk(job: CleaningJob, disk: object) -> None:
    raise StorageError(job.directory, "cannot read: Input/output error")


def test_a_fault_of_ours_in_one_log_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "run_job", fail_for_one)
    with Broker(SETTINGS, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        for topic in ("broken", "sound"):  # equally dirty: the first comes first
            fill(client, topic)
        wait_until(lambda: clean_offset(broker, "sound") >= SEALED)
        assert "broken-0 could not be compacted: AssertionError" in caplog.text


def fail_for_one(job: CleaningJob, disk: RealDisk) -> CleaningResult:
    assert "broken" not in job.directory, "a fault of ours"
    return cleaner.run_job(job, disk)  # the one that the other process knows


def test_a_stop_ends_a_compaction_and_gives_up_the_locks_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def noted(what: str, kind: type, method: str) -> None:
        original = getattr(kind, method)

        def call(self: object, *arguments: object) -> object:
            order.append(what)
            return original(self, *arguments)

        monkeypatch.setattr(kind, method, call)

    noted("began", Compaction, "_plan")
    noted("logs", Logs, "close_logs")
    noted("store", EmbeddedStore, "close")
    noted("locks", Logs, "close_locks")
    slow = SETTINGS | {"log.cleaner.io.max.bytes.per.second": "1"}  # it would take an hour
    with Broker(slow, directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        fill(client, "orders")
        wait_until(lambda: "began" in order)
    assert order == ["began", "logs", "store", "locks"]
    assert clean_offset_of_files(tmp_path) == 0
    with Broker(SETTINGS, directory=tmp_path) as broker:
        wait_until(lambda: clean_offset(broker, "orders") >= SEALED)


def clean_offset_of_files(directory: Path) -> int:
    lines = (directory / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    return sum(int(line.split()[-1]) for line in lines)
