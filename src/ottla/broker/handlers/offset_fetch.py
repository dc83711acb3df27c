"""OffsetFetch: how far groups have read."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from ottla.broker.answer_room import AnswerRoom
from ottla.broker.coordinators import together
from ottla.broker.stored_offsets import fetch_from_store
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_ERROR_VERSION = 2  # earlier ones say in each partition what is wrong with the group
FIRST_BATCHED_VERSION = 8
FIRST_TOPIC_ID_VERSION = 10
NO_OFFSET = -1

Unknown = list[OffsetFetchResponseTopics] | None  # what is said of ids that nobody has, where topics have ids


@in_turns
def handle(broker: Broker, request: OffsetFetchRequest, context: Context) -> Steps[Any]:
    version = context.version
    if version == 0:
        return fetch_from_store(broker, request)
    if version >= FIRST_BATCHED_VERSION:
        answers = []
        room = AnswerRoom()
        for group in request.groups:
            answer = _fetch(broker, group, request.require_stable, version)
            if type(answer) is GeneratorType:
                answer = yield from answer
            if type(answer) is OffsetFetchResponseGroup:
                _make_room(room, answer)
            answers.append(answer)
            if len(answers) < len(request.groups):
                yield
        return together(answers, lambda groups: OffsetFetchResponse(groups=list(groups)))
    wanted = (
        None
        if request.topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)
    answer = _fetch(broker, group, request.require_stable, version)
    if type(answer) is GeneratorType:
        answer = yield from answer
    return together([answer], partial(_of_one_group, group, version))


def _make_room(room: AnswerRoom, answer: OffsetFetchResponseGroup) -> None:
    for topic in answer.topics:
        room.take(len(topic.partitions), sum(len(one.metadata or "") for one in topic.partitions))


def _fetch(broker: Broker, group: OffsetFetchRequestGroup, require_stable: bool, version: int) -> Any:
    """The answer about one group, steps to it where it is large, or a coroutine where it has to wait."""
    refuse = partial(_refused, group)
    unknown = _name_topics(broker, group) if version >= FIRST_TOPIC_ID_VERSION else None
    answer: Any = broker.groups.ask(group.group_id, refuse, GroupMachine.fetch_offsets, group, require_stable)
    if type(answer) is CoroutineType:
        return _fetched_later(broker, answer, unknown)
    if type(answer) is GeneratorType:
        return _fetched(broker, answer, unknown)
    return answer if unknown is None else _with_ids(broker, answer, unknown)


def _fetched(broker: Broker, steps: Steps[OffsetFetchResponseGroup], unknown: Unknown) -> Steps[Any]:
    answer = yield from steps
    return answer if unknown is None else _with_ids(broker, answer, unknown)


async def _fetched_later(broker: Broker, waiting: Awaitable[Any], unknown: Unknown) -> OffsetFetchResponseGroup:
    answer: Any = await waiting
    if type(answer) is GeneratorType:
        answer = await broker.turns.finish(answer)
    return answer if unknown is None else _with_ids(broker, answer, unknown)


def _refused(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)


def _name_topics(broker: Broker, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Gives the topics of a request their names; what is said about ids that nobody has."""
    unknown: list[OffsetFetchResponseTopics] = []
    known = []
    for topic in group.topics or ():
        name = broker.image.names_by_id.get(topic.topic_id)
        if name is None:
            partitions = [_without_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        else:
            topic.name = name
            known.append(topic)
    if group.topics is not None:
        group.topics = known
    return unknown


def _with_ids(
    broker: Broker, answer: OffsetFetchResponseGroup, unknown: list[OffsetFetchResponseTopics]
) -> OffsetFetchResponseGroup:
    """The answer by ids; offsets of topics that are gone have none and are left out."""
    if answer.error_code:
        return answer
    topics = broker.image.topics
    found = [topic for topic in answer.topics if topic.name in topics]
    for topic in found:
        topic.topic_id = topics[topic.name].topic_id
    answer.topics = [*found, *unknown]
    return answer


def _without_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _of_one_group(
    entry: OffsetFetchRequestGroup, version: int, answers: Sequence[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    """The answer of the versions that ask for one group."""
    (answer,) = answers
    topics = answer.topics
    if answer.error_code and version < FIRST_ERROR_VERSION:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_without_offset(index, ErrorCode(answer.error_code)) for index in topic.partition_indexes],
            )
            for topic in entry.topics or ()
        ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
        error_code=answer.error_code,
    )
