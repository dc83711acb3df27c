"""Producers and consumers whose serializers ask a schema registry: their event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import ottla
from ottla import aio
from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.errors import ClosedError, SerializationError
from ottla.client.serializers import AvroSerde, Context, SchemaNotFoundError, SchemaRegistry
from ottla.testing.schema_registry import SchemaRegistryServer

SCHEMA = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
WAIT_S = 60.0


class Held:
    """A registry whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        self.server = SchemaRegistryServer(before_answer=self._wait)

    def _wait(self, target: str) -> None:
        self.asked.set()
        assert self.released.wait(WAIT_S)

    async def release_once_asked(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self.asked.is_set():
                await asyncio.sleep(0.001)  # only a loop that runs gets here
        self.released.set()

    @property
    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(self.server.url, timeout_s=WAIT_S)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    with made.server:
        yield made
        made.released.set()


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


async def read(broker, topic, count, serde, **settings):
    async with aio.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=serde,
        **settings,
    ) as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        found = []
        async with asyncio.timeout(WAIT_S):
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    return found
        raise AssertionError


def test_records_wait_in_order_while_the_registry_is_asked_and_the_loop_goes_on(broker, new_topic, held):
    topic, _ = new_topic()

    async def run():
        sent = []
        async with aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerde(held.registry, SCHEMA)
        ) as producer:
            futures = [
                producer.send(
                    topic, {"n": number}, on_delivery=lambda metadata, _: sent.append(metadata and metadata.offset)
                )
                for number in range(5)
            ]
            await held.release_once_asked()
            assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
        assert sent == [0, 1, 2, 3, 4]
        return await read(broker, topic, 5, AvroSerde(held.registry))

    assert asyncio.run(run()) == [{"n": number} for number in range(5)]


def test_interceptors_see_a_record_that_waits_once(broker, new_topic, server):
    topic, _ = new_topic()
    seen = []

    class Watching:
        def on_send(self, record):
            seen.append(record.value)
            return record

    async def run():
        async with aio.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            value_serializer=AvroSerde(SchemaRegistry(server.url), SCHEMA),
            interceptors=[Watching()],
        ) as producer:
            await producer.send(topic, {"n": 1})

    asyncio.run(run())
    assert seen == [{"n": 1}]


def test_a_registry_that_refuses_fails_the_record_and_the_producer_goes_on(broker, new_topic, server):
    topic, _ = new_topic()
    serde = AvroSerde(SchemaRegistry(server.url), SCHEMA, id_policy="registered")

    async def run():
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=serde) as producer:
            with pytest.raises(SerializationError, match="-value' not found") as caught:
                await producer.send(topic, {"n": 1})
            assert isinstance(caught.value.__cause__, SchemaNotFoundError)
            serde.registry._known.clear()  # what a second would do
            await asyncio.to_thread(SchemaRegistry(server.url).register, f"{topic}-value", serde._own_schema(None))
            assert (await producer.send(topic, {"n": 2})).offset == 0

    asyncio.run(run())


def test_what_waits_for_the_registry_fails_when_the_producer_is_closed(broker, new_topic, held):
    topic, _ = new_topic()

    async def run():
        producer = aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerde(held.registry, SCHEMA)
        )
        future = producer.send(topic, {"n": 1})
        await producer.close(timeout_s=0.01)
        with pytest.raises(ClosedError):
            await future

    asyncio.run(run())


def test_a_blocking_producer_waits_in_its_own_thread(broker, new_topic, server):
    topic, _ = new_topic()
    registry = SchemaRegistry(server.url)
    with ottla.Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerde(registry, SCHEMA, id_place="header")
    ) as producer:
        assert producer.send(topic, {"n": 1}).result().offset == 0
        assert producer.send(topic, None).result().offset == 1
    with ottla.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroSerde(SchemaRegistry(server.url)),
    ) as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        records = iter(consumer)
        assert next(records).value == {"n": 1}
        assert next(records).value is None


def test_a_blocking_producer_in_somebody_elses_loop_works_as_well(broker, new_topic, server):
    topic, _ = new_topic()

    async def run():
        with ottla.Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerde(SchemaRegistry(server.url), SCHEMA)
        ) as producer:
            return producer.send(topic, {"n": 1}).result().offset

    assert asyncio.run(run()) == 0


def test_a_consumer_keeps_its_place_and_its_loop_while_the_registry_is_asked(broker, new_topic, held):
    topic, _ = new_topic()
    held.released.set()
    other = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}, {"name": "m", "type": "long"}]}
    registry = held.registry
    registry.set_compatibility("NONE")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=1) as producer:
        first, second = AvroSerde(registry, SCHEMA), AvroSerde(registry, other)
        context = Context(topic, is_key=False)
        # One batch with two schemas, so that the second look-up comes in the middle of it.
        values = [
            first.dumps({"n": 0}, context),
            first.dumps({"n": 1}, context),
            second.dumps({"n": 2, "m": 3}, context),
        ]
        for value in values:
            producer.send(topic, value)
    held.asked.clear()
    held.released.clear()

    async def run():
        reading = asyncio.ensure_future(read(broker, topic, 3, AvroSerde(held.registry)))
        await held.release_once_asked()
        return await reading

    assert asyncio.run(run()) == [{"n": 0}, {"n": 1}, {"n": 2, "m": 3}]


@pytest.fixture
def mixed_topic(broker, new_topic, server) -> str:
    """Good, not of a registry, of an unknown id, good."""
    topic, _ = new_topic()
    serde = AvroSerde(SchemaRegistry(server.url), SCHEMA)
    context = Context(topic, is_key=False)
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in (serde.dumps({"n": 1}, context), b"{}", b"\0\0\0\0\x63\2", serde.dumps({"n": 2}, context)):
            producer.send(topic, value)
    return topic


def test_bad_records_can_be_skipped(broker, server, mixed_topic):
    serde = AvroSerde(SchemaRegistry(server.url))
    assert asyncio.run(read(broker, mixed_topic, 2, serde, on_bad_record="skip")) == [{"n": 1}, {"n": 2}]


def test_bad_records_can_be_handed_to_a_callable(broker, server, mixed_topic):
    errors = []

    def note(record, error):
        errors.append(error)
        return record._replace(value=f"bad at {record.offset}")

    found = asyncio.run(read(broker, mixed_topic, 4, AvroSerde(SchemaRegistry(server.url)), on_bad_record=note))
    assert found == [{"n": 1}, "bad at 1", "bad at 2", {"n": 2}]
    assert "not written with a schema registry" in str(errors[0])
    assert "Schema 99 not found" in str(errors[1])


def test_a_bad_record_is_raised_in_its_turn(broker, server, mixed_topic):
    with ottla.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroSerde(SchemaRegistry(server.url)),
    ) as consumer:
        consumer.assign([ottla.TopicPartition(mixed_topic, 0)])
        assert next(iter(consumer)).value == {"n": 1}
        for offset in (1, 2):
            with pytest.raises(RecordDeserializationError) as caught:
                consumer.poll(WAIT_S)
            assert caught.value.offset == offset
            consumer.seek(caught.value.partition, offset + 1)
        (found,) = consumer.poll(WAIT_S).values()
        assert found[0].value == {"n": 2}
