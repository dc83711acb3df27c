"""OffsetForLeaderEpoch: where an epoch ended, so that a reader finds the point where its log and ours part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError
from ottla.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, wish) for wish in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, wish: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.find(topic, wish.partition)
        partition.leader.check_epoch(wish.current_leader_epoch)
        epoch, end_offset = partition.log.epochs.end_of(wish.leader_epoch, partition.log.end_offset)
        return EpochEndOffset(partition=wish.partition, leader_epoch=epoch, end_offset=end_offset)
    except ApiError as error:
        return EpochEndOffset(partition=wish.partition, error_code=error.code)
