"""What is built on consumer and producer together: dead letters, and copies that are exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import ottla
from ottla import ConsumerRecord, ProducerRecord, TopicPartition, aio
from ottla.client.consumer.copying import copy
from ottla.client.consumer.redelivery import BlockingRedelivery, Letter, Policy, Redelivery, attempts_of
from ottla.client.errors import UsageError
from ottla.testing.broker import Broker
from ottla.testing.waiting import WAIT_S


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def record(*headers: tuple[str, bytes | None]) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 3, 7, 0, 0, b"k", b"v", headers)


def test_a_record_is_tried_again_and_then_goes_where_it_does_no_harm() -> None:
    policy = Policy("dead", attempts=3, pause_s=0.5)
    error = ValueError("no")
    assert policy.after(record(), 1, error) == 0.5
    assert policy.after(record(), 2, error) == 1.0
    letter = policy.after(record(("own", b"x")), 3, error)
    assert letter == Letter(
        "dead",
        [
            ("own", b"x"),
            ("ottla.topic", b"t"),
            ("ottla.partition", b"3"),
            ("ottla.offset", b"7"),
            ("ottla.attempt", b"3"),
            ("ottla.error", b"ValueError: no"),
        ],
    )
    with pytest.raises(ValueError, match="attempts"):
        Policy("dead", attempts=0)


def test_a_retry_topic_carries_how_often_a_record_was_tried_and_where_it_was_first() -> None:
    policy = Policy("dead", "again", attempts=2)
    first = policy.after(record(), 1, ValueError())
    assert isinstance(first, Letter)
    assert first.topic == "again"
    back = record(*first.headers)._replace(topic="again", offset=0)
    assert attempts_of(back) == 1
    last = policy.after(back, 2, ValueError())
    assert isinstance(last, Letter)
    assert last.topic == "dead"
    assert ("ottla.topic", b"t") in last.headers
    assert [name for name, _ in last.headers].count("ottla.attempt") == 1


def settings(broker: Broker, **others: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest", **others}


def test_bad_records_end_as_dead_letters_and_the_others_are_handled(
    broker: Broker, new_topic: Callable[..., tuple[str, UUID]]
) -> None:
    topic, dead, again = (new_topic()[0] for _ in range(3))

    async def main() -> None:
        done: list[bytes | None] = []
        async with (
            aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=0) as producer,
            aio.Consumer(topic, again, **settings(broker, group_id=f"g-{topic}")) as consumer,
            aio.Consumer(**settings(broker)) as reader,
        ):
            for number in range(5):
                await producer.send(topic, b"%d" % number, b"key")

            def handle(record: ConsumerRecord[bytes, bytes]) -> None:
                if record.value == b"2":
                    raise LookupError("two")
                done.append(record.value)

            letters = Redelivery(producer, dead_topic=dead, retry_topic=again, attempts=2)
            working = asyncio.create_task(consumer.process(letters.around(handle)))
            reader.assign([TopicPartition(dead, 0)])
            async with asyncio.timeout(WAIT_S):
                (letter,) = await reader.take(WAIT_S)
                while len(done) < 4:
                    await asyncio.sleep(0.01)
                consumer.wakeup()
                await working
            assert letter.value == b"2"
            assert dict(letter.headers)["ottla.attempt"] == b"2"
            assert dict(letter.headers)["ottla.topic"] == topic.encode()
            assert done == [b"0", b"1", b"3", b"4"]
            places = [TopicPartition(topic, 0), TopicPartition(again, 0)]
            committed = await consumer.committed(places)
            assert [offset.offset for offset in committed.values() if offset] == [5, 1]

    asyncio.run(main())


def test_dead_letters_without_a_loop(broker: Broker, new_topic: Callable[..., tuple[str, UUID]]) -> None:
    topic, dead = (new_topic()[0] for _ in range(2))
    tried: list[bytes | None] = []
    with (
        ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=0) as producer,
        ottla.Consumer(topic, **settings(broker, group_id=f"g-{topic}")) as consumer,
        ottla.Consumer(**settings(broker)) as reader,
    ):
        for number in range(3):
            producer.send(topic, b"%d" % number).result(WAIT_S)

        def handle(record: ConsumerRecord[bytes, bytes]) -> None:
            tried.append(record.value)
            if record.value == b"2":
                consumer.wakeup()
            if record.value == b"1":
                raise LookupError("one")

        letters = BlockingRedelivery(producer, dead_topic=dead, attempts=2, pause_s=0.001)
        consumer.process(letters.around(handle), order="partition")
        reader.assign([TopicPartition(dead, 0)])
        assert [letter.value for letter in reader.take(WAIT_S)] == [b"1"]
    assert tried == [b"0", b"1", b"1", b"2"]


def test_a_copy_is_exactly_once_through_a_transform_that_fails(
    broker: Broker, new_topic: Callable[..., tuple[str, UUID]]
) -> None:
    source, target = (new_topic()[0] for _ in range(2))

    async def main() -> None:
        async with (
            aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_s=0) as writer,
            aio.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=f"copy-{source}") as producer,
            aio.Consumer(**settings(broker, isolation_level="read_committed")) as reader,
        ):
            for number in range(20):
                await writer.send(source, b"%d" % number)
            fails_at = [7, 13]

            async def run() -> None:
                made = settings(
                    broker, group_id=f"g-{source}", isolation_level="read_committed", enable_auto_commit=False
                )
                async with aio.Consumer(source, **made) as consumer:

                    def transform(record: ConsumerRecord[bytes, bytes]) -> ProducerRecord[bytes, bytes] | None:
                        if fails_at and record.offset == fails_at[0]:
                            del fails_at[0]
                            raise LookupError("now")
                        if record.offset == 19:
                            consumer.wakeup()
                        return None if record.offset % 2 else ProducerRecord(target, record.value, record.key)

                    await copy(consumer, producer, transform, max_records=3)

            async with asyncio.timeout(WAIT_S):
                for _ in range(2):
                    with pytest.raises(LookupError):
                        await run()
                await run()
                reader.assign([TopicPartition(target, 0)])
                found: list[bytes | None] = []
                while len(found) < 10:
                    found += [record.value for record in await reader.take(WAIT_S)]
            assert found == [b"%d" % number for number in range(0, 20, 2)]

    asyncio.run(main())


def test_a_copy_does_not_commit_behind_the_transactions_back(broker: Broker) -> None:
    async def main() -> None:
        async with (
            aio.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer,
            aio.Consumer(**settings(broker, group_id="g")) as consumer,
        ):
            with pytest.raises(UsageError, match="enable_auto_commit"):
                await copy(consumer, producer, lambda record: None)

    asyncio.run(main())
