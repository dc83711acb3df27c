"""OffsetCommit: a group notes how far it has read."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.broker.coordinators import together
from ottla.broker.group_requests import caller_of
from ottla.broker.stored_offsets import commit_to_store
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_TOPIC_ID_VERSION = 10


def handle(
    broker: Broker, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    refused = _take_unknown_out(broker, request, context.version)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    if context.version == 0:
        answer: Any = commit_to_store(broker, request)
    else:
        refuse = partial(_refused, request)
        answer = broker.groups.ask(request.group_id, refuse, GroupMachine.commit_offsets, request, caller_of(context))
    return answer if not refused else together([answer], lambda answers: _merged(refused, answers[0]))


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_failed(topic, topic.partitions, code) for topic in request.topics])


def _take_unknown_out(broker: Broker, request: OffsetCommitRequest, version: int) -> list[OffsetCommitResponseTopic]:
    """Leaves in the request what there is, by name and id; what is said about the rest."""
    image = broker.image
    refused: dict[tuple[str, UUID], OffsetCommitResponseTopic] = {}
    known: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        if version >= FIRST_TOPIC_ID_VERSION:
            name = image.names_by_id.get(topic.topic_id)
            if name is None:
                _refuse(refused, topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            topic.name = name
        state = image.topics.get(topic.name)
        count = 0
        if state is not None:
            count, topic.topic_id = len(state.partitions), state.topic_id
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            _refuse(refused, topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [each for each in topic.partitions if each not in missing]
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return list(refused.values())


def _refuse(
    refused: dict[tuple[str, UUID], OffsetCommitResponseTopic],
    topic: OffsetCommitRequestTopic,
    partitions: list[Any],
    code: ErrorCode,
) -> None:
    """Adds what is said about partitions to what was said about their topic before."""
    failed = _failed(topic, partitions, code)
    told = refused.setdefault((topic.name, topic.topic_id), failed)
    if told is not failed:
        told.partitions += failed.partitions


def _failed(topic: OffsetCommitRequestTopic, partitions: list[Any], code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in partitions
        ],
    )


def _merged(refused: list[OffsetCommitResponseTopic], answer: OffsetCommitResponse) -> OffsetCommitResponse:
    """One answer: the partitions of a topic together, those that there are not first."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in answer.topics:
        earlier = by_topic.get((topic.name, topic.topic_id))
        if earlier is None:
            refused.append(topic)
        else:
            earlier.partitions += topic.partitions
    return OffsetCommitResponse(topics=refused)
