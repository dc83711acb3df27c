"""A directory that Apache Kafka 3.9 wrote is opened by our storage and says the same, cleanly stopped or killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.storage import checkpoints
from ottla.storage.disk import RealDisk
from ottla.storage.log import Log
from ottla.storage.producer_state import Producer
from ottla.storage.recovery import RecoveryReport, open_log

DISK = RealDisk()
NOW_MS = 1_700_001_000_000


@pytest.fixture(params=["clean", "crashed"])
def directory(request):
    return request.getfixturevalue(request.param)


def open_partition(directory, topic: str) -> tuple[Log, RecoveryReport]:
    """Opens a partition as a broker does: with the checkpoints and the mark of a clean shutdown beside it."""
    name = TopicPartition(topic, 0)
    report = RecoveryReport()
    log = open_log(
        DISK,
        str(directory.partition(topic)),
        name,
        LogConfig.from_properties(directory.config(topic)),
        now_ms=NOW_MS,
        is_clean=(directory.path / ".kafka_cleanshutdown").exists(),
        recovery_point=offsets_of(directory, checkpoints.RECOVERY_POINTS).get(name, 0),
        log_start_offset=offsets_of(directory, checkpoints.LOG_START_OFFSETS).get(name, 0),
        report=report,
    )
    return log, report


def offsets_of(directory, checkpoint: str) -> dict[TopicPartition, int]:
    return checkpoints.read_offsets(DISK, str(directory.path / checkpoint))


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


def test_every_record_reads_back_as_kafka_returned_it(directory):
    for topic, truth in directory.topics.items():
        log, report = open_partition(directory, topic)
        found = [
            record
            for header, data, position in batches_of(log)
            if not header.is_control
            for record in records_of(log, header, data, position)
        ]
        assert found == plain(truth.records), topic
        assert report.problems == [], topic
        assert (log.log_start_offset, log.end_offset) == (truth.log_start_offset, truth.high_watermark), topic


def test_a_reader_of_committed_records_sees_what_kafkas_sees(directory):
    for topic, truth in directory.topics.items():
        log, _ = open_partition(directory, topic)
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


def test_offsets_by_time_are_those_that_kafka_found(directory):
    for topic, truth in directory.topics.items():
        log, _ = open_partition(directory, topic)
        found = {timestamp: log.offset_for_time(timestamp) for timestamp in truth.offset_for_time}
        assert {timestamp: each and each.offset for timestamp, each in found.items()} == truth.offset_for_time, topic


def test_leader_epochs_are_those_of_the_records(directory):
    for topic, truth in directory.topics.items():
        log, _ = open_partition(directory, topic)
        found = {offset: log.epochs.epoch_at(offset) for offset in truth.leader_epochs}
        assert found == truth.leader_epochs, topic


def test_producers_are_those_of_kafkas_own_snapshots(kafka, clean, kafka_directories, tmp_path: Path):
    """Kafka wrote a snapshot at its clean stop, and one after its own recovery from the crash."""
    crashed = kafka_directories.crashed.copy_to(tmp_path / "crashed")
    snapshots = {
        (directory, topic): clean.partition(topic) / f"{truth.high_watermark:020d}.snapshot"
        for directory in (clean, crashed)
        for topic, truth in directory.topics.items()
    }
    dumped = producers_by_snapshot(kafka.dump_log(sorted(set(snapshots.values()))).lines)
    for (directory, topic), snapshot in snapshots.items():
        log, _ = open_partition(directory, topic)
        found = {producer_fields(producer) for producer in log.producers.producers.values()}
        assert found == dumped[snapshot.parent.name, snapshot.name], (directory.path, topic)


def test_transaction_indexes_are_those_of_kafka(kafka, clean):
    indexes = sorted(clean.path.glob("*/*.txnindex"))
    assert indexes
    for line in (lines := kafka.dump_log(indexes).lines):
        assert line.startswith(("Dumping ", "version: 0 ")), line
    theirs = sorted(tuple(map(int, re.findall(r": (\d+)", line)[1:])) for line in lines if line.startswith("v"))
    ours = sorted(
        tuple(aborted)
        for topic in clean.topics
        for segment in open_partition(clean, topic)[0].segments
        for aborted in segment.transaction_index.entries()
    )
    assert ours == theirs


def test_a_closed_log_opens_again_without_recovery(directory):
    for topic, truth in directory.topics.items():
        log, _ = open_partition(directory, topic)
        log.close()
        report = RecoveryReport()
        again = open_log(
            DISK,
            str(directory.partition(topic)),
            log.name,
            log.config,
            now_ms=NOW_MS,
            is_clean=True,
            log_start_offset=log.log_start_offset,
            report=report,
        )
        assert report == RecoveryReport()
        assert again.end_offset == truth.high_watermark
        assert again.epochs.entries == log.epochs.entries
        assert sorted(map(producer_fields, again.producers.producers.values())) == sorted(
            map(producer_fields, log.producers.producers.values())
        )


def producer_fields(producer: Producer) -> tuple[int, ...]:
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


def producers_by_snapshot(lines: list[str]) -> dict[tuple[str, str], set[tuple[int, ...]]]:
    dumped: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    producers: set[tuple[int, ...]] = set()
    for line in lines:
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            producers = dumped[path.parent.name, path.name] = set()
            continue
        # "currentTxnFirstOffset: OptionalLong[12]", or ".empty"; the last field repeats the timestamp
        numbers = re.findall(r"-?\d+", line.replace("OptionalLong.empty", "-1"))
        producers.add(tuple(map(int, numbers[:9])))
    return dumped
