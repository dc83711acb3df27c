"""A table of open files that is full, at every moment at which something wants to open one.

A broker lives through the same short story again and again. Each time the descriptors are gone at another point of it,
for one or for several who want one. No directory may go offline for that, whoever is refused may try again, and what
was acknowledged is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.wire_client import WireClient
from ottla.testing.world import World

TOPIC: Final = "orders"
GROUP: Final = "billing"
VALUES: Final = tuple(b"%02d" % number + b"x" * 60 for number in range(12))
# One refusal, and several in a row: also what tries again at once is refused then.
LENGTHS: Final = (1, 7)
PORTIONS: Final = 4
TRIES_MAX: Final = 20


class Story:
    """What happens: a topic, records in many segments, a group's offsets, retention, a deletion, a restart."""

    def __init__(self) -> None:
        self.world = World(1)
        self.process = self.world.broker(
            "broker-1",
            {
                "log.retention.check.interval.ms": "500",
                "log.cleaner.backoff.ms": "1000",
                "log.flush.offset.checkpoint.interval.ms": "1000",
                "replica.high.watermark.checkpoint.interval.ms": "1000",
                "log.segment.delete.delay.ms": "100",
                "offsets.topic.num.partitions": "2",
            },
        )
        self.world.excuses = lambda message: "too many open files" in message.lower()
        self.begins_at = 0
        self.ends_at = 0

    def play(self, first: int | None, count: int) -> None:
        """Without descriptors from the `first` after the start on, for so many who want one."""

        async def whole() -> None:
            await self.process.start()
            self.begins_at = self.process.disk.descriptors_taken
            if first is not None:
                self.process.disk.run_out_of_descriptors(self.begins_at + first, count)
            await self._live()
            self.ends_at = self.process.disk.descriptors_taken
            assert all(directory.is_online for directory in self.process.broker.logs.directories)
            await self.process.stop()
            await self.process.start()
            await self._check()
            await self.process.stop()

        self.world.run(whole(), seconds=3600, replay=f"Story().play({first}, {count})")

    async def _live(self) -> None:
        small = {"internal.segment.bytes": "300"}
        await self._until_done(self._create, TOPIC, small)
        await self._until_done(self._create, "short", {**small, "retention.bytes": "300"})
        await self._until_done(self._create, "compacted", {**small, "cleanup.policy": "compact"})
        for value in VALUES:
            await self._until_done(self._produce, TOPIC, value)
            await self._until_done(self._produce, "short", value)
            await self._until_done(self._produce, "compacted", value)
        await self._until_done(self._commit)
        await asyncio.sleep(3)  # retention, checkpoints, flushes and a compaction have their turns
        await self._until_done(self._delete, "short")
        await asyncio.sleep(8)
        assert await self._values() == list(VALUES)

    async def _check(self) -> None:
        assert await self._values() == list(VALUES)
        assert await self._committed() == len(VALUES)
        await self._until_done(self._produce, TOPIC, b"goes on")

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _client(self) -> WireClient:
        return WireClient(await self.world.network.host("client").connect(*self.process.address))

    async def _ask(self, request: object, version: int) -> Any:
        client = await self._client()
        try:
            return await client.call(request, version)
        finally:
            client.close()

    async def _until_done(self, step: Callable[..., Awaitable[int]], *arguments: object) -> None:
        """A client that tries again whatever may be tried again."""
        for _ in range(TRIES_MAX):
            code = ErrorCode(await step(*arguments))
            if code == ErrorCode.NONE:
                return
            assert code.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR, f"{step.__name__}: {code.name}"
            await asyncio.sleep(0.5)
        raise AssertionError(f"{step.__name__}{arguments} fails for good: {code.name}")

    async def _create(self, topic: str, settings: dict[str, str]) -> int:
        (result,) = (await self._ask(create_topic(topic, config=settings), 7)).topics
        # What was tried before may have done it.
        return ErrorCode.NONE if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS else result.error_code

    async def _produce(self, topic: str, value: bytes) -> int:
        answer = (await self._ask(produce(topic, one_batch(value, keys=[b"k"])), 9)).responses[0].partition_responses[0]
        return answer.error_code

    async def _delete(self, topic: str) -> int:
        state = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
        (result,) = (await self._ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)).responses
        return ErrorCode.NONE if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else result.error_code

    async def _commit(self) -> int:
        found = (await self._ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)).coordinators[0]
        if found.error_code:
            return found.error_code
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=len(VALUES), committed_metadata="")
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
        return (await self._ask(request, 8)).topics[0].partitions[0].error_code

    async def _committed(self) -> int:
        for _ in range(TRIES_MAX):
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
            (group,) = (await self._ask(request, 8)).groups
            if group.error_code == ErrorCode.NONE:
                return group.topics[0].partitions[0].committed_offset
            await asyncio.sleep(0.5)
        raise AssertionError(ErrorCode(group.error_code).name)

    async def _values(self) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(len(VALUES) + TRIES_MAX):
            answer = await self._ask(fetch(TOPIC, len(found), max_wait_ms=0), 11)
            partition = answer.responses[0].partitions[0]
            if partition.error_code:
                assert ErrorCode(partition.error_code).retriable
                await asyncio.sleep(0.5)
                continue
            if not partition.records:
                break
            data = bytes(partition.records)
            position = 0
            for header in batch.scan(data).headers:
                found += [bytes(record.value or b"") for record in batch.iterate(data, position)]
                position += header.size_bytes
        return found


@pytest.fixture(scope="module")
def points() -> int:
    """How many descriptors the story takes if nobody refuses one."""
    story = Story()
    story.play(None, 0)
    return story.ends_at - story.begins_at


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_full_table_at_any_moment_costs_a_retry_and_nothing_else(points: int, portion: int) -> None:
    for number, first in enumerate(range(portion, points, PORTIONS)):
        Story().play(first, LENGTHS[number % len(LENGTHS)])
