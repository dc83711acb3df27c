"""Consumers of a group, in both protocols: commits, and members that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.listeners import RebalanceListener
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.ids import TopicPartition
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic
from ottla.testing.waiting import WAIT_S

from .scene import PROTOCOLS, Make, Topic, fill, read, until

# -- commits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_of_all_kinds(consumer_of: Make, topic_of: Topic, group: str, protocol: str) -> None:
    topic = topic_of(30)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of(topic, group_id=group, group_protocol=protocol, enable_auto_commit=False) as consumer:

            async def committed() -> int | None:
                found = (await consumer.committed([partition]))[partition]
                return None if found is None else found.offset

            records = await read(consumer, 4)
            assert await committed() is None
            await consumer.commit()
            assert await committed() == 4, "what was given out, and not what was fetched"
            await consumer.commit(records[1])
            assert await committed() == 2
            await consumer.commit(records)
            assert await committed() == 4
            await consumer.commit({partition: OffsetAndMetadata(1, "note")})
            assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(1, "note")}
            heard: list[tuple[int, object]] = []
            for offset in (5, 6, 7):
                consumer.commit_async(
                    {partition: offset}, lambda offsets, error: heard.append((offsets[partition].offset, error))
                )
            await consumer.commit({partition: 8})
            assert heard == [(5, None), (6, None), (7, None)]
            assert await committed() == 8
            await consumer.seek_to_committed()
            async for batch in consumer.batches(max_records=5):
                assert [record.offset for record in batch] == [8, 9, 10, 11, 12]
                await batch.commit()
                break
            assert await committed() == 13
        async with consumer_of(group_id=group) as consumer:
            last = (await consumer.committed([partition]))[partition]
            assert last is not None
            assert last.offset == 13, "nothing is committed on close"

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_automatic_commits_leave_out_what_was_not_given_out(
    consumer_of: Make, topic_of: Topic, group: str, protocol: str
) -> None:
    topic = topic_of(30)

    async def scenario() -> None:
        found: list[ConsumerRecord[Any, Any]] = []
        for _ in range(3):
            async with consumer_of(topic, group_id=group, group_protocol=protocol) as consumer:
                found += await read(consumer, 10)
        assert [record.offset for record in found] == list(range(30))

    asyncio.run(scenario())


def test_a_commit_by_assignment_needs_no_membership(consumer_of: Make, topic_of: Topic, group: str) -> None:
    topic = topic_of(5)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of(group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            await read(consumer, 2)
            await consumer.commit()
        async with consumer_of(group_id=group) as consumer:
            consumer.assign([partition])
            assert await consumer.position(partition) == 2

    asyncio.run(scenario())


# -- groups ------------------------------------------------------------------------------------------------------------


class Watch(RebalanceListener):
    """Writes down what it hears; half of it asynchronously."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.heard.append(("assigned", list(partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("revoked", list(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", list(partitions)))


STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky", "consumer"]


def strategy_settings(strategy: str) -> dict[str, Any]:
    if strategy == "consumer":
        return {"group_protocol": "consumer"}
    return {"partition_assignment_strategy": [strategy], "heartbeat_interval_ms": 50}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_and_nothing_is_lost_or_read_twice(
    consumer_of: Make, topic_of: Topic, group: str, client: RawClient, strategy: str
) -> None:
    topic = topic_of(10, 10, 10, 10)
    everything = {TopicPartition(topic, number) for number in range(4)}

    async def scenario() -> None:
        settings = {"group_id": group, **strategy_settings(strategy)}
        first, second = consumer_of(**settings), consumer_of(**settings)
        heard_first, heard_second = Watch(), Watch()
        found: list[ConsumerRecord[Any, Any]] = []
        async with first:
            first.subscribe([topic], listener=heard_first)
            found += await read(first, 40)
            assert first.assignment() == everything
            async with second:
                second.subscribe([topic], listener=heard_second)
                await until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
                assert first.assignment() | second.assignment() == everything
                for number in range(4):
                    await asyncio.to_thread(fill, client, topic, number, range(10, 20))
                more = [*await asyncio.gather(read(first, 20), read(second, 20))]
                found += more[0] + more[1]
            await until([first], lambda: first.assignment() == everything)
        places = [(record.partition, record.offset) for record in found]
        assert sorted(places) == [(number, offset) for number in range(4) for offset in range(20)]
        kept = {event for event, _ in heard_first.heard}
        assert kept == {"assigned", "revoked"}
        assert heard_second.heard[-1][0] == "revoked", "closing gives up in order"
        if strategy in ("cooperative-sticky", "consumer"):
            revoked = [partitions for event, partitions in heard_first.heard if event == "revoked"]
            assert len(revoked[0]) == 2, "the others are read all the while"

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_finds_topics_as_they_come(
    consumer_of: Make, topic_of: Topic, client: RawClient, group: str, protocol: str
) -> None:
    first = topic_of(3)

    async def scenario() -> None:
        async with consumer_of(group_id=group, group_protocol=protocol, metadata_max_age_ms=100) as consumer:
            consumer.subscribe(pattern=f"{first}(-more)?")
            assert {record.topic for record in await read(consumer, 3)} == {first}
            await asyncio.to_thread(client.ask, create_topic(f"{first}-more"), 7)
            await asyncio.to_thread(fill, client, f"{first}-more", 0, range(2))
            assert {record.topic for record in await read(consumer, 2)} == {f"{first}-more"}
            assert consumer.subscription() == {first, f"{first}-more"}

    asyncio.run(scenario())


def test_a_pattern_of_the_brokers_is_looked_up_there(consumer_of: Make, topic_of: Topic, group: str) -> None:
    topic = topic_of(3)

    async def scenario() -> None:
        async with consumer_of(group_id=group, group_protocol="consumer") as consumer:
            consumer.subscribe(broker_pattern=f"{topic[:-1]}[{topic[-1]}]")
            assert {record.topic for record in await read(consumer, 3)} == {topic}

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_loses_its_partitions_and_comes_back(
    consumer_of: Make, topic_of: Topic, group: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_of(4)

    async def scenario() -> None:
        settings = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
        async with consumer_of(
            group_id=group, group_protocol=protocol, max_poll_interval_ms=2000, **settings
        ) as consumer:
            watch = Watch()
            consumer.subscribe([topic], listener=watch)
            await read(consumer, 2)
            async with asyncio.timeout(WAIT_S):
                while "nobody polled" not in caplog.text:
                    await asyncio.sleep(0.05)
            assert watch.heard[-1][0] == "assigned"
            await until([consumer], lambda: watch.heard[-1][0] == "assigned" and len(watch.heard) >= 3)
            assert [event for event, _ in watch.heard] == ["assigned", "lost", "assigned"]
            assert [record.offset for record in await read(consumer, 4)] == [0, 1, 2, 3], "nothing was committed"

    with caplog.at_level(logging.WARNING, "ottla.client.consumer"):
        asyncio.run(scenario())
    assert "max_poll_interval_s (2 s)" in caplog.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_what_it_had(
    consumer_of: Make, topic_of: Topic, group: str, protocol: str
) -> None:
    topic = topic_of(4, 4)

    async def scenario() -> None:
        def member(name: str) -> Consumer[Any, Any]:
            return consumer_of(topic, group_id=group, group_protocol=protocol, group_instance_id=name)

        async with member("a") as staying:
            async with member("b") as leaving:
                await until([staying, leaving], lambda: len(staying.assignment()) == len(leaving.assignment()) == 1)
                had = leaving.assignment()
            async with member("b") as back:
                await until([staying, back], lambda: len(back.assignment()) == 1)
                assert back.assignment() == had
                assert len(staying.assignment()) == 1

    asyncio.run(scenario())


def test_a_listener_that_fails_is_heard_and_the_rebalance_goes_on(
    consumer_of: Make, topic_of: Topic, group: str
) -> None:
    topic = topic_of(3)

    def fails(partitions: object) -> None:
        raise LookupError("not now")

    async def scenario() -> None:
        async with consumer_of(group_id=group) as consumer:
            consumer.subscribe([topic], on_assigned=fails)
            with pytest.raises(LookupError, match="not now"):
                await consumer.poll(WAIT_S)
            assert len(await read(consumer, 3)) == 3

    asyncio.run(scenario())
