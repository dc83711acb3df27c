"""What brokers ask of each other in the versions of older ones. Pure.

Requests are made in the newest version. Whoever sends one to a broker that has less of it has it said as that version
says it: a field that is new is left out where it tells an old broker nothing, or its content goes where it was before.
Limits: brokers of Kafka before 2.2 group partitions differently in LeaderAndIsr and UpdateMetadata, and are not served.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode
from ottla.protocol.messages.replication import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    LeaderAndIsrRequest,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicV1,
)

Message = TypeVar("Message")

FIRST_RECOVERY_VERSION: Final = 6  # of LeaderAndIsr
FIRST_STATES_VERSION: Final = 3  # of StopReplica
FIRST_TOPICS_VERSION: Final = 1
FIRST_EPOCHS_VERSION: Final = 3  # of AlterPartition


def in_version(request: Any, version: int) -> list[Any]:
    """A request as that version says it: two of them where a part of it is to be said of all that a request names."""
    match request:
        case LeaderAndIsrRequest() if version < FIRST_RECOVERY_VERSION:
            return [_without_recovery(request)]
        case StopReplicaRequest() if version < FIRST_STATES_VERSION:
            return _stopped_at_once(request, version)
        case AlterPartitionRequest() if version < FIRST_EPOCHS_VERSION:
            return [_without_broker_epochs(request)]
        case _:
            return [request]


def merged(responses: list[Any]) -> Any:
    """The response to a request that was sent in parts."""
    if len(responses) == 1:
        return responses[0]
    assert all(isinstance(response, StopReplicaResponse) for response in responses)
    return StopReplicaResponse(
        error_code=next((each.error_code for each in responses if each.error_code), ErrorCode.NONE),
        partition_errors=[error for response in responses for error in response.partition_errors],
    )


def _without_recovery(request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """Whether a leader may have lost records was not said before KIP-704."""
    return _with(
        request,
        topic_states=[
            _with(topic, partition_states=[_with(state, leader_recovery_state=0) for state in topic.partition_states])
            for topic in request.topic_states
        ],
    )


def _stopped_at_once(request: StopReplicaRequest, version: int) -> list[StopReplicaRequest]:
    """Leader epochs are left out; whether to delete was said of all replicas of a request."""
    return [
        part
        for deletes in (True, False)
        if (part := _stopped(request, version, deletes=deletes)).topics or part.ungrouped_partitions
    ]


def _stopped(request: StopReplicaRequest, version: int, *, deletes: bool) -> StopReplicaRequest:
    named = [
        (topic.topic_name, [one.partition_index for one in topic.partition_states if one.delete_partition == deletes])
        for topic in request.topic_states
    ]
    part = _with(request, topic_states=[], delete_partitions=deletes)
    if version >= FIRST_TOPICS_VERSION:
        part.topics = [StopReplicaTopicV1(name=name, partition_indexes=indexes) for name, indexes in named if indexes]
    else:
        part.ungrouped_partitions = list(_ungrouped(named))
    return part


def _ungrouped(named: Iterable[tuple[str, list[int]]]) -> Iterable[StopReplicaPartitionV0]:
    for name, indexes in named:
        for index in indexes:
            yield StopReplicaPartitionV0(topic_name=name, partition_index=index)


def _without_broker_epochs(request: AlterPartitionRequest) -> AlterPartitionRequest:
    """In-sync replicas were ids before KIP-903."""
    return _with(
        request,
        topics=[_with(topic, partitions=[_ids_of(each) for each in topic.partitions]) for topic in request.topics],
    )


def _ids_of(entry: AlterPartitionRequestPartitionData) -> AlterPartitionRequestPartitionData:
    isr = [broker.broker_id for broker in entry.new_isr_with_epochs]
    return _with(entry, new_isr=isr, new_isr_with_epochs=[])


def _with(message: Message, **changes: Any) -> Message:
    """The same but for these: others are sent the original."""
    changed = copy(message)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
