"""What readers of committed data get, and where their logs end, while transactions come and go."""

from __future__ import annotations

import asyncio

from ottla.testing.raw_requests import fetch, list_offsets, one_batch, produce
from ottla.testing.scene import Producer, Scene, perform, values_of

READ_COMMITTED = 1
LATEST = -1


async def latest(scene: Scene, topic: str, isolation_level: int) -> int:
    answer = await scene.ask(list_offsets(topic, LATEST, isolation_level=isolation_level), 7)
    return int(answer.topics[0].partitions[0].offset)


def test_nothing_from_the_first_open_transaction_on() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        first, second = Producer(scene, "first"), Producer(scene, "second")
        for producer in (first, second):
            await producer.init()
        await scene.ask(produce(topic, one_batch(b"plain")), 9)
        await first.send(topic, b"first")
        await second.send(topic, b"second")
        await scene.ask(produce(topic, one_batch(b"behind")), 9)

        async def seen() -> tuple[list[bytes | None], int, int]:
            committed = await scene.values(topic, isolation_level=READ_COMMITTED)
            return committed, await latest(scene, topic, READ_COMMITTED), await latest(scene, topic, 0)

        assert await seen() == ([b"plain"], 1, 4)
        assert await scene.values(topic) == [b"plain", b"first", b"second", b"behind"]
        await second.end(commit=True)  # the one that began later ends first
        assert await seen() == ([b"plain"], 1, 5)
        await first.end(commit=True)
        assert await seen() == ([b"plain", b"first", b"second", b"behind"], 6, 6)

    perform(play)


def test_a_time_is_not_found_where_it_is_not_decided_yet() -> None:
    """The record at the last stable offset itself is the first of an open transaction."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        producer = Producer(scene, "tx")
        await producer.init()
        await scene.ask(produce(topic, one_batch(b"plain", timestamps=1000)), 9)
        await producer.send(topic, b"open", timestamps=2000)

        async def found(timestamp: int, isolation_level: int) -> int:
            answer = await scene.ask(list_offsets(topic, timestamp, isolation_level=isolation_level), 7)
            return int(answer.topics[0].partitions[0].offset)

        asked = [(time, level) for time in (1000, 1001, 2000, 2001) for level in (0, READ_COMMITTED)]
        assert [await found(*one) for one in asked] == [0, 0, 1, -1, 1, -1, -1, -1]
        await producer.end(commit=True)
        assert await found(2000, READ_COMMITTED) == 1

    perform(play)


def test_what_was_aborted_is_named_to_whoever_reads_into_it_again_and_again() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        long, short = Producer(scene, "long"), Producer(scene, "short")
        await long.init()
        await short.init()
        for _ in range(3):
            start = await latest(scene, topic, 0)
            await long.send(topic, b"long")
            await short.send(topic, b"short")
            await short.end(commit=False)  # inside of the other one
            await long.end(commit=False)
            answer = await scene.ask(fetch(topic, start, isolation_level=READ_COMMITTED), 11)
            told = answer.responses[0].partitions[0].aborted_transactions
            assert sorted(one.first_offset for one in told) == [start, start + 1]
            # One batch at a time: the longer one ends behind what is read, and concerns it all the same.
            single = await scene.ask(fetch(topic, start + 1, isolation_level=READ_COMMITTED, max_bytes=1), 11)
            partition = single.responses[0].partitions[0]
            assert values_of(bytes(partition.records)) == [b"short"]
            assert sorted(one.first_offset for one in partition.aborted_transactions) == [start, start + 1]

    perform(play)


def test_an_uncommitted_marker_leaves_its_transaction_open_for_readers() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        producer = Producer(scene, "tx")
        await producer.init()
        await producer.send(topic, b"v")
        scene.follow(topic)
        scene.catch_up(topic)
        await producer.end(commit=True)
        assert scene.partition(topic).log.end_offset == 2
        assert await latest(scene, topic, READ_COMMITTED) == 0
        scene.catch_up(topic)
        assert await latest(scene, topic, READ_COMMITTED) == 2

    perform(play)


def test_every_large_transaction_of_an_id_is_told_to_all_its_partitions() -> None:
    """More partitions than markers are written in one turn: a task tells them, once more each time."""
    count = 70

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=count)
        producer = Producer(scene, "tx")
        await producer.init()
        for round_number in range(3):
            for partition in range(count):
                await producer.send(topic, b"%d" % round_number, partition)
            await producer.end(commit=True)
        await asyncio.sleep(1)
        for partition in range(count):
            seen = await scene.values(topic, partition, isolation_level=READ_COMMITTED)
            assert seen == [b"0", b"1", b"2"], partition

    perform(play)
