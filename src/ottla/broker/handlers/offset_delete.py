"""OffsetDelete: a group forgets where it was in some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_requests import partition_count
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    refused = _take_unknown_out(broker, request)
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID)
    answer = await broker.groups.ask(request.group_id, _refused, GroupMachine.delete_offsets, request)
    return _merged(refused, answer) if refused else answer


def _refused(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


def _take_unknown_out(broker: Broker, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
    """Leaves in the request the partitions that exist; returns the answers for the others."""
    refused = []
    for topic in request.topics:
        count = partition_count(broker.image, topic.name)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers = [
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code) for each in missing
            ]
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _merged(refused: list[OffsetDeleteResponseTopic], answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
    if answer.error_code:
        return answer
    by_name = {topic.name: topic for topic in refused}
    for topic in answer.topics:
        if topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            refused.append(topic)
    answer.topics = refused
    return answer
