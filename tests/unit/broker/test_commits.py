"""Waiting until records are committed: by whom, for how long, and what is known when the time is up."""

from __future__ import annotations

import asyncio

from ottla.broker.commits import PendingCommit, committed
from ottla.errors import ErrorCode
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.scene import Scene, perform

BATCHES = 3


async def with_batches(scene: Scene) -> list[PendingCommit]:
    """Records of which no other replica has any."""
    topic = await scene.new_topic()
    scene.follow(topic)
    for _ in range(BATCHES):
        await scene.ask(produce(topic, one_batch(b"v"), acks=1), 9)
    partition = scene.broker.replicas.find(topic, 0)
    return [PendingCommit(partition, end_offset, partition.leadership) for end_offset in range(1, BATCHES + 1)]


def test_it_is_waited_for_the_last_of_them() -> None:
    async def play(scene: Scene) -> None:
        pending = await with_batches(scene)
        topic = pending[0].partition.name.topic
        waiting = asyncio.create_task(committed(pending, scene.broker.loop.time() + 60))
        for end_offset in range(1, BATCHES + 1):
            await asyncio.sleep(1)
            assert not waiting.done()
            scene.catch_up(topic, end_offset=end_offset)
        assert await waiting == [ErrorCode.NONE] * BATCHES

    perform(play)


def test_what_is_committed_when_the_time_is_up_is_told_apart_from_the_rest() -> None:
    async def play(scene: Scene) -> None:
        pending = await with_batches(scene)
        scene.catch_up(pending[0].partition.name.topic, end_offset=1)
        deadline = scene.broker.loop.time() + 5
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert await committed(pending, deadline) == [ErrorCode.NONE, timed_out, timed_out]
        assert scene.broker.loop.time() >= deadline

    perform(play)


def test_who_no_longer_leads_says_so_at_once() -> None:
    async def play(scene: Scene) -> None:
        pending = await with_batches(scene)
        waiting = asyncio.create_task(committed(pending, scene.broker.loop.time() + 60))
        await asyncio.sleep(1)
        before = scene.broker.loop.time()
        pending[0].partition.leave()
        assert await waiting == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * BATCHES
        assert scene.broker.loop.time() == before

    perform(play)


def test_what_is_known_stays_so_when_the_leader_is_lost_before_the_others_are_known() -> None:
    async def play(scene: Scene) -> None:
        pending = await with_batches(scene)
        other = await scene.new_topic("other")
        scene.follow(other)
        await scene.ask(produce(other, one_batch(b"v"), acks=1), 9)
        partition = scene.partition(other)
        slow = PendingCommit(partition, 1, partition.leadership)
        waiting = asyncio.create_task(committed([*pending, slow], scene.broker.loop.time() + 60))
        scene.catch_up(pending[0].partition.name.topic, end_offset=2)
        await asyncio.sleep(1)
        pending[0].partition.go_idle(pending[0].partition.leader_epoch + 1)
        await asyncio.sleep(1)
        scene.catch_up(other)
        lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await waiting == [ErrorCode.NONE, ErrorCode.NONE, lost, ErrorCode.NONE]

    perform(play)


def test_who_waits_for_a_commit_does_not_look_at_every_append() -> None:
    """With hundreds of requests that wait for one partition each append would cost milliseconds."""
    looks = 0

    class Counted(PendingCommit):
        @property
        def outcome(self) -> ErrorCode | None:
            nonlocal looks
            looks += 1
            return super().outcome

    async def play(scene: Scene) -> None:
        pending = Counted(*(await with_batches(scene))[-1])
        waiting = asyncio.create_task(committed([pending], scene.broker.loop.time() + 60))
        await asyncio.sleep(1)
        before = looks
        topic = pending.partition.name.topic
        await scene.ask(produce(topic, one_batch(b"v"), acks=1), 9)
        await asyncio.sleep(1)
        assert looks == before
        scene.catch_up(topic)
        assert await waiting == [ErrorCode.NONE]

    perform(play)
