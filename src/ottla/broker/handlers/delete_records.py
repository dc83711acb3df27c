"""DeleteRecords: everything below an offset is gone for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.commits import PendingDeletion, committed
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.runtime.turns import Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_OFFSET = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """Answers when the replicas on all brokers that are alive have deleted them too, or when the time is up."""
    pending: dict[TopicPartition, PendingDeletion] = {}
    response = await broker.turns.finish(_deleted(broker, request, pending))
    outcomes = await committed(list(pending.values()), broker.loop.time() + request.timeout_ms / 1000)
    codes = dict(zip(pending, outcomes, strict=True))
    await broker.turns.finish(_put_in(broker, response, codes, pending))
    return response


def _put_in(
    broker: Broker,
    response: DeleteRecordsResponse,
    codes: Mapping[TopicPartition, ErrorCode],
    pending: Mapping[TopicPartition, PendingDeletion],
) -> Steps[None]:
    for topic in response.topics:
        for result in topic.partitions:
            name = TopicPartition(topic.name, result.partition_index)
            result.error_code = codes.get(name, result.error_code)
            if name in codes and pending[name].partition.is_leader:
                result.low_watermark = pending[name].partition.low_watermark(broker.image.brokers)
            yield


def _deleted(
    broker: Broker, request: DeleteRecordsRequest, pending: dict[TopicPartition, PendingDeletion]
) -> Steps[DeleteRecordsResponse]:
    # Of a partition that is named twice the last word counts.
    entries: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        entries.setdefault(topic.name, {}).update((entry.partition_index, entry.offset) for entry in topic.partitions)
    topics = []
    for name, offsets in entries.items():
        results = []
        for index, offset in offsets.items():
            results.append(_result(broker, TopicPartition(name, index), offset, pending))
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        yield
    return DeleteRecordsResponse(topics=topics)


def _result(
    broker: Broker, name: TopicPartition, offset: int, pending: dict[TopicPartition, PendingDeletion]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=name.partition, low_watermark=NO_OFFSET)
    try:
        partition = broker.replicas.find(*name)
        if name.topic in INTERNAL_TOPICS:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name.topic} is an internal topic: its records cannot be deleted by clients",
            )
        pending[name] = PendingDeletion(partition, partition.delete_records(offset), lambda: broker.image.brokers)
    except ApiError as error:
        result.error_code = error.code
    return result
