"""What the tests of the consumer share: topics that are filled, and ways to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from ottla.client.consumer.consumer import Consumer
from ottla.client.values import ConsumerRecord
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import one_batch, produce_to_many
from ottla.testing.waiting import WAIT_S

PROTOCOLS = ["classic", "consumer"]

Topic = Callable[..., str]
Make = Callable[..., Consumer[Any, Any]]


def fill(
    client: RawClient, topic: str, partition: int, numbers: range, compression: Compression = Compression.NONE
) -> None:
    for start in range(0, len(numbers), 10):
        some = numbers[start : start + 10]
        data = one_batch(
            *(b"%d" % number for number in some),
            keys=[b"k%d" % (number % 3) for number in some],
            timestamps=[1000 * number for number in some],
            compression=compression,
        )
        answer = client.ask(produce_to_many(topic, [(partition, data)]), 9)
        assert not answer.responses[0].partition_responses[0].error_code


def settings_of(broker: Broker) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}


async def read(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    """So many records, one by one."""
    found: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(WAIT_S):
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


async def until(consumers: Collection[Consumer[Any, Any]], condition: Callable[[], bool]) -> None:
    """Polls all of them, as their users would, until it is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.gather(*(consumer.poll(0.05, max_records=0) for consumer in consumers))
