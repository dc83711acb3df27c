"""DeleteRecords: everything below an offset is gone for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_OFFSET = -1


@in_turns
def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> Steps[DeleteRecordsResponse]:
    # Of a partition that is named twice the last word counts.
    entries: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        entries.setdefault(topic.name, {}).update((entry.partition_index, entry.offset) for entry in topic.partitions)
    topics = []
    for name, offsets in entries.items():
        results = []
        for index, offset in offsets.items():
            results.append(_result(broker, name, index, offset))
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


def _result(broker: Broker, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        partition = broker.replicas.find(topic, index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic} is an internal topic: its records cannot be deleted by clients",
            )
        low_watermark = partition.delete_records(offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
