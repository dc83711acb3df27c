"""The producers against a broker that runs: both fronts."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pyarrow as pa
import pytest

import ottla
from ottla import aio
from ottla.client import serializers
from ottla.client.error_codes import InvalidTopicError, MessageTooLargeError
from ottla.client.errors import ClosedError, ForkedError, SerializationError, TimedOutError, UsageError
from ottla.client.fetching import Fetcher
from ottla.client.metadata import Cluster, parse_addresses
from ottla.client.offsets import OffsetSpec, list_offsets
from ottla.hashing import partition_of_key
from ottla.ids import TopicPartition
from ottla.testing.broker import Broker


@pytest.fixture
def topic_name(new_topic) -> str:
    return new_topic()[0]


def records_of(broker: Broker, topic: str, partition: int = 0) -> list:
    """Every record of a partition: key, value, headers."""

    async def read():
        place = TopicPartition(topic, partition)
        found: list[Any] = []
        async with Cluster(parse_addresses(broker.bootstrap_servers)) as cluster:
            ends = await list_offsets(cluster, {place: OffsetSpec.LATEST})
            async with Fetcher(cluster, {place: 0}, {place: ends[place].offset}) as fetcher:
                while not fetcher.is_done:
                    for fetched in await fetcher.next():
                        columns = fetched.columns()
                        found += zip(columns.keys, columns.values, columns.headers, strict=True)
        return found

    return asyncio.run(read())


def test_a_record_is_acknowledged_and_can_be_read(broker, topic_name):
    async def main():
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            delivered = await producer.send(topic_name, b"value", b"key", headers={"a": b"1", "b": None})
            assert (delivered.topic, delivered.partition, delivered.offset) == (topic_name, 0, 0)
            assert (await producer.send(topic_name, None, b"key", timestamp=5)).timestamp == 5

    asyncio.run(main())
    assert records_of(broker, topic_name) == [
        (b"key", b"value", (("a", b"1"), ("b", None))),
        (b"key", None, ()),
    ]


def test_the_blocking_producer_does_the_same(broker, topic_name):
    with ottla.Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"}) as producer:
        futures = [producer.send(topic_name, b"%d" % number) for number in range(1000)]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(1000))
    assert [value for _, value, _ in records_of(broker, topic_name)] == [b"%d" % number for number in range(1000)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ottla-producer")]


def test_many_threads_may_send(broker, topic_name):
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=0.001) as producer:

        def work(name: int) -> None:
            for number in range(200):
                producer.send(topic_name, b"%d" % number, b"%d" % name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = records_of(broker, topic_name)
    for name in range(5):
        assert [value for key, value, _ in found if key == b"%d" % name] == [b"%d" % number for number in range(200)]


def test_closing_sends_what_was_accepted(broker, topic_name):
    producer = ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=30, delivery_timeout_s=61)
    future = producer.send(topic_name, b"value")
    producer.close()
    assert future.done()
    assert future.result(0).offset == 0
    producer.close()
    with pytest.raises(ClosedError, match="the producer is closed"):
        producer.send(topic_name, b"value")
    with pytest.raises(ClosedError):
        producer.flush()


def test_closing_what_never_began_is_nothing(broker):
    async def main():
        await aio.Producer(bootstrap_servers=broker.bootstrap_servers).close()

    asyncio.run(main())


def test_keys_decide_and_serializers_make_bytes(broker, new_topic):
    topic, _ = new_topic(partitions=7)
    with ottla.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=serializers.text,
        value_serializer=serializers.json_values,
    ) as producer:
        delivered = producer.send(topic, {"a": 1}, "customer").result(60)
        assert delivered.partition == partition_of_key(b"customer", 7)
        assert producer.send(topic, {"a": 2}, "customer", partition=3).result(60).partition == 3
    assert records_of(broker, topic, delivered.partition) == [(b"customer", b'{"a":1}', ())]


def test_wrong_input_is_an_error_at_the_call_and_the_producer_goes_on(broker, topic_name):
    not_bytes: Any = "text"
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match=r"the value of a record for .* is str, not bytes"):
            producer.send(topic_name, not_bytes)
        with pytest.raises(MessageTooLargeError, match="max_request_size is 1048576"):
            producer.send(topic_name, bytes(2_000_000))
        with pytest.raises(InvalidTopicError, match="'a topic' is not the name of a topic"):
            producer.send("a topic", b"")
        with pytest.raises(ValueError, match="there is no partition -1"):
            producer.send(topic_name, b"", partition=-1)
        with pytest.raises(ValueError, match="cannot be -5"):
            producer.send(topic_name, b"", timestamp=-5)
        with pytest.raises(TypeError, match="a header is a name and bytes"):
            producer.send(topic_name, b"", headers={"a": not_bytes})
        assert producer.send(topic_name, b"value").result(60).offset == 0


def test_callbacks_come_in_order_and_must_not_wait(broker, topic_name):
    seen = []
    refused = []
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def delivered(metadata, error):
            seen.append(metadata.offset)
            try:
                producer.flush()
            except UsageError as usage:
                refused.append(str(usage))

        for number in range(50):
            producer.send(topic_name, b"%d" % number, on_delivery=delivered)
        producer.flush()
    assert seen == list(range(50))
    assert refused[0].startswith("a callback must not wait")


def test_a_partition_that_is_not_there_is_an_error_in_time(broker, topic_name):
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=2000) as producer:
        producer.send(topic_name, b"value").result(60)
        with pytest.raises(TimedOutError, match="has 1 partitions"):
            producer.send(topic_name, b"value", partition=9)


def test_a_child_cannot_use_the_producer_of_its_parent(broker, topic_name):
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        child = os.fork()
        if not child:
            try:
                producer.send(topic_name, b"value")
            except ForkedError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(topic_name, b"value").result(60).offset == 0


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(broker, topic_name, acks):
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, acks=acks) as producer:
        futures = [producer.send(topic_name, b"%d" % number) for number in range(10)]
        producer.flush()
        assert futures[-1].result(0).offset == (-1 if acks == 0 else 9)
    assert len(records_of(broker, topic_name)) == 10


@pytest.mark.parametrize("kind", ["lists", "arrow", "numpy"])
def test_columns_go_where_their_keys_say_and_keep_their_order(broker, new_topic, kind):
    topic, _ = new_topic(partitions=3)
    keys = [b"key %d" % (number % 5) for number in range(3000)]
    values = [b"%d" % number for number in range(3000)]
    columns = {
        "lists": lambda column: column,
        "arrow": pa.array,
        "numpy": lambda column: pytest.importorskip("numpy").array(column, dtype=object),
    }[kind]
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
        producer.send(topic, b"before", b"key 1")
        appended = producer.send_columns(topic, columns(values), columns(keys)).result(60)
        producer.send(topic, b"after", b"key 1").result(60)
        assert sum(each.record_count for each in appended) == 3000
        with pytest.raises(MessageTooLargeError):
            producer.send_columns(topic, [bytes(2_000_000)])
        assert producer._core._accumulator.pool.available_bytes == producer._core._accumulator.pool.limit_bytes
    for partition in range(3):
        expected = [
            (key, value) for key, value in zip(keys, values, strict=True) if partition_of_key(key, 3) == partition
        ]
        found = [(key, value) for key, value, _ in records_of(broker, topic, partition)]
        if partition == partition_of_key(b"key 1", 3):
            assert (found.pop(0)[1], found.pop()[1]) == (b"before", b"after")
        assert found == expected


def test_keyless_columns_and_those_for_one_partition(broker, new_topic):
    async def main():
        topic, _ = new_topic(partitions=2)
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
            future = await producer.send_columns(topic, [bytes(100)] * 100, timestamps=list(range(100)))
            assert sum(each.record_count for each in await future) == 100
            assert len(await future) > 5
            (one,) = await (await producer.send_columns(topic, [b"x"], partition=1, headers=[[("a", b"b")]]))
            assert one.partition == 1

    asyncio.run(main())


def test_columns_that_are_too_large_for_the_topic_are_split(broker, new_topic):
    topic, _ = new_topic(config={"max.message.bytes": "2000"})
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        appended = producer.send_columns(topic, [b"%03d" % number * 50 for number in range(100)]).result(60)
        assert [each.base_offset for each in appended] == sorted(each.base_offset for each in appended)
        assert sum(each.record_count for each in appended) == 100
    assert [value[:3] for _, value, _ in records_of(broker, topic)] == [b"%03d" % number for number in range(100)]


def test_a_partitioner_that_fails_fails_its_record_also_where_that_waited_for_its_topic(
    broker: Broker, topic_name: str
) -> None:
    def partitioner(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        if key == b"bad":
            raise LookupError("no partition for this key")
        return 0

    async def main() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, partitioner=partitioner) as producer:
            waiting = [producer.send(topic_name, b"value", key) for key in (b"bad", b"good", b"bad")]
            for future in waiting[::2]:
                with pytest.raises(LookupError, match="for this key"):
                    await future
            assert (await waiting[1]).offset == 0
            with pytest.raises(LookupError, match="for this key"):
                producer.send(topic_name, b"value", b"bad")
            await producer.flush()

    asyncio.run(main())


def test_a_producer_with_tls_says_so_where_the_listener_has_none(broker: Broker, topic_name: str) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL", "max_block_ms": 1000}
    with ottla.Producer(settings) as producer:
        with pytest.raises(TimedOutError, match="does this listener speak TLS"):
            producer.send(topic_name, b"value")
        producer.close(0)
