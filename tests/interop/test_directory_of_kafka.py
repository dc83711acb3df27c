"""A directory that Apache Kafka 3.9 wrote is opened by our storage and says the same, cleanly stopped or killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.disk import RealDisk
from ottla.errors import ConfigError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.storage.producer_state import ProducerEntry
from ottla.storage.recovery import RecoveryReport
from ottla.testing.apache_kafka import KafkaBroker
from ottla.testing.broker import Broker
from ottla.testing.topic_config import topic_config

NOW_MS = 1_700_001_000_000


@pytest.fixture(params=["clean", "crashed"])
def directory(request):
    return request.getfixturevalue(request.param)


def open_directory(directory) -> Logs:
    """Opens it as a broker of ours does; no partition may be refused, mended or found wrong."""
    logs = Logs(RealDisk(), [str(directory.path)], lambda topic: topic_config(directory.config(topic)))
    logs.open(NOW_MS)
    assert logs.directories[0].failure is None
    assert logs.unreadable == {}
    assert {name: report.problems for name, report in logs.reports.items() if report.problems} == {}
    return logs


@pytest.fixture
def logs(directory) -> Iterator[Logs]:
    logs = open_directory(directory)
    yield logs
    logs.close_locks()


def log_of(logs: Logs, topic: str) -> Log:
    log = logs.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def batches_of(log: Log, upper_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """Every batch as fetches would return them: header, the bytes of the fetch and the position in them."""
    offset = log.log_start_offset
    while (found := log.read(offset, 1_000_000, upper_offset=upper_offset)) is not None:
        data = found.records.read()
        scanned = batch.scan(data)
        assert scanned.headers
        for header, position in zip(scanned.headers, scanned.positions, strict=True):
            yield header, data, position
        offset = scanned.headers[-1].end_offset


def records_of(log: Log, header: BatchHeader, data: bytes, position: int) -> list[tuple[object, ...]]:
    return [
        (offset, timestamp, header.is_log_append_time, key, value, headers)
        for offset, timestamp, key, value, headers in batch.iterate(data, position)
        if offset >= log.log_start_offset
    ]


def plain(records) -> list[tuple[object, ...]]:
    return [
        (record.offset, record.timestamp, record.is_append_time, record.key, record.value, record.headers)
        for record in records
    ]


def test_every_record_reads_back_as_kafka_returned_it(directory, logs: Logs):
    for topic, truth in directory.topics.items():
        log = log_of(logs, topic)
        found = [
            record
            for header, data, position in batches_of(log)
            if not header.is_control
            for record in records_of(log, header, data, position)
        ]
        assert found == plain(truth.records), topic


def test_logs_start_and_end_where_kafka_says(directory, logs: Logs):
    found = {
        topic: (log_of(logs, topic).log_start_offset, log_of(logs, topic).end_offset) for topic in directory.topics
    }
    assert found == {topic: (truth.log_start_offset, truth.high_watermark) for topic, truth in directory.topics.items()}


def test_a_reader_of_committed_records_sees_what_kafkas_sees(directory, logs: Logs):
    for topic, truth in directory.topics.items():
        log = log_of(logs, topic)
        log.producers.passed_high_watermark(log.end_offset)
        last_stable_offset = log.last_stable_offset(log.end_offset)
        aborted = log.aborted_transactions(log.log_start_offset, last_stable_offset)
        found = [
            record
            for header, data, position in batches_of(log, last_stable_offset)
            if not header.is_control
            and not any(
                header.is_transactional
                and header.producer_id == each.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            for record in records_of(log, header, data, position)
        ]
        assert found == plain(truth.committed), topic


def test_offsets_by_time_are_those_that_kafka_found(directory, logs: Logs):
    for topic, truth in directory.topics.items():
        log = log_of(logs, topic)
        found = {timestamp: log.offset_for_time(timestamp) for timestamp in truth.offset_for_time}
        offsets = {timestamp: each and each.offset for timestamp, each in found.items()}
        assert offsets == truth.offset_for_time, topic


def test_leader_epochs_are_those_of_the_records(directory, logs: Logs):
    for topic, truth in directory.topics.items():
        epochs = log_of(logs, topic).epochs
        assert {offset: epochs.epoch_at(offset) for offset in truth.leader_epochs} == truth.leader_epochs, topic


def test_producers_are_those_of_kafkas_own_snapshot(kafka, kafka_directories, directory, logs: Logs):
    """Kafka wrote a snapshot where it stopped, and one at the same offset after its own recovery from the crash."""
    snapshots = {
        topic: kafka_directories.clean.partition(topic) / f"{truth.high_watermark:020d}.snapshot"
        for topic, truth in directory.topics.items()
    }
    dumped = producers_by_snapshot(kafka.dump_log(snapshots.values()).lines)
    for topic, snapshot in snapshots.items():
        found = {producer_fields(producer) for producer in log_of(logs, topic).producers.producers.values()}
        assert found == dumped[snapshot.parent.name], topic


def test_transaction_indexes_are_those_of_kafka(kafka, directory, logs: Logs, kafka_directories):
    indexes = sorted(kafka_directories.clean.path.glob("transactions-0/*.txnindex"))
    lines = [line for line in kafka.dump_log(indexes).lines if not line.startswith("Dumping ")]
    assert all(line.startswith("version: 0 ") for line in lines)
    theirs = [tuple(map(int, re.findall(r": (\d+)", line)[1:])) for line in lines]
    log = log_of(logs, "transactions")
    ours = [tuple(aborted) for segment in log.segments for aborted in segment.transaction_index.entries()]
    assert ours == [aborted for aborted in theirs if aborted[2] < directory.topics["transactions"].high_watermark]
    assert len(ours) >= 10


def test_a_directory_that_we_closed_opens_again_the_same(directory, logs: Logs):
    logs.close()
    again = open_directory(directory)
    assert all(report == RecoveryReport() for report in again.reports.values())
    for log in logs:
        other = again.get(log.name)
        assert other is not None
        assert (other.log_start_offset, other.end_offset) == (log.log_start_offset, log.end_offset)
        assert other.epochs.entries == log.epochs.entries
        assert set(map(producer_fields, other.producers.producers.values())) == set(
            map(producer_fields, log.producers.producers.values())
        )
    again.close_locks()


def test_a_broker_of_ours_refuses_the_directory_and_leaves_it_alone(directory):
    before = sorted((path, path.stat().st_mtime_ns) for path in directory.path.rglob("*") if path.name != ".lock")
    with pytest.raises(ConfigError, match=r"belongs to Apache Kafka in KRaft mode .*`ottla import`"):
        Broker(directory=directory.path).start()
    after = sorted((path, path.stat().st_mtime_ns) for path in directory.path.rglob("*") if path.name != ".lock")
    assert after == before


def test_a_directory_that_kafka_has_only_formatted_is_refused(newest_kafka, tmp_path: Path):
    kafka_broker = KafkaBroker(newest_kafka, tmp_path)
    kafka_broker.format()
    with pytest.raises(ConfigError, match=r"belongs to Apache Kafka in KRaft mode .node 1 of cluster"):
        Broker(directory=kafka_broker.log_dir).start()


def producer_fields(producer: ProducerEntry) -> tuple[int, ...]:
    """What a snapshot keeps of a producer, in the order of the dump tool."""
    open_from = producer.transaction_first_offset
    known = (
        producer.producer_id,
        producer.epoch,
        producer.coordinator_epoch,
        -1 if open_from is None else open_from,
        producer.last_timestamp,
    )
    if not producer.batches:
        return known
    last = producer.batches[-1]
    return (*known, last.first_sequence, last.last_sequence, last.last_offset, last.offset_delta)


def producers_by_snapshot(lines: list[str]) -> dict[str, set[tuple[int, ...]]]:
    """By the name of the partition's directory, what the dump tool printed of one snapshot in each."""
    dumped: dict[str, set[tuple[int, ...]]] = {}
    producers: set[tuple[int, ...]] = set()
    for line in lines:
        if line.startswith("Dumping "):
            producers = dumped[Path(line.removeprefix("Dumping ")).parent.name] = set()
            continue
        # "currentTxnFirstOffset: OptionalLong[12]", or ".empty"; the last field repeats the timestamp
        numbers = re.findall(r"-?\d+", line.replace("OptionalLong.empty", "-1"))
        producers.add(tuple(map(int, numbers[:9])))
    return dumped
