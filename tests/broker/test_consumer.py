"""The consumer against a broker that runs: reading, groups of both protocols, commits, positions; blocking, too."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.client.consumer.blocking import Consumer as BlockingConsumer
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.errors import NoOffsetForPartitionError, RecordDeserializationError, WakeupError
from ottla.client.consumer.interceptors import ConsumerInterceptor
from ottla.client.consumer.listeners import RebalanceListener
from ottla.client.errors import ClosedError, ConcurrentUseError, UsageError
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.ids import TopicPartition
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import one_batch, produce_to_many
from ottla.testing.waiting import WAIT_S

PROTOCOLS = ["classic", "consumer"]
_groups = itertools.count()

Topic = Callable[..., str]
Make = Callable[..., Consumer[Any, Any]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Members of consumer groups hear of changes with a heartbeat: let those be frequent."""
    with Broker(
        {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
    ) as running:
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def topic_of(client: RawClient, new_topic: Callable[..., tuple[str, UUID]]) -> Topic:
    """Makes a topic with so many records in each partition: their values are their numbers."""

    def made(*counts: int, compression: Compression = Compression.NONE) -> str:
        name, _ = new_topic(len(counts))
        for partition, count in enumerate(counts):
            fill(client, name, partition, range(count), compression)
        return name

    return made


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


@pytest.fixture
def consumer_of(broker: Broker) -> Make:
    def made(*topics: str, **settings: Any) -> Consumer[Any, Any]:
        return Consumer(*topics, **{**settings_of(broker), **settings})

    return made


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


def numbers(records: Collection[ConsumerRecord[Any, Any]]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_partitions_that_are_assigned_are_read_in_order(
    consumer_of: Make, topic_of: Topic, compression: Compression
) -> None:
    topic = topic_of(25, 13, compression=compression)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            found = await read(consumer, 38)
            for partition, count in enumerate((25, 13)):
                mine = [record for record in found if record.partition == partition]
                assert [int(record.value or b"") for record in mine] == list(range(count))
                assert [record.offset for record in mine] == list(range(count))
                assert consumer.lag(TopicPartition(topic, partition)) == 0
            first = found[0]
            assert (first.topic, first.key, first.timestamp, first.headers) == (topic, b"k0", 0, ())
            assert (first.serialized_key_size, first.serialized_value_size, first.leader_epoch) == (2, 1, 0)

    asyncio.run(scenario())


def test_a_poll_gives_no_more_than_asked_for_and_the_rest_comes_later(consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(25)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of(max_poll_records=7) as consumer:
            consumer.assign([partition])
            sizes = []
            position = 0
            while position < 25:
                records = (await consumer.poll(WAIT_S))[partition]
                sizes.append(len(records))
                position = await consumer.position(partition)
                assert position == records[-1].offset + 1
            assert max(sizes) == 7
            assert sum(sizes) == 25
            assert await consumer.poll(0) == {}

    asyncio.run(scenario())


def test_what_comes_later_wakes_a_poll_that_waits(consumer_of: Make, topic_of: Topic, client: RawClient) -> None:
    topic = topic_of(0)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert await consumer.position(TopicPartition(topic, 0)) == 0
            waiting = asyncio.create_task(consumer.poll(WAIT_S))
            await asyncio.to_thread(fill, client, topic, 0, range(3))
            assert len((await waiting)[TopicPartition(topic, 0)]) == 3

    asyncio.run(scenario())


def test_columns_are_those_of_sparks_source(consumer_of: Make, topic_of: Topic) -> None:
    pytest.importorskip("pyarrow")
    topic = topic_of(15, 5)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            rows: list[dict[str, Any]] = []
            async with asyncio.timeout(WAIT_S):
                while len(rows) < 20:
                    batch = await consumer.poll_arrow(WAIT_S, max_records=12)
                    assert batch.schema.names == [
                        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
                    ]  # fmt: skip
                    rows += batch.to_pylist()
            assert sorted((row["partition"], int(row["value"])) for row in rows) == [
                *((0, number) for number in range(15)),
                *((1, number) for number in range(5)),
            ]
            assert {row["topic"] for row in rows} == {topic}
            assert await consumer.position(TopicPartition(topic, 0)) == 15
            assert (await consumer.poll_arrow(0)).num_rows == 0

    asyncio.run(scenario())


def test_a_bad_record_is_named_and_stays_until_somebody_seeks(consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(5)
    partition = TopicPartition(topic, 0)

    def picky(data: bytes) -> int:
        if data == b"2":
            raise ValueError("no twos")
        return int(data)

    async def scenario() -> None:
        async with consumer_of(value_deserializer=picky) as consumer:
            consumer.assign([partition])
            assert [record.value for record in (await consumer.poll(WAIT_S))[partition]] == [0, 1]
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match=f"offset 2 of {partition}") as caught:
                    await consumer.poll(WAIT_S)
                assert caught.value.value == b"2"
            consumer.seek(partition, 3)
            assert [record.value for record in (await consumer.poll(WAIT_S))[partition]] == [3, 4]
        async with consumer_of(value_deserializer=picky, on_bad_record="skip") as consumer:
            consumer.assign([partition])
            assert [record.value for record in await read(consumer, 4)] == [0, 1, 3, 4]

    asyncio.run(scenario())


# -- positions ---------------------------------------------------------------------------------------------------------


def test_a_consumer_seeks_pauses_and_looks_up_offsets(consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(20, 10)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([first, second])
            consumer.pause(second)
            assert consumer.paused() == {second}
            assert {record.partition for record in await read(consumer, 20)} == {0}
            consumer.resume(second)
            assert {record.partition for record in await read(consumer, 10)} == {1}
            consumer.seek(first, 18)
            assert [record.offset for record in await read(consumer, 2)] == [18, 19]
            consumer.seek_to_beginning(second)
            assert await consumer.position(second) == 0
            consumer.seek_to_end(second)
            assert await consumer.position(second) == 10
            await consumer.seek_to_time(15_000, first)
            assert await consumer.position(first) == 15
            assert await consumer.beginning_offsets([first]) == {first: 0}
            assert await consumer.end_offsets([first, second]) == {first: 20, second: 10}
            found = await consumer.offsets_for_times({first: 4500, second: 1 << 40})
            hit = found[first]
            assert hit is not None
            assert (hit.offset, hit.timestamp) == (5, 5000)
            assert found[second] is None
            assert await consumer.partitions_for(topic) == [0, 1]

    asyncio.run(scenario())


def test_a_partition_that_is_paused_in_the_middle_of_an_iteration_gives_nothing_out(
    consumer_of: Make, topic_of: Topic
) -> None:
    topic = topic_of(10)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([partition])
            assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]
            consumer.pause(partition)
            assert await consumer.poll(0.1) == {}
            consumer.resume(partition)
            assert [record.offset for record in await read(consumer, 7)] == [3, 4, 5, 6, 7, 8, 9]

    asyncio.run(scenario())


def test_hooks_see_what_is_given_out_and_what_is_committed(consumer_of: Make, topic_of: Topic, group: str) -> None:
    topic = topic_of(4)
    partition = TopicPartition(topic, 0)

    class Hook(ConsumerInterceptor):
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
            self.seen.append(len(records))
            return [record for record in records if record.offset != 1]

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            self.seen.append(offsets[partition].offset)

        def close(self) -> None:
            self.seen.append("closed")

    hook = Hook()

    async def scenario() -> None:
        # Committed when it closes, and not in between, however long this takes.
        settings = {"auto_commit_interval_s": 3600, "interceptors": [hook]}
        async with consumer_of(topic, group_id=group, **settings) as consumer:
            assert [record.offset for record in await read(consumer, 3)] == [0, 2, 3]

    asyncio.run(scenario())
    assert hook.seen == [4, 4, "closed"]


def test_without_a_policy_a_partition_without_a_start_is_an_error(consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(3)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of(auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            with pytest.raises(NoOffsetForPartitionError, match=str(partition)):
                await consumer.poll(WAIT_S)
            consumer.seek(partition, 1)
            assert [record.offset for record in await read(consumer, 2)] == [1, 2]
            consumer.seek(partition, 100)
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.poll(WAIT_S)

    asyncio.run(scenario())


def test_an_offset_that_is_gone_is_left_to_the_policy(consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(3)

    async def scenario() -> None:
        async with consumer_of() as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 100)
            assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]

    asyncio.run(scenario())


def test_where_a_partition_starts_is_logged_once_with_the_reason(
    consumer_of: Make, topic_of: Topic, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_of(8)

    async def scenario() -> None:
        async with consumer_of(topic, group_id=group) as consumer:
            await read(consumer, 5)
        async with consumer_of(topic, group_id=group) as consumer:
            await read(consumer, 3)

    with caplog.at_level(logging.INFO, "ottla.client.consumer"):
        asyncio.run(scenario())
    said = [each.getMessage().partition(": ") for each in caplog.records if "starts at" in each.getMessage()]
    assert all(client_id.startswith("consumer-") for client_id, _, _ in said)
    starts = [line for _, _, line in said]
    assert starts == [
        f"{topic}-0 starts at offset 0: the policy earliest",
        f"{topic}-0 starts at offset 5: committed by the group",
    ]


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
            await asyncio.to_thread(client.ask, _create(f"{first}-more"), 7)
            await asyncio.to_thread(fill, client, f"{first}-more", 0, range(2))
            assert {record.topic for record in await read(consumer, 2)} == {f"{first}-more"}
            assert consumer.subscription() == {first, f"{first}-more"}

    asyncio.run(scenario())


def _create(name: str) -> object:
    from ottla.testing.raw_requests import create_topic

    return create_topic(name)


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


# -- use ---------------------------------------------------------------------------------------------------------------


def test_calls_that_do_not_fit_say_so(consumer_of: Make, topic_of: Topic, group: str) -> None:
    topic = topic_of(1)

    async def scenario() -> None:
        async with consumer_of() as alone:
            with pytest.raises(UsageError, match="group_id"):
                alone.subscribe([topic])
            with pytest.raises(UsageError, match="group_id"):
                await alone.commit()
            with pytest.raises(UsageError, match="is not assigned"):
                alone.seek(TopicPartition(topic, 0), 1)
        async with consumer_of(topic, group_id=group) as member:
            with pytest.raises(UsageError, match="unsubscribe"):
                member.assign([TopicPartition(topic, 0)])
            with pytest.raises(TypeError, match="list of topics"):
                member.subscribe(topic)
            with pytest.raises(UsageError, match="broker_pattern"):
                member.subscribe(broker_pattern="x.*")
            waiting = asyncio.create_task(member.poll(WAIT_S, max_records=0))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="polled already"):
                await member.poll(0)
            member.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            await member.unsubscribe()
            member.assign([TopicPartition(topic, 0)])
            assert len(await read(member, 1)) == 1
        with pytest.raises(ClosedError):
            await member.poll(0)
        await member.close()

    asyncio.run(scenario())


def test_a_consumer_leaves_no_tasks_behind(consumer_of: Make, topic_of: Topic, group: str) -> None:
    topic = topic_of(3)

    async def scenario() -> None:
        for protocol in PROTOCOLS:
            async with consumer_of(topic, group_id=f"{group}-{protocol}", group_protocol=protocol) as consumer:
                await read(consumer, 3)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_closing_is_in_time_when_the_broker_is_gone(topic_of: Topic) -> None:
    with Broker() as broker:

        async def scenario() -> None:
            consumer: Consumer[Any, Any] = Consumer("t", group_id="g", **settings_of(broker))
            await consumer.start()
            await consumer.poll(1.0)
            await asyncio.to_thread(broker.stop)
            async with asyncio.timeout(WAIT_S):
                await consumer.close(timeout_s=0.5)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(scenario())


# -- processing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_processing_keeps_the_order_it_promises_and_commits_what_is_done(
    consumer_of: Make, topic_of: Topic, group: str, order: Any
) -> None:
    topic = topic_of(30, 30)

    async def scenario() -> None:
        handled: list[ConsumerRecord[Any, Any]] = []
        async with consumer_of(topic, group_id=group, enable_auto_commit=False) as consumer:

            async def handle(record: ConsumerRecord[Any, Any]) -> None:
                await asyncio.sleep(0.001 * (record.offset % 3))
                handled.append(record)
                if len(handled) == 60:
                    consumer.wakeup()

            async with asyncio.timeout(WAIT_S):
                await consumer.process(handle, concurrency=8, order=order)
            partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            committed = await consumer.committed(partitions)
            assert [None if offset is None else offset.offset for offset in map(committed.get, partitions)] == [30, 30]
        lanes: dict[object, list[int]] = {}
        for record in handled:
            lane = {"key": (record.partition, record.key), "partition": record.partition, "none": record.offset}[order]
            lanes.setdefault(lane, []).append(record.offset)
        if order != "none":
            assert all(offsets == sorted(offsets) for offsets in lanes.values())

    asyncio.run(scenario())


def test_a_handler_that_fails_ends_the_processing_and_only_what_is_done_is_committed(
    consumer_of: Make, topic_of: Topic, group: str
) -> None:
    topic = topic_of(10)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with consumer_of(topic, group_id=group, enable_auto_commit=False) as consumer:

            def handle(record: ConsumerRecord[Any, Any]) -> None:
                if record.offset == 6:
                    raise LookupError("six")

            async with asyncio.timeout(WAIT_S):
                with pytest.raises(LookupError, match="six"):
                    await consumer.process(handle, concurrency=4, order="partition")
            assert (await consumer.committed([partition]))[partition] == OffsetAndMetadata(6, leader_epoch=0)

    asyncio.run(scenario())


# -- without a loop ----------------------------------------------------------------------------------------------------


def blocking(broker: Broker, *topics: str, **settings: Any) -> BlockingConsumer[Any, Any]:
    return BlockingConsumer(*topics, **{**settings_of(broker), **settings})


def test_the_blocking_consumer_reads_commits_and_seeks(broker: Broker, topic_of: Topic, group: str) -> None:
    topic = topic_of(30)
    partition = TopicPartition(topic, 0)
    before = threading.active_count()
    with blocking(broker, topic, group_id=group) as consumer:
        for record in consumer:
            if record.offset == 9:
                break
        consumer.commit()
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(10, leader_epoch=0)
        assert consumer.position(partition) == 10
        assert len(consumer.poll(WAIT_S, max_records=5)[partition]) == 5
        consumer.seek(partition, 2)
        assert next(iter(consumer)).offset == 2
        assert consumer.lag(partition) == 27
        assert consumer.assignment() == {partition}
        assert consumer.end_offsets([partition]) == {partition: 30}
    with pytest.raises(ClosedError):
        consumer.poll(0)
    assert threading.active_count() == before


def test_listeners_of_the_blocking_consumer_run_in_the_callers_thread_and_may_use_it(
    broker: Broker, topic_of: Topic, group: str
) -> None:
    topic = topic_of(5)
    partition = TopicPartition(topic, 0)
    heard: list[tuple[str, threading.Thread]] = []
    with blocking(broker, group_id=group, enable_auto_commit=False) as consumer:

        def assigned(partitions: Collection[TopicPartition]) -> None:
            heard.append(("assigned", threading.current_thread()))
            for each in partitions:
                consumer.seek(each, 3)

        def revoked(partitions: Collection[TopicPartition]) -> None:
            heard.append(("revoked", threading.current_thread()))
            consumer.commit({partition: 5})

        consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
        assert [record.offset for record in consumer.poll(WAIT_S)[partition]] == [3, 4]
        consumer.commit_async({partition: 4}, lambda offsets, error: heard.append(("done", threading.current_thread())))
        consumer.commit({partition: 4})
        consumer.unsubscribe()
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(5)
    me = threading.current_thread()
    assert heard == [("assigned", me), ("done", me), ("revoked", me)]


def test_another_thread_may_wake_the_blocking_consumer_and_nothing_else(
    broker: Broker, topic_of: Topic, group: str
) -> None:
    topic = topic_of(1)
    with blocking(broker, group_id=group) as consumer:

        def elsewhere() -> None:
            with pytest.raises(ConcurrentUseError, match="another thread"):
                consumer.poll(0)
            consumer.wakeup()

        def in_the_middle_of_a_poll(partitions: object) -> None:
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()

        consumer.subscribe([topic], on_assigned=in_the_middle_of_a_poll)
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_S, max_records=0)
        assert len(consumer.take(WAIT_S)) == 1


def test_the_blocking_consumer_processes_in_threads(broker: Broker, topic_of: Topic, group: str) -> None:
    topic = topic_of(20)
    handled: list[int] = []
    with blocking(broker, topic, group_id=group) as consumer:

        def handle(record: ConsumerRecord[Any, Any]) -> None:
            handled.append(record.offset)
            if len(handled) == 20:
                consumer.wakeup()

        consumer.process(handle, concurrency=4)
        assert sorted(handled) == list(range(20))
        partition = TopicPartition(topic, 0)
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(20, leader_epoch=0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_tell_what_was_read_and_how_the_group_does(
    broker: Broker, topic_of: Topic, group: str, protocol: str
) -> None:
    class Reporter:
        events: list[str] = []  # noqa: RUF012

        def init(self, metrics: Any) -> None:
            self.events.append("init")

        def close(self) -> None:
            self.events.append("close")

    topic = topic_of(20, 10)
    with BlockingConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metric_reporters=[Reporter()],
    ) as consumer:
        seen = 0
        while seen < 30:
            seen += sum(map(len, consumer.poll().values()))
        consumer.commit()
        found = {each.name: value for each, value in consumer.metrics().items() if len(each.tags) == 1}
        assert found["records-consumed-total"] == 30
        assert (found["records-lag-max"], found["records-lead-min"]) == (0, 10)
        assert found["assigned-partitions"] == 2
        assert found["rebalance-total"] >= 1
        assert found["commit-total"] >= 1
        assert found["fetch-latency-avg"] > 0
        assert found["last-poll-seconds-ago"] >= 0
        assert Reporter.events == ["init"]
    assert Reporter.events == ["init", "close"]


def test_closing_ends_the_fetch_sessions(broker: Broker, consumer_of: Make, topic_of: Topic) -> None:
    topic = topic_of(5)

    async def scenario() -> None:
        before = len(broker.running.fetch_sessions)
        async with consumer_of(fetch_max_wait_ms=100_000) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await read(consumer, 5)
            await consumer.poll(0.05)  # the next fetch waits at the broker
            assert len(broker.running.fetch_sessions) == before + 1
        assert len(broker.running.fetch_sessions) == before

    asyncio.run(scenario())
