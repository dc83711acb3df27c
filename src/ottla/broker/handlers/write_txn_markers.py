"""WriteTxnMarkers: the end of transactions, from a coordinator elsewhere or from whoever aborts a hanging one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.commits import PendingCommit, committed
from ottla.broker.markers import write_marker
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.control import EndTransactionMarker
from ottla.runtime.turns import Steps
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    written: list[tuple[PendingCommit, WritableTxnMarkerPartitionResult]] = []
    response = await broker.turns.finish(_written(broker, request, written))
    deadline = broker.loop.time() + broker.config.request_timeout_ms / 1000
    outcomes = await committed([pending for pending, _ in written], deadline)
    for (_, result), outcome in zip(written, outcomes, strict=True):
        result.error_code = outcome
    return response


def _written(
    broker: Broker,
    request: WriteTxnMarkersRequest,
    written: list[tuple[PendingCommit, WritableTxnMarkerPartitionResult]],
) -> Steps[WriteTxnMarkersResponse]:
    """Writes the markers and says which could not be; the others are in `written`, with their place in the answer."""
    response = WriteTxnMarkersResponse(markers=[])
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
                    pending = write_marker(
                        broker.replicas,
                        broker.groups,
                        name,
                        producer,
                        marker,
                        entry.transaction_version,
                        broker.clock.now_ms(),
                    )
                except ApiError as error:
                    result.error_code = error.code
                else:
                    written.append((pending, result))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            yield
        response.markers.append(WritableTxnMarkerResult(producer_id=entry.producer_id, topics=topics))
        yield
    return response
