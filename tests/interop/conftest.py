"""A directory written by Apache Kafka, with what its own clients read from it, made once for a test run.

A broker of 3.9 writes topics of every kind, is killed in the middle (`crashed`), comes back, writes more and
stops cleanly (`clean`). Both directories are kept together with the truth about them: what a consumer of
librdkafka read just before the broker went away.
"""

from __future__ import annotations

import fcntl
import pickle
import random
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.apache_kafka import (
    KAFKA_3_9,
    KAFKA_4,
    SHORT_SESSION,
    ApacheKafka,
    KafkaBroker,
    missing_programs,
)
from ottla.testing.broker import Broker
from ottla.testing.waiting import WAIT_S, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED = ("compacted", "compacted-transactions")
SMALL_SEGMENTS = {"segment.bytes": "16384", "index.interval.bytes": "1024"}
# A fixed past instant, so that every record's time is known.
EPOCH_MS = 1_700_000_000_000

BROKER_SETTINGS = {
    **SHORT_SESSION,
    # The records bear times of the past: only deletion by request may take them.
    "log.retention.ms": "-1",
    # Index files are made at full size: keep them small, they are copied.
    "log.index.size.max.bytes": "65536",
    "log.cleaner.backoff.ms": "100",
    # Deleted records leave the disk, and the checkpoint of log start offsets is written, within a second.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
}

TOPICS: dict[str, dict[str, str]] = {
    **{f"producer-{codec}": SMALL_SEGMENTS for codec in CODECS},
    **{f"broker-{codec}": {**SMALL_SEGMENTS, "compression.type": codec} for codec in CODECS if codec != "none"},
    "odd-records": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "shuffled-times": SMALL_SEGMENTS,
    "transactions": SMALL_SEGMENTS,
    "open-transaction": {},
    "trimmed": SMALL_SEGMENTS,
    **{
        topic: {
            **SMALL_SEGMENTS,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "1000",
        }
        for topic in COMPACTED
    },
}
TRIM_BEFORE = 333


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record as a Kafka client hands it out."""

    offset: int
    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(eq=False, slots=True)
class PartitionTruth:
    """What Kafka says of one partition (every topic has one)."""

    log_start_offset: int
    high_watermark: int
    records: list[ReadRecord] = field(default_factory=list)
    committed: list[ReadRecord] = field(default_factory=list)
    leader_epochs: dict[int, int] = field(default_factory=dict)  # offset -> leader epoch of its batch
    offset_for_time: dict[int, int] = field(default_factory=dict)  # timestamp -> first offset not before it


@dataclass(frozen=True, eq=False, slots=True)
class KafkaDirectory:
    """A `log.dirs` that Apache Kafka left behind, and the truth about it by topic."""

    path: Path
    topics: dict[str, PartitionTruth]

    @staticmethod
    def config(topic: str) -> dict[str, str]:
        """The settings as ours; of the topics that Kafka made for itself, the defaults.

        Segments as small as these are for tests only here; Kafka 3.9 has no such difference.
        """
        settings = TOPICS.get(topic, {})
        return {name.replace("segment.bytes", "internal.segment.bytes"): value for name, value in settings.items()}

    def partition(self, topic: str) -> Path:
        return self.path / f"{topic}-0"

    def copy_to(self, target: Path) -> KafkaDirectory:
        """A copy to open: opening a log may mend it, and others need the original."""
        shutil.copytree(self.path, target)
        return KafkaDirectory(target, self.topics)


@dataclass(frozen=True, slots=True)
class KafkaDirectories:
    crashed: KafkaDirectory
    clean: KafkaDirectory


@pytest.fixture(scope="session")
def kafka() -> ApacheKafka:
    return _resolve(KAFKA_3_9)


@pytest.fixture(scope="module", params=["apache", "ottla"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka and of one of ours, one after the other."""
    if request.param == "apache":
        with KafkaBroker(request.getfixturevalue("newest_kafka"), tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap
    else:
        with Broker() as broker:
            yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def newest_kafka() -> ApacheKafka:
    return _resolve(KAFKA_4)


@pytest.fixture(scope="session")
def kafka_directories(kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> KafkaDirectories:
    """Written by the first worker that asks; the others wait for it and share the files."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    result = shared / "kafka-directories.pickle"
    with (shared / "kafka-directories.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_bytes(pickle.dumps(_write_directories(kafka, shared / "kafka-directories")))
    return pickle.loads(result.read_bytes())


@pytest.fixture
def crashed(kafka_directories: KafkaDirectories, tmp_path: Path) -> KafkaDirectory:
    return kafka_directories.crashed.copy_to(tmp_path / "crashed")


@pytest.fixture
def clean(kafka_directories: KafkaDirectories, tmp_path: Path) -> KafkaDirectory:
    return kafka_directories.clean.copy_to(tmp_path / "clean")


@pytest.fixture(scope="session")
def consume_all() -> Callable[[str, Mapping[str, int], str], Iterator[Message]]:
    """Reads topics of one partition from given offsets to their end, with a given isolation level."""
    return _consume_all


def _resolve(version: str) -> ApacheKafka:
    if missing := missing_programs():
        pytest.skip(f"Apache Kafka needs {' and '.join(missing)}, not installed here")
    return ApacheKafka.resolve(version)


def _write_directories(kafka: ApacheKafka, home: Path) -> KafkaDirectories:
    broker = KafkaBroker(kafka, home / "broker", BROKER_SETTINGS)
    with broker:
        _create_topics(broker.bootstrap)
        # Held here: a producer that goes away would abort its open transaction.
        open_transaction = _write_first_part(broker)
        truth = _read_everything(broker.bootstrap)
        broker.kill()
        crashed = KafkaDirectory(home / "crashed", truth)
        shutil.copytree(broker.log_dir, crashed.path)

        # A clean stop hands leadership away, so what is written next has a leader epoch of its own.
        for step in (broker.start, broker.stop, broker.start):
            step()
        _write_second_part(broker)
        clean = KafkaDirectory(broker.log_dir, _read_everything(broker.bootstrap))
        del open_transaction
    return KafkaDirectories(crashed, clean)


def _create_topics(bootstrap: str) -> None:
    wanted = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(wanted).values():
        created.result(WAIT_S)


def _write_first_part(broker: KafkaBroker) -> Producer:
    producer = _producer(broker)
    _send_all(producer, [f"broker-{codec}" for codec in CODECS[1:]], range(400))
    _send_odd_records(producer)
    _send_all(producer, ["append-time"], range(50))
    times = list(range(400))
    random.Random(7).shuffle(times)
    _send_all(producer, ["shuffled-times"], times)
    _send_all(producer, ["trimmed"], range(500))
    _send_updates(producer, "compacted")
    _flush(producer)
    _send_with_each_codec(broker, range(400))
    for topic in ("transactions", "compacted-transactions"):
        _run_transactions(broker, topic)
    _trim(broker, "trimmed", TRIM_BEFORE)
    time.sleep(1.1)  # segment.ms: the next record starts a new segment and the old one may be compacted
    _send_all(producer, COMPACTED, range(1))
    _flush(producer)
    for topic in COMPACTED:
        _wait_for_compaction(broker, topic)
    return _begin_transaction_that_stays_open(broker, producer)


def _write_second_part(broker: KafkaBroker) -> None:
    _send_with_each_codec(broker, range(400, 450))
    producer = _producer(broker)
    _send_all(producer, ["append-time"], range(50, 60))
    _flush(producer)
    _run_transactions(broker, "transactions", first=1000)


def _producer(broker: KafkaBroker, **settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 20,
            "batch.num.messages": 25,
            "enable.idempotence": True,
            # Its complaints about a broker that was killed on purpose are no news.
            "log_level": 2,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def _value(number: int) -> bytes:
    """Compressible and incompressible in equal parts, and known from the number alone."""
    return b"value %d " % number + b"." * 60 + random.Random(number).randbytes(60)


def _send(producer: Producer, topic: str, number: int, key: bytes | None = None) -> None:
    producer.produce(
        topic,
        key=b"key %d" % number if key is None else key,
        value=_value(number),
        headers=[("number", b"%d" % number)],
        timestamp=EPOCH_MS + number * 1000,
    )


def _send_all(producer: Producer, topics: Iterable[str], numbers: Sequence[int]) -> None:
    for topic in topics:
        for number in numbers:
            _send(producer, topic, number)


def _send_with_each_codec(broker: KafkaBroker, numbers: Sequence[int]) -> None:
    producers = {codec: _producer(broker, compression_type=codec) for codec in CODECS}
    for codec, producer in producers.items():
        _send_all(producer, [f"producer-{codec}"], numbers)
    for producer in producers.values():
        _flush(producer)


def _flush(producer: Producer) -> None:
    assert producer.flush(WAIT_S) == 0


def _send_odd_records(producer: Producer) -> None:
    pairs = [(None, None), (b"", b""), (None, b"value"), (b"key", None), (bytes(range(256)), b"\xff" * 9)]
    headers: list[tuple[str, str | bytes | None]] = [("", b""), ("null", None), ("twice", b"1"), ("twice", b"2")]
    headers.append(("snow☃", b"\x00"))
    for number, (key, value) in enumerate(pairs):
        some = headers[:number]
        producer.produce("odd-records", key=key, value=value, headers=some, timestamp=EPOCH_MS - number)
    producer.produce("odd-records", value=bytes(200_000), timestamp=EPOCH_MS)


def _send_updates(producer: Producer, topic: str) -> None:
    """Twenty keys written over and over; every fifth ends with a tombstone."""
    for number in range(600):
        _send(producer, topic, number, key=b"key %d" % (number % 20))
    for number in range(0, 20, 5):
        producer.produce(topic, key=b"key %d" % number, value=None, timestamp=EPOCH_MS + 700_000)


def _run_transactions(broker: KafkaBroker, topic: str, first: int = 0) -> None:
    """Two producers, one always commits and one always aborts, with their records interleaved."""
    committer = _producer(broker, transactional_id=f"{topic}-committer", compression_type="lz4")
    aborter = _producer(broker, transactional_id=f"{topic}-aborter")
    for producer in (committer, aborter):
        producer.init_transactions(WAIT_S)
    for number in range(first, first + 200, 20):
        for producer in (committer, aborter):
            producer.begin_transaction()
        for step in range(20):
            _send(aborter if step % 3 == 0 else committer, topic, number + step, key=b"key %d" % step)
            if step % 7 == 0:
                for producer in (committer, aborter):
                    _flush(producer)
        committer.commit_transaction(WAIT_S)
        aborter.abort_transaction(WAIT_S)


def _begin_transaction_that_stays_open(broker: KafkaBroker, bystander: Producer) -> Producer:
    producer = _producer(broker, transactional_id="never-ends", transaction_timeout_ms=600_000)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for writer, numbers in (
        (bystander, range(10)),
        (producer, range(10, 20)),
        (bystander, range(20, 30)),
    ):
        _send_all(writer, ["open-transaction"], numbers)
        _flush(writer)
    return producer


def _trim(broker: KafkaBroker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        assert deleted.result(WAIT_S).low_watermark == before
    wait_until(lambda: _checkpoint(broker, "log-start-offset-checkpoint").get(topic) == before, timeout_s=WAIT_S)
    wait_until(lambda: _segment_offsets(broker, topic)[0] > 0, timeout_s=WAIT_S)


def _wait_for_compaction(broker: KafkaBroker, topic: str) -> None:
    """Until everything below the active segment was cleaned."""
    wait_until(
        lambda: _checkpoint(broker, "cleaner-offset-checkpoint").get(topic) == _segment_offsets(broker, topic)[-1],
        timeout_s=WAIT_S,
    )


def _checkpoint(broker: KafkaBroker, name: str) -> dict[str, int]:
    try:
        text = (broker.log_dir / name).read_text()
    except FileNotFoundError:
        return {}
    return {topic: int(offset) for topic, offset in re.findall(r"^(\S+) 0 (\d+)$", text, re.MULTILINE)}


def _segment_offsets(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.log_dir / f"{topic}-0").glob("*.log"))


def _read_everything(bootstrap: str) -> dict[str, PartitionTruth]:
    truth: dict[str, PartitionTruth] = {}
    asking = _consumer(bootstrap, "read_uncommitted")
    for topic in TOPICS:
        start, end = asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        truth[topic] = PartitionTruth(start, end)
    everywhere = dict.fromkeys(TOPICS, OFFSET_BEGINNING)
    for message in _consume_all(bootstrap, everywhere, "read_uncommitted"):
        partition = truth[message.topic() or ""]
        record = _record(message)
        partition.records.append(record)
        leader_epoch = message.leader_epoch()
        assert leader_epoch is not None
        partition.leader_epochs[record.offset] = leader_epoch
    for message in _consume_all(bootstrap, everywhere, "read_committed"):
        truth[message.topic() or ""].committed.append(_record(message))
    _ask_for_times(asking, truth)
    asking.close()
    return truth


def _ask_for_times(consumer: Consumer, truth: dict[str, PartitionTruth]) -> None:
    """A few moments of each topic: before, within and past its records."""
    for fraction in (0, 0.25, 0.5, 0.75, 1):
        asked = {}
        for topic, partition in truth.items():
            times = sorted(record.timestamp for record in partition.committed)
            asked[topic] = times[int(fraction * (len(times) - 1))] - (1 if fraction == 0 else 0)
        wanted = [TopicPartition(topic, 0, timestamp) for topic, timestamp in asked.items()]
        for found in consumer.offsets_for_times(wanted, timeout=WAIT_S):
            # Kafka gives up at a segment that compaction emptied, and answers -1: nothing to learn from it.
            if found.offset >= 0:
                truth[found.topic].offset_for_time[asked[found.topic]] = found.offset


def _consumer(bootstrap: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "interop",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )


def _consume_all(bootstrap: str, starts: Mapping[str, int], isolation_level: str) -> Iterator[Message]:
    consumer = _consumer(bootstrap, isolation_level)
    consumer.assign([TopicPartition(topic, 0, offset) for topic, offset in starts.items()])
    unread = set(starts)
    while unread:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"nothing more came, and these have no end yet: {unread}"
        error = message.error()
        if error is None:
            yield message
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unread.discard(message.topic() or "")
    consumer.close()


def _record(message: Message) -> ReadRecord:
    timestamp_type, timestamp = message.timestamp()
    offset = message.offset()
    assert offset is not None
    headers: Any = message.headers() or ()  # librdkafka hands out pairs
    return ReadRecord(
        offset=offset,
        timestamp=timestamp,
        is_append_time=timestamp_type == 2,
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
    )
