"""WriteTxnMarkers: the end of transactions, from a coordinator elsewhere or from whoever aborts a hanging one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.markers import WrittenMarker, write_marker
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.control import EndTransactionMarker
from ottla.runtime.signal import wait_any
from ottla.runtime.turns import Steps, in_turns
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

Waiting = list[tuple[WrittenMarker, WritableTxnMarkerPartitionResult]]


@in_turns
def handle(broker: Broker, request: WriteTxnMarkersRequest, context: Context) -> Steps[Any]:
    response = WriteTxnMarkersResponse(markers=[])
    uncommitted: Waiting = []
    for entry in request.markers:
        producer = ProducerIdAndEpoch(entry.producer_id, entry.producer_epoch)
        marker = EndTransactionMarker(entry.transaction_result, entry.coordinator_epoch)
        topics = []
        for topic in entry.topics:
            results = []
            for index in topic.partition_indexes:
                yield
                result = WritableTxnMarkerPartitionResult(partition_index=index)
                results.append(result)
                name = TopicPartition(topic.name, index)
                try:
                    written = write_marker(broker, name, producer, marker, entry.transaction_version)
                except ApiError as error:
                    result.error_code = error.code
                    continue
                if not written.is_committed:
                    uncommitted.append((written, result))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
        response.markers.append(WritableTxnMarkerResult(producer_id=entry.producer_id, topics=topics))
    return _committed(broker, response, uncommitted) if uncommitted else response


async def _committed(
    broker: Broker, response: WriteTxnMarkersResponse, uncommitted: Waiting
) -> WriteTxnMarkersResponse:
    """Answers once every in-sync replica has the markers, or the broker's time for a request is up."""
    deadline = broker.loop.time() + broker.config.request_timeout_ms / 1000
    while uncommitted:
        left_s = deadline - broker.loop.time()
        waiting: Waiting = []
        for written, result in uncommitted:
            if not written.partition.is_leader:
                result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not written.is_committed:
                if left_s <= 0:
                    result.error_code = ErrorCode.REQUEST_TIMED_OUT
                else:
                    waiting.append((written, result))
        uncommitted = waiting
        if uncommitted:
            await wait_any([written.partition.moved for written, _ in uncommitted], left_s)
    return response
