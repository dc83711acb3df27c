"""Real Spark for the tests: one session in this process for all of them, with Spark's own connector beside ours.

These tests run in one process (no xdist): a process has one Java machine, and starting it is what takes time. Brokers
are processes too, so that a test can kill them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from ottla.errors import ConfigError
from ottla.spark import class_archive
from ottla.spark.installation import check_installation
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.maven import MavenError
from ottla.testing.spark_connector import connector_jars

WAIT_S = 120.0
POLL_S = 0.05
# These brokers live for many minutes, and `send` stamps records with times of years ago.
KEPT_FOR_EVER = {"log.retention.ms": "-1"}


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where Spark cannot start, and says what is missing."""
    try:
        check_installation()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def connector() -> str:
    """The jars of Spark's own connector; tests that ask for it are skipped where they cannot be had."""
    if missing := missing_programs():
        pytest.skip(f"Spark's own connector needs {' and '.join(missing)}, not installed here")
    try:
        return connector_jars()
    except MavenError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(
    java: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session of all tests: two cores of this machine, everything it writes in a temporary directory."""
    class_archive.find_or_make()  # these tests start many drivers
    home = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    # The jars must be there when Java starts. Without them only the tests that ask for `connector` are skipped.
    with contextlib.suppress(pytest.skip.Exception):
        config["spark.jars"] = request.getfixturevalue("connector")
    session = ottla.spark.session("tests", "local[2]", config=config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker beside this process for all tests that name their topics apart and do not harm it."""
    with Broker({"num.partitions": "2", **KEPT_FOR_EVER}, in_process=False) as running:
        yield running


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := missing_programs():
        pytest.skip(f"Apache Kafka needs {' and '.join(missing)}, not installed here")
    with KafkaBroker(ApacheKafka.resolve(KAFKA_4), tmp_path_factory.mktemp("kafka"), KEPT_FOR_EVER) as running:
        yield running.bootstrap


_numbers = count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"{request.node.originalname}-{next(_numbers)}"[-200:]


Row = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="session")
def create_topic() -> Callable[..., None]:
    """Makes a topic, with librdkafka: a client that knows neither Ottla nor Spark."""

    def create(servers: str, topic: str, partitions: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(WAIT_S)

    return create


@pytest.fixture(scope="session")
def send() -> Callable[..., None]:
    """Writes records `number -> value number` into the two partitions of a topic in turn, and waits for them."""

    def write(servers: str, topic: str, numbers: Iterable[int], **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, **named})
        for number in numbers:
            producer.produce(
                topic,
                key=b"%d" % number,
                value=b"value %d" % number,
                partition=number % 2,
                headers=[("number", b"%d" % number), ("null", None)] if number % 3 == 0 else None,
                timestamp=1_700_000_000_000 + number * 1000,
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    return write


@pytest.fixture(scope="session")
def receive() -> Callable[[str, str], list[Row]]:
    """All records of a topic as keys and values, partition by partition."""

    def read(servers: str, topic: str) -> list[Row]:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False})
        partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        rows: list[Row] = []
        for number in sorted(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)
            consumer.assign([TopicPartition(topic, number, 0)])
            offset = 0
            while offset < end:
                message = consumer.poll(WAIT_S)
                assert message is not None, f"nothing more came of {topic}-{number} after {offset} of {end}"
                assert message.error() is None, message.error()
                rows.append((message.key(), message.value()))
                at = message.offset()
                assert at is not None
                offset = at + 1
        consumer.close()
        return rows

    return read


class Until(Protocol):
    def __call__(self, condition: Callable[[], object], what: str, *queries: StreamingQuery) -> None: ...


@pytest.fixture(scope="session")
def until() -> Until:
    """Waits until a condition holds. A query that fails meanwhile, or too long a wait, fails the test and says why."""

    def wait(condition: Callable[[], object], what: str, *queries: StreamingQuery) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            for query in queries:
                if (failure := query.exception()) is not None:
                    raise failure
                assert query.isActive, f"the query ended before this was so: {what}"
            last = [query.lastProgress for query in queries]
            assert time.monotonic() < deadline, f"not so within {WAIT_S:.0f} s: {what}. Last progress: {last}"
            time.sleep(POLL_S)

    return wait


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def stopped(spark: SparkSession) -> Iterator[Callable[[StreamingQuery], StreamingQuery]]:
    """`stopped(query)` is the query, which the end of the test will stop."""
    queries: list[StreamingQuery] = []

    def remember(query: StreamingQuery) -> StreamingQuery:
        queries.append(query)
        return query

    yield remember
    for query in queries:
        query.stop()
