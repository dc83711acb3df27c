"""Our producer against Apache Kafka and against our broker: read back by librdkafka, which shares no code with us."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import ottla
from ottla import aio
from ottla.client.error_codes import MessageTooLargeError
from ottla.client.errors import AbortableError, RestartError
from ottla.hashing import partition_of_key
from ottla.testing.waiting import WAIT_S

numbers = count()


@pytest.fixture
def new_topic(bootstrap):
    def new_topic(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(numbers)}"

        with ottla.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(name, partitions, config=configs)
        return name

    return new_topic


def read(bootstrap: str, topic: str, partition: int, wanted: int) -> list[tuple[bytes | None, bytes | None, list]]:
    """The first records of a partition that a reader of committed data sees."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "check.crcs": True}
    )
    found: list[tuple[bytes | None, bytes | None, list]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while len(found) < wanted:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} of {wanted} records"
            assert message.error() is None, message.error()
            found.append((message.key(), message.value(), list(message.headers() or [])))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_in_order_with_keys_headers_and_offsets(bootstrap, new_topic, codec):
    topic = new_topic(partitions=3)
    with ottla.Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        futures = [
            producer.send(topic, b"%d" % number, b"key %d" % (number % 5), headers=[("h", b"%d" % number), ("n", None)])
            for number in range(300)
        ]
        producer.flush()
        places = [future.result(0) for future in futures]
    for key in range(5):
        partition = partition_of_key(b"key %d" % key, 3)
        assert {place.partition for number, place in enumerate(places) if number % 5 == key} == {partition}
    for partition in range(3):
        expected = [
            (b"key %d" % (number % 5), b"%d" % number, [("h", b"%d" % number), ("n", None)])
            for number, place in enumerate(places)
            if place.partition == partition
        ]
        assert read(bootstrap, topic, partition, len(expected)) == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(bootstrap, new_topic, acks):
    topic = new_topic()

    async def main() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
            futures = [producer.send(topic, b"%d" % number) for number in range(50)]
            offsets = [(await future).offset for future in futures]
        assert offsets == ([-1] * 50 if acks == "0" else list(range(50)))

    asyncio.run(main())
    assert [value for _, value, _ in read(bootstrap, topic, 0, 50)] == [b"%d" % number for number in range(50)]


def test_batches_that_are_too_large_are_split(bootstrap, new_topic):
    topic = new_topic(**{"max.message.bytes": "2000"})
    with ottla.Producer(bootstrap_servers=bootstrap, batch_size=100_000, linger_s=0.05) as producer:
        futures = [producer.send(topic, b"%03d" % number * 50) for number in range(200)]
        too_large = producer.send(topic, bytes(5000))
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(200))
        assert isinstance(too_large.exception(0), MessageTooLargeError)
        assert producer.send(topic, b"after").result(WAIT_S).offset == 200


def test_transactions_are_seen_when_they_are_committed(bootstrap, new_topic):
    topic, group = new_topic(), f"group-{next(numbers)}"

    async def main() -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"}
        async with aio.Producer(settings) as producer:
            for number in range(4):
                await producer.init_transactions() if not number else None
                producer.begin_transaction()
                await producer.send(topic, b"%d" % number)
                await producer.send_offsets_to_transaction({ottla.TopicPartition(topic, 0): number}, group)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
            async with aio.Producer(settings) as successor:
                producer.begin_transaction()
                await producer.send(topic, b"lost")
                async with successor.transaction() as t:
                    t.send(topic, b"last")
                with pytest.raises((RestartError, AbortableError)):
                    await producer.commit_transaction()

    asyncio.run(main())
    assert [value for _, value, _ in read(bootstrap, topic, 0, 3)] == [b"0", b"2", b"last"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
        assert committed.offset == 2
    finally:
        consumer.close()
