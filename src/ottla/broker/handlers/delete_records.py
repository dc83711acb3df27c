"""DeleteRecords: everything below an offset is gone for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_OFFSET = -1


def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for wish in topic.partitions:
            try:
                low_watermark = broker.replicas.find(topic.name, wish.partition_index).delete_records(wish.offset)
                result = DeleteRecordsPartitionResult(partition_index=wish.partition_index, low_watermark=low_watermark)
            except ApiError as error:
                result = DeleteRecordsPartitionResult(
                    partition_index=wish.partition_index, low_watermark=NO_OFFSET, error_code=error.code
                )
            partitions.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)
