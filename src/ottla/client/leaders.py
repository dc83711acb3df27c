"""Asking the leader of every partition, wherever it moves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ottla.client.errors import TimedOutError
from ottla.client.metadata import Cluster, Node
from ottla.client.retrying import Deadline, UnknownTopicError, is_passing
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Address, ConnectionFailedError

Item = TypeVar("Item")
Ask = Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Item | ApiError]]]


async def ask_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], ask: Ask[Item], deadline: Deadline
) -> dict[TopicPartition, Item]:
    """Asks the leader of every partition; those that have moved are asked for again at the new one.

    The first error that will not pass is raised. A topic that does not exist is waited for.
    """
    pauses = iter(cluster.options.pauses)
    outcomes: dict[TopicPartition, Item] = {}
    missing = list(dict.fromkeys(partitions))
    while missing:
        asked = await _ask_once(cluster, missing, ask, deadline)
        for error in asked.errors.values():
            raise error
        outcomes |= asked.items
        missing = list(asked.passing)
        if missing:
            await deadline.pause(next(pauses, None), next(iter(asked.passing.values())))
    return outcomes


async def ask_each_leader(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Ask[Item],
    deadline: Deadline,
    *,
    unknown_topic_wait_s: float,
) -> dict[TopicPartition, Item | ApiError]:
    """As `ask_leaders`, with an outcome for every partition: errors stand beside what went well.

    A topic that does not exist is waited for a moment: brokers learn of a new one a little later than its creator.
    """
    pauses = iter(cluster.options.pauses)
    outcomes: dict[TopicPartition, Item | ApiError] = {}
    missing = list(dict.fromkeys(partitions))
    known_by = Deadline.after(min(unknown_topic_wait_s, deadline.left_s))
    while missing:
        asked = await _ask_once(cluster, missing, ask, deadline)
        outcomes |= asked.items
        outcomes |= asked.errors
        pause_s = next(pauses, math.inf)
        for partition, error in list(asked.passing.items()):
            is_unknown = isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_unknown and pause_s >= known_by.left_s:
                outcomes[partition] = UnknownTopicError(f"{partition} does not exist")
                del asked.passing[partition]
            elif pause_s >= deadline.left_s:
                outcomes[partition] = TimedOutError(deadline.timeout_s, error, str(partition))
                del asked.passing[partition]
        missing = list(asked.passing)
        if missing:
            await asyncio.sleep(pause_s)
    return outcomes


@dataclass(frozen=True, slots=True)
class _Asked(Generic[Item]):
    """What came of one question to every leader. `passing`: another try may go better."""

    items: dict[TopicPartition, Item] = field(default_factory=dict)
    errors: dict[TopicPartition, ApiError] = field(default_factory=dict)
    passing: dict[TopicPartition, OttlaError] = field(default_factory=dict)

    def note(self, cluster: Cluster, partition: TopicPartition, error: OttlaError) -> None:
        if is_passing(error):
            cluster.learn_from(error, [partition.topic])
            self.passing[partition] = error
        elif isinstance(error, ApiError):
            self.errors[partition] = error
        else:
            raise error  # what answers there is no broker


async def _ask_once(
    cluster: Cluster, partitions: Sequence[TopicPartition], ask: Ask[Item], deadline: Deadline
) -> _Asked[Item]:
    asked: _Asked[Item] = _Asked()
    unknown = {partition.topic for partition in partitions} - cluster.known_topics().keys()
    view = await cluster.refresh(unknown, deadline) if unknown else None
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            if view is not None and partition.topic in view.errors:
                raise view.errors[partition.topic]
            by_leader.setdefault((await cluster.leader_now(partition)).leader_id, []).append(partition)
        except (ApiError, ConnectionFailedError) as error:
            asked.note(cluster, partition, error)

    async def ask_one(node_id: int, led: Sequence[TopicPartition]) -> None:
        try:
            answers: Mapping[TopicPartition, Item | ApiError] = await deadline.within(ask(node_id, led))
        except (ApiError, ConnectionFailedError) as error:
            for partition in led:
                asked.note(cluster, partition, error)
            return
        for partition in led:
            answer = answers.get(partition)
            if isinstance(answer, ApiError):
                asked.note(cluster, partition, answer)
            else:
                assert partition in answers, "a broker answers for every partition it was asked about"
                asked.items[partition] = answer  # type: ignore[assignment]  # None may be an answer

    await asyncio.gather(*(ask_one(node_id, led) for node_id, led in by_leader.items()))
    return asked


class LeaderAndEpoch(Protocol):
    """Who leads a partition now, as answers to Produce and Fetch say."""

    leader_id: int
    leader_epoch: int


class Endpoint(Protocol):
    node_id: int
    host: str
    port: int
    rack: str | None


def learn_leader(
    cluster: Cluster, partition: TopicPartition, leader: LeaderAndEpoch | None, endpoints: Iterable[Endpoint]
) -> bool:
    """Whether an answer names a leader that is news (KIP-951): then nobody has to be asked."""
    if leader is None or leader.leader_id < 0:
        return False
    nodes = [Node(each.node_id, Address(each.host, each.port), each.rack) for each in endpoints]
    return cluster.learn_leader(partition, leader.leader_id, leader.leader_epoch, nodes)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions under their topic, as most requests want them."""
    groups: dict[str, list[int]] = {}
    for topic, number in partitions:
        groups.setdefault(topic, []).append(number)
    return groups
