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

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

PREFERRED: Final = 0
UNCLEAN: Final = 1
FIRST_ERROR_VERSION: Final = 1


async def handle(broker: Broker, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    assert broker.cluster is not None
    # Without partitions, all: then only those are answered of which something changed or could not.
    is_asked_for_all = request.topic_partitions is None
    partitions = _all_partitions(broker) if request.topic_partitions is None else _named(request)
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _response(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST, context)

    async def elect(term: Term) -> dict[TopicPartition, ErrorCode]:
        return await elect_by_request(term, partitions, unclean=request.election_type == UNCLEAN)

    try:
        outcomes = await broker.cluster.controller.ask(elect)
    except ApiError as error:
        return _response(dict.fromkeys(partitions, error.code), error.code, context)
    if is_asked_for_all:
        outcomes = {name: code for name, code in outcomes.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    return _response(outcomes, ErrorCode.NONE, context)


def _all_partitions(broker: Broker) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in broker.image.topics.values()
        for index in range(len(topic.partitions))
    ]


def _named(request: ElectLeadersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(entry.topic, index) for entry in request.topic_partitions or () for index in entry.partitions
    ]


def _response(outcomes: dict[TopicPartition, ErrorCode], code: ErrorCode, context: Context) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for name, outcome in outcomes.items():
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
