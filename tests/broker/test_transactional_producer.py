"""Transactions of our producer against our broker, by the rules of both versions."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import ottla
from ottla import aio
from ottla.client import transaction_requests
from ottla.client.error_codes import TransactionAbortableError
from ottla.client.errors import AbortableError, RestartError, TransactionAbortedError, UsageError
from ottla.client.fetching import Fetcher, FetchOptions
from ottla.client.metadata import Cluster, parse_addresses
from ottla.client.offsets import Isolation, OffsetSpec, list_offsets
from ottla.ids import TopicPartition


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def version(request, monkeypatch) -> int:
    if request.param == 1:
        monkeypatch.setattr(transaction_requests, "IMPLICIT_PARTITIONS", 99)
    return request.param


@pytest.fixture
def topic_name(new_topic) -> str:
    return new_topic(partitions=2)[0]


def producer_of(broker, name: str, **settings) -> aio.Producer[bytes, bytes]:
    return aio.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name, **settings)


async def committed(broker, topic: str) -> list[bytes]:
    places = [TopicPartition(topic, number) for number in range(2)]
    options = FetchOptions(isolation=Isolation.READ_COMMITTED)
    found: list[bytes] = []
    async with Cluster(parse_addresses(broker.bootstrap_servers)) as cluster:
        told = await list_offsets(cluster, dict.fromkeys(places, int(OffsetSpec.LATEST)))
        ends = {place: end.offset for place, end in told.items()}
        async with Fetcher(cluster, dict.fromkeys(places, 0), ends, options=options) as fetcher:
            while not fetcher.is_done:
                for fetched in await fetcher.next():
                    found += [value or b"" for value in fetched.columns().values]
    return sorted(found)


async def committed_offset(broker, group: str, place: TopicPartition) -> int:
    async with aio.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return (await admin.committed_offsets(group))[place].offset


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker, topic_name, version):
    async def main():
        async with producer_of(broker, f"id-{topic_name}") as producer:
            for number in range(6):
                try:
                    async with producer.transaction() as t:
                        for partition in range(2):
                            t.send(topic_name, b"%d" % number, partition=partition)
                        if number % 2:
                            await producer.flush()
                            raise KeyError(number)
                except KeyError:
                    assert number % 2
        assert await committed(broker, topic_name) == [b"0", b"0", b"2", b"2", b"4", b"4"]

    asyncio.run(main())


def test_records_that_are_not_sent_when_a_transaction_is_aborted_fail(broker, topic_name, version):
    async def main():
        async with producer_of(broker, f"id-{topic_name}", linger_s=20) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            future = producer.send(topic_name, b"dropped", partition=0)
            await asyncio.sleep(0)
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortedError):
                await future
            producer.begin_transaction()
            kept = producer.send(topic_name, b"kept", partition=0)
            await producer.commit_transaction()
            await kept
        assert await committed(broker, topic_name) == [b"kept"]

    asyncio.run(main())


def test_offsets_are_committed_with_the_transaction(broker, topic_name, version):
    async def main():
        group, place = f"group-{topic_name}", TopicPartition(topic_name, 0)
        async with producer_of(broker, f"id-{topic_name}") as producer:
            async with producer.transaction() as t:
                t.send(topic_name, b"value")
                await t.send_offsets({place: 7}, group)
            assert await committed_offset(broker, group, place) == 7
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 9}, group)
            await producer.abort_transaction()
            assert await committed_offset(broker, group, place) == 7

    asyncio.run(main())


def test_a_second_producer_fences_the_first(broker, topic_name, version):
    async def main():
        async with producer_of(broker, f"id-{topic_name}") as first, producer_of(broker, f"id-{topic_name}") as second:
            await first.init_transactions()
            first.begin_transaction()
            await first.send(topic_name, b"lost")
            await second.init_transactions()
            first.send(topic_name, b"late")
            with pytest.raises((RestartError, AbortableError)):
                await first.commit_transaction()
            async with second.transaction() as t:
                t.send(topic_name, b"kept")
        assert await committed(broker, topic_name) == [b"kept"]

    asyncio.run(main())


def test_a_record_that_fails_makes_the_transaction_abortable(broker, new_topic, version):
    async def main():
        topic, _ = new_topic(partitions=2, config={"max.message.bytes": "1000"})
        async with producer_of(broker, f"id-{topic}") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            future = producer.send(topic, bytes(5000), partition=0)
            with pytest.raises(TransactionAbortableError, match="has to be aborted"):
                await producer.commit_transaction()
            assert future.exception(0) is not None
            with pytest.raises(TransactionAbortableError):
                producer.send(topic, b"late")
            await producer.abort_transaction()
            async with producer.transaction() as t:
                t.send(topic, b"kept")
            with pytest.raises(TransactionAbortableError):
                async with producer.transaction() as t:
                    t.send(topic, bytes(5000))
            async with producer.transaction() as t:
                t.send(topic, b"also kept")
        assert await committed(broker, topic) == [b"also kept", b"kept"]

    asyncio.run(main())


def test_calls_that_do_not_fit_say_so(broker, topic_name):
    async def main():
        async with producer_of(broker, f"id-{topic_name}") as producer:
            with pytest.raises(UsageError, match="init_transactions"):
                producer.begin_transaction()
            with pytest.raises(UsageError, match="init_transactions"):
                producer.send(topic_name, b"value")
            await producer.init_transactions()
            with pytest.raises(UsageError, match="begin_transaction"):
                producer.send(topic_name, b"value")
            with pytest.raises(UsageError, match="begin_transaction"):
                await producer.commit_transaction()
            producer.begin_transaction()
            await producer.commit_transaction()
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(UsageError, match="no transactional_id"):
                producer.begin_transaction()

    asyncio.run(main())


def test_the_blocking_producer_does_the_same(broker, topic_name):
    name = f"id-{topic_name}"
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        with producer.transaction() as t:
            t.send(topic_name, b"kept")
        with pytest.raises(KeyError), producer.transaction() as t:
            raise KeyError(t.send(topic_name, b"aborted"))
        producer.begin_transaction()
        producer.send(topic_name, b"open when it is closed")
    assert asyncio.run(committed(broker, topic_name)) == [b"kept"]


def test_a_loop_of_reading_and_writing_commits_what_it_has_read(broker, new_topic, version):
    source, target = new_topic(partitions=2)[0], new_topic(partitions=2)[0]
    group = f"group-{source}"

    async def main():
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send(source, b"%d" % number, partition=number % 2)
        async with (
            aio.Consumer(
                source,
                bootstrap_servers=broker.bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
            producer_of(broker, f"id-{source}") as producer,
        ):
            copied = 0
            while copied < 20:
                polled = await consumer.poll(10)
                async with producer.transaction() as t:
                    for records in polled.values():
                        for record in records:
                            t.send(target, record.value)
                            copied += 1
                    await t.commit_offsets(consumer)
        assert sorted(map(int, await committed(broker, target))) == list(range(20))
        for partition in range(2):
            assert await committed_offset(broker, group, TopicPartition(source, partition)) == 10

    asyncio.run(main())


def test_a_commit_that_is_cancelled_at_any_moment_ends_before_the_next_transaction_and_before_close(
    broker, topic_name, version
):
    async def transaction(producer, value: bytes, entered: asyncio.Event) -> None:
        async with producer.transaction() as t:
            t.send(topic_name, value, partition=0)
            entered.set()

    async def cancelled_after(turns: int, producer, value: bytes) -> None:
        entered = asyncio.Event()
        task = asyncio.ensure_future(transaction(producer, value, entered))
        await entered.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def main():
        sent = []
        async with producer_of(broker, f"id-{topic_name}") as producer:
            for turns in range(0, 20, 4):
                await cancelled_after(turns, producer, b"cancelled-%02d" % turns)
                await transaction(producer, b"next-%02d" % turns, asyncio.Event())
                sent += [b"cancelled-%02d" % turns, b"next-%02d" % turns]
            await cancelled_after(2, producer, b"last")
        async with aio.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            states = {each.transactional_id: each.state for each in await admin.list_transactions()}
        assert "Ongoing" not in states[f"id-{topic_name}"]
        assert await committed(broker, topic_name) == sorted([*sent, b"last"])

    asyncio.run(main())
