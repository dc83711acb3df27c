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
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: Context
) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for entry in topic.partitions:
            partitions.append(_answer(broker, topic.topic, entry))
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(broker: Broker, topic: str, entry: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.find(topic, entry.partition)
        partition.leader.check_epoch(entry.current_leader_epoch)
        epoch, end_offset = partition.log.epochs.end_of(entry.leader_epoch, partition.log.end_offset)
        return EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end_offset)
    except ApiError as error:
        return EpochEndOffset(partition=entry.partition, error_code=error.code)
