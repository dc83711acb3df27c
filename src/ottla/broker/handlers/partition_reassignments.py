"""AlterPartitionReassignments and ListPartitionReassignments: the controller moves partitions to other brokers.

One broker alone has nowhere to move them to: all it can be asked for is that they stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import ClusterImage
from ottla.cluster.moves import check_replicas, is_moving
from ottla.controller import moves
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_alter(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Each partition begins to move, turns, or stays where it is (replicas null); one that cannot stops no other."""
    if not request.topics and broker.cluster is None:
        return AlterPartitionReassignmentsResponse(responses=[])
    try:
        responses = await _altered_topics(broker, request)
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message or None, responses=[]
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
    )


async def _altered_topics(
    broker: Broker, request: AlterPartitionReassignmentsRequest
) -> list[ReassignableTopicResponse]:
    if broker.cluster is None:
        return await broker.turns.finish(_unmoved(broker.image, request))

    async def alter(term: Term) -> list[ReassignableTopicResponse]:
        return [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[await _altered(term, topic.name, entry, request) for entry in topic.partitions],
            )
            for topic in request.topics
        ]

    return await broker.cluster.controller.ask(alter)


async def _altered(
    term: Term, topic: str, entry: ReassignablePartition, request: AlterPartitionReassignmentsRequest
) -> ReassignablePartitionResponse:
    partition = TopicPartition(topic, entry.partition_index)
    answer = ReassignablePartitionResponse(partition_index=entry.partition_index)
    try:
        if entry.replicas is None:
            await moves.cancel(term, partition)
        else:
            await moves.begin(
                term, partition, entry.replicas, may_change_factor=request.allow_replication_factor_change
            )
    except ApiError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
    return answer


def _unmoved(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest
) -> Steps[list[ReassignableTopicResponse]]:
    """What one broker alone answers: no error where a partition is to stay, or else why it cannot move."""
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        answered = ReassignableTopicResponse(name=topic.name, partitions=[])
        topics.append(answered)
        for number, entry in enumerate(topic.partitions, 1):
            if number % STEP == 0:
                yield
            answer = ReassignablePartitionResponse(partition_index=entry.partition_index)
            try:
                _check_stays(image, TopicPartition(topic.name, entry.partition_index), entry.replicas)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.message or None
            answered.partitions.append(answer)
        yield
    return topics


def _check_stays(image: ClusterImage, partition: TopicPartition, replicas: list[int] | None) -> None:
    state = image.partition(partition)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
    if replicas is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being moved")
    check_replicas(replicas, image.brokers)  # so it is this broker, where the partition is


async def handle_list(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    if broker.cluster is None:
        return ListPartitionReassignmentsResponse(topics=[])
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    )

    async def look(term: Term) -> list[OngoingTopicReassignment]:
        topics: dict[str, OngoingTopicReassignment] = {}
        for partition, state in term.context.partitions():
            if is_moving(state) and (wanted is None or partition in wanted):
                topic = topics.setdefault(
                    partition.topic, OngoingTopicReassignment(name=partition.topic, partitions=[])
                )
                topic.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=partition.partition,
                        replicas=list(state.replicas),
                        adding_replicas=list(state.adding),
                        removing_replicas=list(state.removing),
                    )
                )
        return list(topics.values())

    try:
        return ListPartitionReassignmentsResponse(topics=await broker.cluster.controller.ask(look))
    except ApiError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message or None, topics=[])
