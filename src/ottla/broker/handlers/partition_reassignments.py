"""AlterPartitionReassignments and ListPartitionReassignments: the controller moves partitions to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.moves import is_moving
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

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_alter(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Each partition begins to move, turns, or stays where it is (replicas null); one that cannot stops no other."""
    assert broker.cluster is not None

    async def alter(term: Term) -> list[ReassignableTopicResponse]:
        return [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[await _altered(term, topic.name, entry, request) for entry in topic.partitions],
            )
            for topic in request.topics
        ]

    try:
        return AlterPartitionReassignmentsResponse(responses=await broker.cluster.controller.ask(alter))
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message or None, responses=[]
        )


async def _altered(
    term: Term, topic: str, entry: ReassignablePartition, request: AlterPartitionReassignmentsRequest
) -> ReassignablePartitionResponse:
    partition = TopicPartition(topic, entry.partition_index)
    answer = ReassignablePartitionResponse(partition_index=entry.partition_index)
    try:
        if entry.replicas is None:
            await moves.cancel(term, partition)
        else:
            _check_factor(term, partition, entry.replicas, request)
            await moves.begin(term, partition, entry.replicas)
    except ApiError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
    return answer


def _check_factor(
    term: Term, partition: TopicPartition, replicas: list[int], request: AlterPartitionReassignmentsRequest
) -> None:
    state = term.context.find(partition)
    if request.allow_replication_factor_change or state is None:
        return
    count = len(state.replicas) - len(state.adding)
    if len(replicas) != count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{partition} has {count} replicas, and {len(replicas)} are named; the request allows no change of that",
        )


async def handle_list(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    assert broker.cluster is not None
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
