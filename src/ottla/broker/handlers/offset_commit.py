"""OffsetCommit: a group notes how far it has read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.broker.group_requests import caller_of, commits_in_pieces, topics_of_pieces
from ottla.broker.stored_offsets import commit_to_store
from ottla.errors import ErrorCode
from ottla.groups.group import Caller
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.runtime.stepping import all_of
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage

FIRST_TOPIC_ID_VERSION = 10
PARTITIONS_PER_STEP = 1000  # that are answered with an error


async def handle(broker: Broker, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    image = broker.image  # one view to look for topics in
    refused = await broker.turns.finish(_take_unknown_out(image, request, context.version))
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    if context.version == 0:
        answer = await commit_to_store(broker.store, request, broker.config.offset_metadata_max_bytes)
    else:
        caller, pieces = caller_of(context), commits_in_pieces(request)
        if len(pieces) == 1:
            answer = await _commit(broker, image, request, caller)
        else:
            answers = await all_of((_commit(broker, image, piece, caller) for piece in pieces), broker.turns)
            answer = OffsetCommitResponse(topics=topics_of_pieces(answers))
    return _merged(refused, answer) if refused else answer


async def _commit(
    broker: Broker, image: ClusterImage, piece: OffsetCommitRequest, caller: Caller
) -> OffsetCommitResponse:
    gone = [] if broker.image is image else _take_gone_out(broker.image, piece)
    if gone and not piece.topics:
        return OffsetCommitResponse(topics=gone)
    decide = GroupMachine.commit_offsets
    answer = await broker.groups.ask(piece.group_id, partial(_refused, piece), decide, piece, caller)
    return OffsetCommitResponse(topics=[*gone, *answer.topics]) if gone else answer


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_failed(topic, topic.partitions, code) for topic in request.topics])


def _take_unknown_out(
    image: ClusterImage, request: OffsetCommitRequest, version: int
) -> Steps[list[OffsetCommitResponseTopic]]:
    """Leaves in the request the topics that exist, by name and id; returns the answers for the others.

    The machine does not ask whether a topic is there.
    """
    refused: dict[tuple[str, UUID], OffsetCommitResponseTopic] = {}
    known: list[OffsetCommitRequestTopic] = []
    for number, topic in enumerate(request.topics, 1):
        if number % STEP == 0:
            yield
        if version >= FIRST_TOPIC_ID_VERSION:
            name = image.names_by_id.get(topic.topic_id)
            if name is None:
                yield from _refuse(refused, topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            topic.name = name
        state = image.topics.get(topic.name)
        count = 0
        if state is not None:
            count, topic.topic_id = len(state.partitions), state.topic_id
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            yield from _refuse(refused, topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return list(refused.values())


def _take_gone_out(image: ClusterImage, piece: OffsetCommitRequest) -> list[OffsetCommitResponseTopic]:
    """Topics that were deleted while others had their turn: nobody would take their offsets away any more."""
    gone: list[OffsetCommitRequestTopic] = []
    there: list[OffsetCommitRequestTopic] = []
    for topic in piece.topics:
        (there if image.topic_by_id(topic.topic_id) is not None else gone).append(topic)
    piece.topics = there
    return [_failed(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in gone]


def _refuse(
    refused: dict[tuple[str, UUID], OffsetCommitResponseTopic],
    topic: OffsetCommitRequestTopic,
    partitions: list[Any],
    code: ErrorCode,
) -> Steps[None]:
    """Adds what is said about partitions to what was said about their topic before."""
    known = refused.setdefault((topic.name, topic.topic_id), _failed(topic, [], code))
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        known.partitions += _failed(topic, partitions[start : start + PARTITIONS_PER_STEP], code).partitions
        yield


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
