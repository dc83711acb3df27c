"""What our storage writes, Apache Kafka's dump tool reads without complaint and its broker serves as its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ids
from ottla.disk import RealDisk
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.records.control import EndTransactionMarker
from ottla.storage import cleaner
from ottla.storage.log import Log
from ottla.storage.logs import Logs
from ottla.testing.apache_kafka import SHORT_SESSION, ApacheKafka, KafkaBroker
from ottla.testing.log_upkeep import commit_cleaning, unlink_due
from ottla.testing.topic_config import topic_config
from ottla.testing.waiting import WAIT_S

EPOCH_MS = 1_700_000_000_000
NOW_MS = EPOCH_MS + 10_000_000
SMALL_SEGMENTS = {"segment.bytes": "16384", "index.interval.bytes": "1024"}
TOPICS: dict[str, dict[str, str]] = {
    **{f"plain-{codec.name.lower()}": SMALL_SEGMENTS for codec in Compression},
    "append-time": {**SMALL_SEGMENTS, "message.timestamp.type": "LogAppendTime"},
    "transactions": SMALL_SEGMENTS,
    "compacted": {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "trimmed": SMALL_SEGMENTS,
}
COMMITTER, ABORTER, NEVER_ENDING = 11, 12, 13
TRIM_BEFORE = 333


@dataclass(frozen=True, slots=True)
class Written:
    """A record that stands in the log."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    is_committed: bool = True


@dataclass(slots=True)
class Partition:
    """One of our logs and what was written into it, as it must read back."""

    log: Log
    records: list[Written] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        numbers: range,
        *,
        codec: Compression = Compression.NONE,
        producer_id: int = 10,
        committed: bool = True,
        keys: int = 1_000_000,
        tombstones: bool = False,
    ) -> None:
        timestamps = [EPOCH_MS + number * 1000 for number in numbers]
        pairs = [
            (b"key %d" % (number % keys), None if tombstones else b"value %d " % number + b"." * 100)
            for number in numbers
        ]
        first_sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = first_sequence + len(pairs)
        appended = self.log.append(
            batch.build(
                [key for key, _ in pairs],
                [value for _, value in pairs],
                timestamps,
                headers=[[("number", b"%d" % number)] for number in numbers],
                compression=codec,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=first_sequence,
                is_transactional=producer_id in (COMMITTER, ABORTER, NEVER_ENDING),
            ),
            leader_epoch=1,
            now_ms=NOW_MS,
        )
        for delta, (timestamp, (key, value)) in enumerate(zip(timestamps, pairs, strict=True)):
            time_ms = timestamp if appended.append_time_ms < 0 else appended.append_time_ms
            self.records.append(Written(appended.first_offset + delta, time_ms, key, value, committed))

    def end_transaction(self, producer_id: int) -> None:
        marker = EndTransactionMarker(commit=producer_id == COMMITTER, coordinator_epoch=3)
        self.log.append_marker(producer_id, 0, marker, leader_epoch=1, now_ms=NOW_MS)
        self.log.producers.passed_high_watermark(self.log.end_offset)

    def compact(self, logs: Logs) -> None:
        self.log.flush()
        job = cleaner.plan(self.log, 0, high_watermark=self.log.end_offset, now_ms=NOW_MS)
        assert job is not None
        result = cleaner.run_job(job)
        assert result.records_kept < result.records_read / 2
        assert commit_cleaning(logs, self.log.name, result, now_ms=NOW_MS)
        last_of_key = {record.key: record.offset for record in self.records if record.offset < result.end_offset}
        self.records = [
            record
            for record in self.records
            if record.offset >= result.end_offset or last_of_key[record.key] == record.offset
        ]


def as_ours(settings: dict[str, str]) -> dict[str, str]:
    """Segments as small as these are for tests only here; Kafka 3.9 has no such difference."""
    return {name.replace("segment.bytes", "internal.segment.bytes"): value for name, value in settings.items()}


def open_logs(directory: Path) -> Logs:
    logs = Logs(RealDisk(), [str(directory)], lambda topic: topic_config(as_ours(TOPICS.get(topic, {}))))
    logs.open(NOW_MS)
    return logs


def write_all(directory: Path) -> dict[str, Partition]:
    """Fills all TOPICS in a log directory, as a broker of ours would, and closes it."""
    logs = open_logs(directory)
    written = {topic: write(topic, logs) for topic in TOPICS}
    unlink_due(logs, NOW_MS + 60_000)
    logs.close()
    return written


def write(topic: str, logs: Logs) -> Partition:
    partition = Partition(logs.create(ids.TopicPartition(topic, 0), now_ms=NOW_MS))
    match topic.split("-"):
        case ["plain", codec]:
            for number in range(0, 600, 20):
                partition.append(range(number, number + 20), codec=Compression[codec.upper()])
        case ["append", "time"]:
            for number in range(0, 200, 20):
                partition.append(range(number, number + 20))
        case ["transactions"]:
            write_transactions(partition)
        case ["compacted"]:
            for number in range(0, 600, 20):
                partition.append(range(number, number + 20), codec=Compression.LZ4, keys=30)
            partition.append(range(600, 605), keys=30, tombstones=True)
            partition.log.roll(NOW_MS)
            partition.append(range(605, 620), keys=30)
            partition.compact(logs)
        case ["trimmed"]:
            for number in range(0, 600, 20):
                partition.append(range(number, number + 20))
            partition.log.advance_log_start(TRIM_BEFORE)
            partition.log.delete_expired(EPOCH_MS, partition.log.end_offset)
            partition.records = [each for each in partition.records if each.offset >= TRIM_BEFORE]
    return partition


def write_transactions(partition: Partition) -> None:
    for number in range(0, 400, 20):
        partition.append(range(number, number + 8), producer_id=ABORTER, committed=False)
        partition.append(range(number + 8, number + 16), producer_id=COMMITTER, codec=Compression.ZSTD)
        partition.append(range(number + 16, number + 20))
        partition.end_transaction(COMMITTER)
        partition.end_transaction(ABORTER)
    partition.append(range(400, 410), producer_id=NEVER_ENDING, committed=False)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Partition]:
    return write_all(tmp_path_factory.mktemp("ours"))


@pytest.fixture(params=["kafka", "newest_kafka"], ids=["3.9", "4"])
def any_kafka(request: pytest.FixtureRequest) -> ApacheKafka:
    return request.getfixturevalue(request.param)


def files(partitions: dict[str, Partition], *suffixes: str) -> list[Path]:
    found = [
        path
        for partition in partitions.values()
        for path in sorted(Path(partition.log.directory).iterdir())
        if path.suffix in suffixes
    ]
    assert {path.suffix for path in found} == set(suffixes)
    return found


def test_the_dump_tool_reads_our_records(ours: dict[str, Partition], any_kafka: ApacheKafka):
    dump = any_kafka.dump_log(files(ours, ".log"), print_data=True)
    found: dict[str, list[tuple[int, int, str, str | None]]] = {topic: [] for topic in TOPICS}
    topic = ""
    record = re.compile(
        r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (\d+) keySize: \d+ valueSize: -?\d+"
        r" sequence: \d+ headerKeys: \[number\] key: (.*?)(?: payload: (.*))?"
    )
    for line in dump.lines:
        if line.startswith("Dumping "):
            topic = Path(line.removeprefix("Dumping ")).parent.name.removesuffix("-0")
        elif matched := record.fullmatch(line):
            found[topic].append((int(matched[1]), int(matched[2]), matched[3], matched[4]))
    for topic, partition in ours.items():
        first_offset = partition.log.segments[0].base_offset
        wanted = [
            (each.offset, each.timestamp, each.key.decode(), each.value and each.value.decode())
            for each in partition.records
        ]
        # Deleted records stand in the first segment until all of it may go.
        assert [each for each in found[topic] if each[0] >= partition.log.log_start_offset] == wanted, topic
        assert all(each[0] >= first_offset for each in found[topic]), topic
    assert unexpected(dump.complaints) == []


def unexpected(complaints: list[str]) -> list[str]:
    """What is left without the two things that the tool also says of Kafka's own files.

    Compaction leaves gaps between offsets; and in 4.x it begins to count at -1 in every file.
    """
    left = []
    path = ""
    for line in complaints:
        if line.startswith("Non-consecutive offsets in "):
            path = line
        elif not line.startswith("  -1 is followed by ") and "/compacted-0/" not in path:
            left.append(f"{path} {line}")
    return left


def test_the_dump_tool_finds_our_indexes_right(ours: dict[str, Partition], any_kafka: ApacheKafka):
    indexes = files(ours, ".index", ".timeindex")
    assert any_kafka.dump_log(indexes, verify_index=True).complaints == []
    checked = any_kafka.dump_log(indexes, index_sanity=True)
    passed = [line for line in checked.lines if line.endswith(("passed sanity check.", "is empty."))]
    assert checked.complaints == []
    assert len(passed) == len(indexes)


def test_the_dump_tool_reads_our_snapshots_and_aborted_transactions(ours: dict[str, Partition], any_kafka: ApacheKafka):
    dump = any_kafka.dump_log(files(ours, ".snapshot", ".txnindex"))
    assert dump.complaints == []
    log = ours["transactions"].log
    aborted = [
        f"version: 0 producerId: {each.producer_id} firstOffset: {each.first_offset} "
        f"lastOffset: {each.last_offset} lastStableOffset: {each.last_stable_offset}"
        for segment in log.segments
        for each in segment.transaction_index.entries()
    ]
    assert len(aborted) == 20
    assert [line for line in dump.lines if line.startswith("version: 0")] == aborted
    at = dump.lines.index(f"Dumping {log.snapshots.path(log.end_offset)}")
    producers = {int(line.split()[1]): line for line in dump.lines[at + 1 : at + 1 + len(log.producers.producers)]}
    assert producers.keys() == {10, COMMITTER, ABORTER, NEVER_ENDING}
    assert "coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in producers[ABORTER]
    open_from = log.producers.producers[NEVER_ENDING].transaction_first_offset
    assert f"currentTxnFirstOffset: OptionalLong[{open_from}]" in producers[NEVER_ENDING]
    assert "firstSequence: 0 lastSequence: 9" in producers[NEVER_ENDING]


def test_a_broker_of_kafka_serves_what_we_wrote_into_its_directory(kafka: ApacheKafka, tmp_path: Path, consume_all):
    settings = {"log.retention.ms": "-1", "log.cleaner.enable": "false"}
    broker = KafkaBroker(kafka, tmp_path, {**settings, **SHORT_SESSION})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(name, 1, 1, config=c) for name, c in TOPICS.items()]).values():
            created.result(WAIT_S)
        del admin
        broker.stop()
        written = write_all(broker.log_dir)
        broker.start()
        assert read_by_a_client(broker, consume_all, "read_uncommitted") == expected(written)
        assert read_by_a_client(broker, consume_all, "read_committed") == expected(written, committed=True)
        # Now without the mark of a clean stop, so that Kafka's own recovery goes through all of it.
        broker.kill()
        broker.start()
        assert read_by_a_client(broker, consume_all, "read_committed") == expected(written, committed=True)
        assert "ERROR" not in broker.console()


ReadRecords = dict[str, list[tuple[int, int, bytes, bytes | None]]]


def read_by_a_client(broker: KafkaBroker, consume_all, isolation: str) -> ReadRecords:
    found: ReadRecords = {topic: [] for topic in TOPICS}
    for message in consume_all(broker.bootstrap, dict.fromkeys(TOPICS, OFFSET_BEGINNING), isolation):
        found[message.topic()].append((message.offset(), message.timestamp()[1], message.key(), message.value()))
    return found


def expected(written: dict[str, Partition], *, committed: bool = False) -> ReadRecords:
    return {
        topic: [
            (each.offset, each.timestamp, each.key, each.value)
            for each in partition.records
            if each.is_committed or not committed
        ]
        for topic, partition in written.items()
    }
