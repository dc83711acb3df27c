"""DescribeProducers: who has written to a partition of late, and whose transactions are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.ids import is_valid_topic_name
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_OFFSET = -1


def handle(broker: Broker, request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_answer(broker, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
        if not is_valid_topic_name(topic):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is no topic name")
        partition = broker.replicas.find(topic, index)
        partition.check_leader()
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET
                if producer.transaction_first_offset is None
                else producer.transaction_first_offset,
            )
            for producer in partition.log.producers.producers.values()
        ],
    )
