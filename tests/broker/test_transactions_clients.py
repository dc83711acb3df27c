"""Transactions with other people's clients: commit, abort, isolation, fencing, the loop that copies exactly once."""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_transactions import RawProducer
from ottla.testing.waiting import WAIT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    import kafka
    import kafka.errors

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}) as running:
        yield running


@pytest.fixture
def new_topic(broker: Broker) -> Callable[[int], str]:
    def new_topic(partitions: int = 1) -> str:
        name = f"clients-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions)])[name].result(WAIT_S)
        return name

    return new_topic


@pytest.fixture
def transactional_id() -> str:
    return f"client-tx-{next(_numbers)}"


# -- librdkafka --------------------------------------------------------------------------------------------------------


def librdkafka_producer(broker: Broker, transactional_id: str, **settings: Any) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(WAIT_S)
    return producer


def read_all(broker: Broker, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """The first `count` values of a topic of one partition, in order; and that there are no more of them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"reader-{next(_numbers)}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while True:
            assert time.monotonic() < deadline, f"{len(values)} of {count} came: {values[:5]}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value() or b"")
            elif len(values) >= count:
                return values
    finally:
        consumer.close()


def test_librdkafka_commits_and_aborts(broker: Broker, new_topic: Callable[..., str], transactional_id: str) -> None:
    topic = new_topic()
    producer = librdkafka_producer(broker, transactional_id)
    for number, commits in enumerate((True, False, True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, f"{number}".encode())
        producer.flush(WAIT_S)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    assert read_all(broker, topic, 3) == [b"0", b"2", b"4"]
    assert read_all(broker, topic, 5, "read_uncommitted") == [b"0", b"1", b"2", b"3", b"4"]


def test_librdkafka_is_fenced_by_its_successor(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic()
    first = librdkafka_producer(broker, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"lost")
    first.flush(WAIT_S)
    second = librdkafka_producer(broker, transactional_id)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        first.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"kept")
    second.commit_transaction(WAIT_S)
    assert read_all(broker, topic, 1) == [b"kept"]


def test_librdkafka_copies_each_record_once_with_the_offsets_of_its_group(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    source, target, group = new_topic(), new_topic(), f"copy-{next(_numbers)}"
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(50):
        plain.produce(source, f"{number}".encode())
    plain.flush(WAIT_S)
    copied = 0
    for life in range(3):  # each life but the last ends in the middle of a transaction
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        producer = librdkafka_producer(broker, transactional_id)
        consumer.subscribe([source])
        deadline = time.monotonic() + WAIT_S
        while copied < (20, 40, 50)[life]:
            assert time.monotonic() < deadline, f"{copied} were copied in life {life}"
            messages = consumer.consume(10, 0.5)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                assert message.error() is None
                producer.produce(target, message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
            )
            producer.commit_transaction(WAIT_S)
            copied += len(messages)
        if life < 2:
            producer.begin_transaction()
            producer.produce(target, b"never seen")
            producer.flush(WAIT_S)
        consumer.close()
    assert read_all(broker, target, 50) == [f"{number}".encode() for number in range(50)]


def test_librdkafka_notices_that_its_time_was_up(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic()
    producer = librdkafka_producer(broker, transactional_id, **{"transaction.timeout.ms": 3000})
    producer.begin_transaction()
    producer.produce(topic, b"slow")
    producer.flush(WAIT_S)
    assert read_all(broker, topic, 0) == []
    with RawClient(broker.bootstrap_servers) as client:
        RawProducer(client, transactional_id).wait_for_state("CompleteAbort")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(WAIT_S)
    assert read_all(broker, topic, 0) == []


# -- kafka-python ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("leaves_sockets")
def test_kafka_python_commits_aborts_and_is_fenced(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic()
    with closing(
        kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
    ) as producer:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send(topic, f"{number}".encode()).get(WAIT_S)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        assert read_all(broker, topic, 2) == [b"0", b"2"]
        with closing(
            kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
        ) as successor:
            successor.init_transactions()
            producer.begin_transaction()
            with pytest.raises(kafka.errors.KafkaError):
                producer.send(topic, b"late").get(WAIT_S)
            successor.begin_transaction()
            successor.send(topic, b"3").get(WAIT_S)
            successor.commit_transaction()
    assert read_all(broker, topic, 3) == [b"0", b"2", b"3"]


@pytest.mark.usefixtures("leaves_sockets")
def test_kafka_python_reads_what_was_committed(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic()
    producer = librdkafka_producer(broker, transactional_id)
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % commits)
        producer.flush(WAIT_S)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_S * 1000,
        )
    ) as consumer:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"1"


# -- aiokafka ----------------------------------------------------------------------------------------------------------


def test_aiokafka_copies_each_record_once(broker: Broker, new_topic: Callable[..., str], transactional_id: str) -> None:
    source, target, group = new_topic(), new_topic(), f"copy-{next(_numbers)}"

    async def copy() -> None:
        where = {"bootstrap_servers": broker.bootstrap_servers}
        async with aiokafka.AIOKafkaProducer(**where) as plain:
            for number in range(20):
                await plain.send_and_wait(source, f"{number}".encode())
        consumer = aiokafka.AIOKafkaConsumer(
            source, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", **where
        )
        async with (
            consumer,
            aiokafka.AIOKafkaProducer(transactional_id=transactional_id, **where) as producer,
        ):
            copied = 0
            while copied < 20:
                batches = await asyncio.wait_for(consumer.getmany(timeout_ms=500, max_records=7), WAIT_S)
                for partition, messages in batches.items():
                    async with producer.transaction():
                        for message in messages:
                            await producer.send(target, message.value)
                        await producer.send_offsets_to_transaction({partition: messages[-1].offset + 1}, group)
                    copied += len(messages)
            await producer.begin_transaction()
            await producer.send_and_wait(target, b"never seen")
            await producer.abort_transaction()

    asyncio.run(copy())
    assert read_all(broker, target, 20) == [f"{number}".encode() for number in range(20)]


def test_aiokafka_is_fenced_by_its_successor(
    broker: Broker, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic()

    async def race() -> None:
        where = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": transactional_id}
        first = aiokafka.AIOKafkaProducer(**where)
        await first.start()
        try:
            await first.begin_transaction()
            await first.send_and_wait(topic, b"lost")
            async with aiokafka.AIOKafkaProducer(**where) as second, second.transaction():
                await second.send_and_wait(topic, b"kept")
            with pytest.raises(aiokafka.errors.KafkaError):
                await first.commit_transaction()
        finally:
            await first.stop()

    asyncio.run(race())
    assert read_all(broker, topic, 1) == [b"kept"]
