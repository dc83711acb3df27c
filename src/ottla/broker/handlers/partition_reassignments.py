"""AlterPartitionReassignments and ListPartitionReassignments: the controller moves partitions to other brokers.

One broker alone has nowhere to move them to: all it can be asked for is that they stay where they are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

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


MOVES_AT_ONCE: Final = 10  # each is three or four requests to the store, one after the other


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

    controller, responses = broker.cluster.controller, []
    await controller.ask(_is_here)  # whoever else is asked says so, also where no partition is named
    for topic in request.topics:
        answered = ReassignableTopicResponse(name=topic.name, partitions=[])
        responses.append(answered)
        for start in range(0, len(topic.partitions), MOVES_AT_ONCE):
            entries = topic.partitions[start : start + MOVES_AT_ONCE]
            alter = partial(_altered, topic.name, entries, may_change_factor=request.allow_replication_factor_change)
            answered.partitions += await controller.ask(alter)
    return responses


async def _is_here(term: Term) -> None:
    """This broker is the controller."""


async def _altered(
    topic: str, entries: list[ReassignablePartition], term: Term, *, may_change_factor: bool
) -> list[ReassignablePartitionResponse]:
    """One event of the controller: a broker that fails meanwhile is not behind a thousand moves."""
    answers = []
    for entry in entries:
        partition = TopicPartition(topic, entry.partition_index)
        answer = ReassignablePartitionResponse(partition_index=entry.partition_index)
        answers.append(answer)
        try:
            if entry.replicas is None:
                await moves.cancel(term, partition)
            else:
                await moves.begin(term, partition, entry.replicas, may_change_factor=may_change_factor)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
    return answers


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
