"""Questions about offsets that a position depends on: where a policy points, and where an epoch ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.consumer.positions import NO_EPOCH, Position
from ottla.client.leaders import ask_leaders, by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import Deadline, error_of
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID = -1


async def epoch_ends(
    cluster: Cluster, positions: Mapping[TopicPartition, Position], timeout_s: float
) -> dict[TopicPartition, Position]:
    """Where the leader's log of the epoch of each position ends, with the epoch that it is about (KIP-320)."""

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | ApiError]:
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=number,
                            current_leader_epoch=_leader_epoch(cluster, TopicPartition(topic, number)),
                            leader_epoch=positions[TopicPartition(topic, number)].epoch,
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        connection = await cluster.leader_connection(node_id)
        response = await connection.request(request, OffsetForLeaderEpochResponse)
        return {
            TopicPartition(topic.topic, each.partition): error_of(
                each.error_code, None, f"{topic.topic}-{each.partition}"
            )
            or Position(each.end_offset, each.leader_epoch)
            for topic in response.topics
            for each in topic.partitions
        }

    return await ask_leaders(cluster, positions, ask, Deadline.after(timeout_s))


def _leader_epoch(cluster: Cluster, partition: TopicPartition) -> int:
    known = cluster.known_partition(partition)
    return NO_EPOCH if known is None else known.leader_epoch
