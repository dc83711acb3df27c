"""DescribeProducers: who has written to a partition of late, and whose transactions are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.response_budget import ResponseBudget
from ottla.errors import ApiError, ErrorCode
from ottla.ids import is_valid_topic_name
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_OFFSET = -1


@in_turns
def handle(broker: Broker, request: DescribeProducersRequest, context: Context) -> Steps[DescribeProducersResponse]:
    topics = []
    budget = ResponseBudget()
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append((yield from _answer(broker, topic.name, index, budget)))
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield
    return DescribeProducersResponse(topics=topics)


def _answer(broker: Broker, topic: str, index: int, budget: ResponseBudget) -> Steps[PartitionResponse]:
    try:
        if not is_valid_topic_name(topic):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a valid topic name")
        partition = broker.replicas.find(topic, index)
        partition.check_leader()
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None, active_producers=[]
        )
    active = []
    budget.spend(len(partition.log.producers.producers))
    # A copy: producers come and go while others have their turn.
    for producer in list(partition.log.producers.producers.values()):
        start_offset = producer.transaction_first_offset
        active.append(
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if start_offset is None else start_offset,
            )
        )
        yield
    return PartitionResponse(partition_index=index, active_producers=active)
