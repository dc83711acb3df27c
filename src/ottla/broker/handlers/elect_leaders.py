"""ElectLeaders: preferred leaders lead again, or any replica where nobody does. The controller does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.elections import elect_by_request
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.runtime.turns import Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage

PREFERRED: Final = 0
UNCLEAN: Final = 1
FIRST_ERROR_VERSION: Final = 1


async def handle(broker: Broker, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    assert broker.cluster is not None
    # Without partitions, all: then only those are answered of which something changed or could not.
    is_asked_for_all = request.topic_partitions is None
    finding = _all_partitions(broker.image) if request.topic_partitions is None else _named(request)
    partitions = await broker.turns.finish(finding)
    if request.election_type not in (PREFERRED, UNCLEAN):
        refused = dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        return await broker.turns.finish(_response(refused, ErrorCode.INVALID_REQUEST, context))

    async def elect(term: Term) -> dict[TopicPartition, ErrorCode]:
        return await elect_by_request(term, partitions, unclean=request.election_type == UNCLEAN)

    try:
        outcomes = await broker.cluster.controller.ask(elect)
    except ApiError as error:
        return await broker.turns.finish(_response(dict.fromkeys(partitions, error.code), error.code, context))
    if is_asked_for_all:
        outcomes = {name: code for name, code in outcomes.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    return await broker.turns.finish(_response(outcomes, ErrorCode.NONE, context))


def _all_partitions(image: ClusterImage) -> Steps[list[TopicPartition]]:
    partitions: list[TopicPartition] = []
    for topic in image.topics.values():
        partitions += [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        yield
    return partitions


def _named(request: ElectLeadersRequest) -> Steps[list[TopicPartition]]:
    partitions: list[TopicPartition] = []
    for entry in request.topic_partitions or ():
        partitions += [TopicPartition(entry.topic, index) for index in entry.partitions]
        yield
    return partitions


def _response(
    outcomes: dict[TopicPartition, ErrorCode], code: ErrorCode, context: Context
) -> Steps[ElectLeadersResponse]:
    topics: dict[str, ReplicaElectionResult] = {}
    for name, outcome in outcomes.items():
        yield
        topic = topics.setdefault(name.topic, ReplicaElectionResult(topic=name.topic, partition_result=[]))
        topic.partition_result.append(
            PartitionResult(
                partition_id=name.partition,
                error_code=outcome,
                error_message=None if outcome == ErrorCode.NONE else outcome.name,
            )
        )
    return ElectLeadersResponse(
        error_code=code if context.version >= FIRST_ERROR_VERSION else ErrorCode.NONE,
        replica_election_results=list(topics.values()),
    )
