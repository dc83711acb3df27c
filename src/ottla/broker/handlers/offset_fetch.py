"""OffsetFetch: how far groups have read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.response_budget import ResponseBudget
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
from ottla.runtime.stepping import all_of
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_ERROR_VERSION = 2  # earlier ones say in each partition what is wrong with the group
FIRST_BATCHED_VERSION = 8
FIRST_TOPIC_ID_VERSION = 10
NO_OFFSET = -1


async def handle(broker: Broker, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.version
    if version == 0:
        return await fetch_from_store(broker.store, broker.image, request, broker.turns)
    if version >= FIRST_BATCHED_VERSION:
        budget = ResponseBudget()
        if len(request.groups) == 1:
            only = await _fetch_within(budget, broker, request.groups[0], request.require_stable, version)
            return OffsetFetchResponse(groups=[only])
        asked = (_fetch_within(budget, broker, group, request.require_stable, version) for group in request.groups)
        return OffsetFetchResponse(groups=await all_of(asked, broker.turns))
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    if request.topics is not None:
        group.topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            async for topic in broker.turns.over(request.topics)
        ]
    fetched = await _fetch(broker, group, request.require_stable, version)
    response = await broker.turns.finish(_of_one_group(group, version, fetched))
    for topics in (group.topics, fetched.topics):  # which only this version needed
        broker.turns.let_go(topics or [])
    return response


async def _fetch_within(
    budget: ResponseBudget, broker: Broker, group: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    fetched = await _fetch(broker, group, require_stable, version)
    await broker.turns.finish(_spend(budget, fetched))
    return fetched


def _spend(budget: ResponseBudget, answer: OffsetFetchResponseGroup) -> Steps[None]:
    for number, topic in enumerate(answer.topics, 1):
        if number % STEP == 0:
            yield
        budget.spend(len(topic.partitions), sum(len(one.metadata or "") for one in topic.partitions))


async def _fetch(
    broker: Broker, group: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> OffsetFetchResponseGroup:
    """The answer about one group. A large one is made in steps, each partition as it is at its step."""
    refuse = partial(_refused, group)
    uses_ids = version >= FIRST_TOPIC_ID_VERSION
    unknown = await broker.turns.finish(_name_topics(broker, group)) if uses_ids else []
    answer: OffsetFetchResponseGroup | Steps[OffsetFetchResponseGroup] = await broker.groups.ask(
        group.group_id, refuse, GroupMachine.fetch_offsets, group, require_stable
    )
    fetched = answer if isinstance(answer, OffsetFetchResponseGroup) else await broker.turns.finish(answer)
    return await broker.turns.finish(_with_ids(broker, fetched, unknown)) if uses_ids else fetched


def _refused(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)


def _name_topics(broker: Broker, group: OffsetFetchRequestGroup) -> Steps[list[OffsetFetchResponseTopics]]:
    """Gives the topics of a request their names; what is said about ids that nobody has."""
    unknown: list[OffsetFetchResponseTopics] = []
    known = []
    for number, topic in enumerate(group.topics or (), 1):
        if number % STEP == 0:
            yield
        name = broker.image.names_by_id.get(topic.topic_id)
        if name is None:
            partitions = yield from _without_offsets(topic.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID)
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        else:
            topic.name = name
            known.append(topic)
    if group.topics is not None:
        group.topics = known
    return unknown


def _with_ids(
    broker: Broker, answer: OffsetFetchResponseGroup, unknown: list[OffsetFetchResponseTopics]
) -> Steps[OffsetFetchResponseGroup]:
    """The answer by ids; offsets of topics that are gone have none and are left out."""
    if answer.error_code:
        return answer
    topics = broker.image.topics
    found = []
    for number, topic in enumerate(answer.topics, 1):
        if number % STEP == 0:
            yield
        if topic.name in topics:
            topic.topic_id = topics[topic.name].topic_id
            found.append(topic)
    answer.topics = [*found, *unknown]
    return answer


def _without_offsets(indexes: list[int], code: ErrorCode) -> Steps[list[OffsetFetchResponsePartitions]]:
    partitions = []
    for index in indexes:
        partitions.append(_without_offset(index, code))
        if len(partitions) % STEP == 0:
            yield
    return partitions


def _without_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _of_one_group(
    entry: OffsetFetchRequestGroup, version: int, answer: OffsetFetchResponseGroup
) -> Steps[OffsetFetchResponse]:
    """The answer of the versions that ask for one group."""
    topics = answer.topics
    if answer.error_code and version < FIRST_ERROR_VERSION:
        topics = []
        for asked in entry.topics or ():
            failed = yield from _without_offsets(asked.partition_indexes, ErrorCode(answer.error_code))
            topics.append(OffsetFetchResponseTopics(name=asked.name, partitions=failed))
            yield
    found = []
    for topic in topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            if len(partitions) % STEP == 0:
                yield
        found.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    return OffsetFetchResponse(topics=found, error_code=answer.error_code)
