"""The consumer on asyncio: reading, positions, use, processing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.errors import NoOffsetForPartitionError, RecordDeserializationError, WakeupError
from ottla.client.consumer.interceptors import ConsumerInterceptor
from ottla.client.errors import ClosedError, ConcurrentUseError, UsageError
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.ids import TopicPartition
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.waiting import WAIT_S

from .scene import PROTOCOLS, Make, Topic, fill, read, settings_of

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
            for call in (member.pause, member.resume, member.seek_to_beginning, member.seek_to_end):
                with pytest.raises(TypeError, match="a partition is a topic and a number"):
                    call([TopicPartition(topic, 0)])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a partition is a topic and a number"):
                await member.seek_to_time(0, [TopicPartition(topic, 0)])  # type: ignore[arg-type]
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


async def _of_columns(consumer: Consumer[Any, Any]) -> list[int]:
    found: list[int] = (await consumer.poll_arrow(WAIT_S, 3)).column("offset").to_pylist()
    return found


async def _of_poll(consumer: Consumer[Any, Any]) -> list[int]:
    return [record.offset for records in (await consumer.poll(WAIT_S, 3)).values() for record in records]


async def _of_take(consumer: Consumer[Any, Any]) -> list[int]:
    return [record.offset for record in await consumer.take(WAIT_S, 3)]


async def _of_iteration(consumer: Consumer[Any, Any]) -> list[int]:
    async for record in consumer:
        return [record.offset]
    return []


async def _of_batches(consumer: Consumer[Any, Any]) -> list[int]:
    async for found in consumer.batches(3):
        return [record.offset for record in found]
    return []


@pytest.mark.parametrize("reads", [_of_poll, _of_take, _of_columns, _of_iteration, _of_batches])
def test_a_read_that_is_cancelled_at_any_moment_loses_nothing(
    consumer_of: Make, topic_of: Topic, group: str, reads: Callable[[Consumer[Any, Any]], Awaitable[list[int]]]
) -> None:
    async def main() -> None:
        topic = topic_of(200)
        cancelled, seen = 0, list[int]()
        async with consumer_of(topic, group_id=group, enable_auto_commit=False) as consumer:
            for turns in range(200):
                reading = asyncio.ensure_future(reads(consumer))
                for _ in range(turns % 40):
                    await asyncio.sleep(0)
                cancelled += reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    seen += await reading
            while len(seen) < 200:
                seen += await reads(consumer)
        assert seen == list(range(200))
        assert cancelled

    asyncio.run(main())
