"""How much a Fetch answers: limits in bytes, and the one batch that comes whole in spite of them."""

from __future__ import annotations

from random import Random

import pytest

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.testing.raw_requests import fetch, one_batch, produce
from ottla.testing.scene import Scene, perform, values_of

PARTITIONS = 4


@pytest.mark.parametrize("empty_count", [0, 1, 3])
def test_a_batch_above_all_limits_comes_whole_from_the_first_partition_that_has_one(empty_count: int) -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=PARTITIONS)
        large = one_batch(b"x" * 10_000)
        for partition in range(empty_count, PARTITIONS):
            await scene.ask(produce(topic, large, partition=partition), 9)
        for version in (4, 11):
            entry = fetch(topic, partitions=range(PARTITIONS), max_bytes=10, partition_max_bytes=10)
            answers = (await scene.ask(entry, version)).responses[0].partitions
            sizes = [len(bytes(answer.records)) for answer in answers]
            assert sizes == [len(large) if number == empty_count else 0 for number in range(PARTITIONS)]

    perform(play)


def test_a_partition_that_is_read_to_its_end_does_not_starve_the_next_one() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=2)
        large = one_batch(b"x" * 10_000)
        for partition in range(2):
            await scene.ask(produce(topic, large, partition=partition), 9)
        entries = [
            FetchPartition(partition=partition, fetch_offset=1 - partition, partition_max_bytes=10)
            for partition in range(2)
        ]
        topics = [FetchTopic(topic=topic, partitions=entries)]
        answer = await scene.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10, topics=topics), 11)
        read_up, waiting = answer.responses[0].partitions
        assert not bytes(read_up.records)
        assert values_of(bytes(waiting.records)) == [b"x" * 10_000]

    perform(play)


def test_any_limits_are_kept_and_somebody_always_gets_on() -> None:
    """Random logs, offsets and limits, against the rules: whole batches from the offset on, one at least, else what
    fits into the partition's and into the request's limit."""
    rng = Random(5)

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=PARTITIONS)
        logs: list[list[bytes]] = []
        for partition in range(PARTITIONS):
            logs.append([one_batch(rng.randbytes(rng.randint(1, 400))) for _ in range(rng.choice([0, 1, 8]))])
            for records in logs[-1]:
                await scene.ask(produce(topic, records, partition=partition), 9)
        for _ in range(150):
            offsets = [rng.randint(0, len(log)) for log in logs]
            limits = [rng.choice([0, 1, 300, 1000, 1 << 20]) for _ in logs]
            total = rng.choice([0, 1, 500, 2000, 1 << 20])
            order = rng.sample(range(PARTITIONS), PARTITIONS)
            topics = [
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=number, fetch_offset=offsets[number], partition_max_bytes=limits[number]
                        )
                        for number in order
                    ],
                )
            ]
            request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=total, topics=topics)
            answers = (await scene.ask(request, 11)).responses[0].partitions
            left, has_any = total, False
            for answer, number in zip(answers, order, strict=True):
                behind = logs[number][offsets[number] :]
                got = bytes(answer.records)
                room = min(limits[number], left)
                if behind and not has_any:
                    room = max(room, len(behind[0]))
                stored = b"".join(behind)
                # A broker cuts where the limit is, the last batch of an answer may be a part of one.
                expected = stored[:room] if behind and room >= len(behind[0]) else b""
                assert len(got) == len(expected), (offsets, limits, total, order, number)
                assert values_of(got) == values_of(expected)
                left, has_any = max(0, left - len(got)), has_any or bool(got)

    perform(play)
