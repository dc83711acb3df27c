"""What callers get wrong is said at the call, whoever is called; a text is never taken letter by letter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.conftest import TOPIC_ID

from ottla.client.admin.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.client.error_codes import InvalidTopicError
from ottla.client.errors import SerializationError
from ottla.client.producer.producer import Producer
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.testing import loop

PLACE = TopicPartition("orders", 0)

ADMIN: list[Callable[[Any], Any]] = [
    lambda admin: admin.delete_topics("orders"),
    lambda admin: admin.describe_topics("orders"),
    lambda admin: admin.describe_groups("billing"),
    lambda admin: admin.delete_groups("billing"),
    lambda admin: admin.committed_offsets_of_groups("billing"),
    lambda admin: admin.fence_producers("copy"),
    lambda admin: admin.describe_transactions("copy"),
]


@pytest.mark.parametrize("number", range(len(ADMIN)))
def test_a_text_is_no_list_of_names(network: Any, number: int) -> None:
    broker = network.add(1)

    async def main() -> None:
        async with Admin(bootstrap_servers="broker:9001", connector=network.connector) as admin:
            asked = len(broker.asked)
            with pytest.raises(TypeError, match=r"a list of names is wanted, not the text '(\w+)'; write \['\1'\]"):
                await ADMIN[number](admin)
            assert len(broker.asked) == asked

    loop.run(main())


CONSUMER: list[tuple[Callable[[Any], Any], str]] = [
    (lambda consumer: consumer.assign("orders"), "a list of partitions is wanted"),
    (lambda consumer: consumer.assign(["orders"]), "a partition is a topic and a number"),
    (lambda consumer: consumer.assign([("orders", -1)]), "a number from 0 on"),
    (lambda consumer: consumer.assign([("orders", "0")]), "a number from 0 on"),
    (lambda consumer: consumer.assign([("orders", True)]), "a number from 0 on"),
    (lambda consumer: consumer.seek(PLACE, "3"), "an offset is a whole number"),
    (lambda consumer: consumer.seek(PLACE, 1.5), "an offset is a whole number"),
    (lambda consumer: consumer.seek(PLACE, 2**63), "an offset is a whole number"),
    (lambda consumer: consumer.commit({PLACE: -1}), "an offset is a whole number"),
    (lambda consumer: consumer.commit({PLACE: "3"}), "an offset is a whole number"),
    (lambda consumer: consumer.commit({"orders": 3}), "a partition is a topic and a number"),
    (lambda consumer: consumer.commit("orders"), "commit offsets by partition, a record or records"),
    (lambda consumer: consumer.commit(3), "commit offsets by partition, a record or records"),
    (lambda consumer: consumer.committed("orders"), "a list of partitions is wanted"),
    (lambda consumer: consumer.end_offsets("orders"), "a list of partitions is wanted"),
    (lambda consumer: consumer.beginning_offsets(["orders"]), "a partition is a topic and a number"),
]


async def called(call: Callable[[Consumer[Any, Any]], Any], consumer: Consumer[Any, Any]) -> None:
    result = call(consumer)
    if asyncio.iscoroutine(result):
        await result


@pytest.mark.parametrize("number", range(len(CONSUMER)))
def test_a_consumer_says_what_is_no_partition_and_no_offset(network: Any, number: int) -> None:
    call, words = CONSUMER[number]

    async def main() -> None:
        consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers="broker:9001", group_id="g", connector=network.connector
        )
        consumer.assign([PLACE])
        with pytest.raises((TypeError, ValueError), match=words):
            await called(call, consumer)
        await consumer.close(0)

    loop.run(main())


WRONG_RECORDS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"timestamp": 1.5}, ValueError),
    ({"timestamp": "now"}, ValueError),
    ({"timestamp": 2**63}, ValueError),
    ({"timestamp": -1}, ValueError),
    ({"partition": "0"}, ValueError),
    ({"partition": -1}, ValueError),
    ({"partition": 2**31}, ValueError),
    ({"value": "text"}, SerializationError),
    ({"key": 7}, SerializationError),
    ({"topic": None}, InvalidTopicError),
    ({"topic": b"orders"}, InvalidTopicError),
    ({"topic": "a topic"}, InvalidTopicError),
]


@pytest.mark.parametrize("is_known", [False, True], ids=["new topic", "known topic"])
def test_a_wrong_record_is_refused_at_the_call_and_its_neighbours_are_sent(network: Any, is_known: bool) -> None:
    broker = network.add(1)
    broker.scripts[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(
        producer_id=7, producer_epoch=0
    )
    broker.scripts[ProduceRequest] = lambda request, version: ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="orders",
                topic_id=TOPIC_ID,
                partition_responses=[PartitionProduceResponse(index=0, error_code=0, base_offset=3)],
            )
        ]
    )

    async def main() -> None:
        async with Producer(bootstrap_servers="broker:9001", connector=network.connector) as producer:
            if is_known:
                await producer.send("orders", b"first")
            for wrong, kind in WRONG_RECORDS:
                given: dict[str, Any] = {"topic": "orders", "value": b"v", **wrong}
                before = producer.send("orders", b"before")
                with pytest.raises(kind):
                    producer.send(**given)
                after = producer.send("orders", b"after")
                await asyncio.gather(before, after)

    loop.run(main())
