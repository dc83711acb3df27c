"""ElectLeaders: preferred leaders lead again, or any replica where nobody does. The controller does it.

One broker alone leads what it can lead since it started, so that an election there has nothing to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.error_answers import error_answer
from ottla.cluster.image import NO_LEADER, ClusterImage
from ottla.controller.elections import elect_by_request
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.protocol.versions import API_TABLE
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

PREFERRED: Final = 0
UNCLEAN: Final = 1
ELECT_LEADERS_KEY: Final = 43


async def handle(broker: Broker, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    # Without partitions, all: then only those are answered of which something changed or could not.
    is_asked_for_all = request.topic_partitions is None
    topics = _all_topics(broker.image) if request.topic_partitions is None else request.topic_partitions
    try:
        if topics and request.election_type not in (PREFERRED, UNCLEAN):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}")
        outcomes = await _elected(broker, topics, unclean=request.election_type == UNCLEAN)
    except ApiError as error:
        api = API_TABLE[ELECT_LEADERS_KEY]
        refused: ElectLeadersResponse = await broker.turns.finish(
            error_answer(api, request, context.version, error.code, error.message or None)
        )
        return refused
    left_out = ErrorCode.ELECTION_NOT_NEEDED if is_asked_for_all else None
    return await broker.turns.finish(_response(topics, outcomes, left_out))


async def _elected(
    broker: Broker, topics: list[TopicPartitions], *, unclean: bool
) -> Mapping[TopicPartition, ErrorCode]:
    partitions = await broker.turns.finish(_partitions(topics))
    if broker.cluster is None:
        return await broker.turns.finish(_unchanged(broker.image, partitions, unclean=unclean))

    async def elect(term: Term) -> dict[TopicPartition, ErrorCode]:
        return await elect_by_request(term, partitions, unclean=unclean)

    return await broker.cluster.controller.ask(elect)


def _unchanged(
    image: ClusterImage, partitions: Iterable[TopicPartition], *, unclean: bool
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Of one broker alone: it leads, or it lost the partition with a log directory and cannot."""
    without_leader = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    outcomes: dict[TopicPartition, ErrorCode] = {}
    for number, partition in enumerate(partitions, 1):
        if number % STEP == 0:
            yield
        state = image.partition(partition)
        if state is None:
            outcomes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            outcomes[partition] = without_leader if state.leader == NO_LEADER else ErrorCode.ELECTION_NOT_NEEDED
    return outcomes


def _all_topics(image: ClusterImage) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=topic.name, partitions=list(range(len(topic.partitions))))
        for topic in image.topics.values()
    ]


def _partitions(topics: list[TopicPartitions]) -> Steps[list[TopicPartition]]:
    partitions: list[TopicPartition] = []
    for entry in topics:
        partitions += [TopicPartition(entry.topic, index) for index in entry.partitions]
        yield
    return partitions


def _response(
    topics: list[TopicPartitions], outcomes: Mapping[TopicPartition, ErrorCode], left_out: ErrorCode | None
) -> Steps[ElectLeadersResponse]:
    """What came of each partition, as it was named. A topic of which all is left out is still there, as in Kafka."""
    results: list[ReplicaElectionResult] = []
    for entry in topics:
        result = ReplicaElectionResult(topic=entry.topic, partition_result=[])
        results.append(result)
        for number, index in enumerate(entry.partitions, 1):
            if number % STEP == 0:
                yield
            outcome = outcomes[TopicPartition(entry.topic, index)]
            if outcome != left_out:
                message = None if outcome == ErrorCode.NONE else outcome.name
                result.partition_result.append(
                    PartitionResult(partition_id=index, error_code=outcome, error_message=message)
                )
        yield
    return ElectLeadersResponse(replica_election_results=results)
