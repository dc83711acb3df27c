"""Offsets of partitions by place or by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.client.leaders import Ask, ask_each_leader, ask_leaders, by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import Deadline, error_of
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CLIENT_REPLICA_ID: Final = -1  # the request does not come from a replica


class OffsetSpec(IntEnum):
    """Places of a log that have no number; any number from 0 on is a time in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset at a place or time; -1 where no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """The offset of each partition at an `OffsetSpec` or at a time. The first error is raised."""
    deadline = deadline or cluster.deadline()
    return await ask_leaders(cluster, specs, _ask(cluster, specs, isolation, deadline), deadline)


async def list_each_offset(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    isolation: Isolation,
    deadline: Deadline,
    *,
    unknown_topic_wait_s: float,
) -> dict[TopicPartition, FoundOffset | ApiError]:
    """As `list_offsets`, with what is wrong with single partitions in the result."""
    ask = _ask(cluster, specs, isolation, deadline)
    return await ask_each_leader(cluster, specs, ask, deadline, unknown_topic_wait_s=unknown_topic_wait_s)


def _ask(
    cluster: Cluster, specs: Mapping[TopicPartition, int], isolation: Isolation, deadline: Deadline
) -> Ask[FoundOffset]:
    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, FoundOffset | ApiError]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=specs[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(
            replica_id=CLIENT_REPLICA_ID,
            isolation_level=isolation,
            topics=topics,
            timeout_ms=cluster.broker_timeout_ms(deadline),
        )
        connection = await cluster.leader_connection(node_id)
        # Version 0 answers with lists of offsets and belongs to another age.
        response = await connection.request(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, None, f"{topic.name}-{each.partition_index}"
            )
            or FoundOffset(each.offset, each.timestamp, each.leader_epoch)
            for topic in response.topics
            for each in topic.partitions
        }

    return ask
