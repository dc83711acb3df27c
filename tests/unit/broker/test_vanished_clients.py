"""Nobody works for a client that is gone: what only reads ends in the turn in which its peer hung up."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.groups import DescribeGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.runtime.turns import TURN_S, Turns
from ottla.testing.raw_transactions import GROUP_KEY
from ottla.testing.scene import Scene, perform

NAMES = [f"name{number}" for number in range(3000)]
TURN_LASTS_S = 0.1


class Slow(Turns):
    """A busy loop: every turn is over at the next look at the time, and the next one comes a while later."""

    def __init__(self) -> None:
        looks = count()
        super().__init__(lambda: next(looks) * 10 * TURN_S)
        self.turn_count = 0

    async def yield_turn(self) -> None:
        self.turn_count += 1
        await asyncio.sleep(TURN_LASTS_S)


LIST_OFFSETS = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)]
        )
        for name in NAMES
    ],
)
OFFSET_FETCH = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES]
        )
    ]
)
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(LIST_OFFSETS, 7), (METADATA, 9), (DescribeGroupsRequest(groups=NAMES), 5), (OFFSET_FETCH, 8)],
    ids=lambda value: type(value).__name__,
)
def test_a_long_read_stops_when_its_client_is_gone(request_: object, version: int) -> None:
    async def play(scene: Scene) -> None:
        await scene.find_coordinator("g", GROUP_KEY)
        client = await scene.connect()
        turns = scene.broker.turns = Slow()
        await client.send(request_, version)
        await asyncio.sleep(10 * TURN_LASTS_S)
        assert turns.turn_count > 5, "it is at work"
        client.close()
        await asyncio.sleep(2 * TURN_LASTS_S)
        seen_count = turns.turn_count
        await asyncio.sleep(1000 * TURN_LASTS_S)
        assert turns.turn_count <= seen_count, "nobody works for it any longer"

    perform(play, seconds=3600)


def test_what_changes_something_is_carried_out_without_its_client() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        client = await scene.connect()
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)],
            timeout_ms=10_000,
            validate_only=False,
        )
        await client.send(request, 3)
        client.close()
        await asyncio.sleep(60)
        assert len(scene.broker.image.topics[topic].partitions) == 3

    perform(play, seconds=3600)
