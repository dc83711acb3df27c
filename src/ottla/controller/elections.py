"""Changing who leads: a rule decides for each partition, the new state is written, and then sent to the brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from ottla.cluster import leadership
from ottla.cluster.controller_context import NOT_WRITTEN
from ottla.cluster.image import NO_LEADER, PartitionState
from ottla.cluster.leadership import elect_of_any, elect_preferred
from ottla.controller.term import Term
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

logger = logging.getLogger(__name__)

# Given a partition, its state and the replicas that are online: its new state, or None to leave it.
Rule = Callable[[TopicPartition, PartitionState, list[int]], PartitionState | None]


async def change(
    term: Term, partitions: Iterable[TopicPartition], rule: Rule, *, leaving: int | None = None
) -> set[TopicPartition]:
    """Applies a rule until it has nothing more to say or was written; returns the partitions that changed.

    A state that somebody else changed meanwhile is decided again: the rule sees the newer one. One of which no newer
    one is found, because it is damaged or gone, would be decided in the same way for ever: it stays as it is.
    `leaving`: a broker whose replicas have been stopped; it would take a new state as a request to follow again.
    """
    changed: set[TopicPartition] = set()
    left = list(partitions)
    while left:
        context = term.context
        decided: dict[TopicPartition, PartitionState] = {}
        versions: dict[TopicPartition, int] = {}
        for partition in left:
            state = context.find(partition)
            if state is None or state.version == NOT_WRITTEN or partition.topic in context.deleting:
                continue
            new = rule(partition, state, context.online_replicas(partition))
            if new is not None:
                decided[partition], versions[partition] = new, state.version
        written = await term.write_states(decided)
        changed |= written
        left = [each for each in decided if each not in written and context.state(each).version != versions[each]]
    for partition in changed:
        term.notify_replicas(partition, leaving=leaving)
    return changed


async def repair(
    term: Term,
    partitions: Iterable[TopicPartition],
    unsafe: Mapping[TopicPartition, Collection[int]] = MappingProxyType({}),
) -> set[TopicPartition]:
    """Replicas left or joined: one that is online leads, uncleanly where the topic allows it; only those are in sync.

    `unsafe`: replicas that must not go on as they were; what they have is not known.
    """

    def rule(partition: TopicPartition, state: PartitionState, online: list[int]) -> PartitionState | None:
        doubtful = unsafe.get(partition, ())
        safe = [node for node in online if node not in doubtful]
        is_unclean = not doubtful and term.settings.elects_unclean(partition.topic)
        new = leadership.repair(state, safe, unclean=is_unclean)
        _log_loss(partition, state, new)
        return new

    return await change(term, partitions, rule)


def _log_loss(partition: TopicPartition, state: PartitionState, new: PartitionState | None) -> None:
    if new is not None and new.leader != NO_LEADER and new.leader not in state.isr:
        logger.warning(
            "%s: unclean election: broker %d leads; records that only %s had are lost",
            partition,
            new.leader,
            list(state.isr),
        )


async def elect_where_nobody_leads(term: Term, topics: Collection[str] | None) -> None:
    """Settings of these topics, or of all (None), have changed: an unclean election may be allowed now."""
    context = term.context
    leaderless = [
        TopicPartition(topic.name, index)
        for topic in (context.topics.values() if topics is None else filter(None, map(context.topics.get, topics)))
        for index, state in enumerate(topic.partitions)
        if state.leader == NO_LEADER
    ]
    await repair(term, [each for each in leaderless if term.settings.elects_unclean(each.topic)])


# -- elections that somebody asks for ----------------------------------------------------------------------------------


async def elect_by_request(
    term: Term, partitions: Iterable[TopicPartition], *, unclean: bool
) -> dict[TopicPartition, ErrorCode]:
    """ElectLeaders: the preferred leader, or any replica where nobody leads."""
    outcomes: dict[TopicPartition, ErrorCode] = {}
    asked = list(partitions)

    def rule(partition: TopicPartition, state: PartitionState, online: list[int]) -> PartitionState | None:
        if unclean:
            if state.leader in online:
                outcomes[partition] = ErrorCode.ELECTION_NOT_NEEDED
                return None
            new = elect_of_any(state, online)
            _log_loss(partition, state, new)
            outcomes[partition] = ErrorCode.NONE if new is not None else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            return new
        new = elect_preferred(state, online)
        if new is None:
            leads = state.leader == state.replicas[0] and state.leader in online
            outcomes[partition] = ErrorCode.ELECTION_NOT_NEEDED if leads else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            outcomes[partition] = ErrorCode.NONE
        return new

    for partition in asked:
        if term.context.find(partition) is None or partition.topic in term.context.deleting:
            outcomes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    changed = await change(term, [each for each in asked if each not in outcomes], rule)
    for partition, code in outcomes.items():
        if code is ErrorCode.NONE and partition not in changed:  # decided, and not to be written
            outcomes[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    return outcomes


async def rebalance_leaders(term: Term) -> set[TopicPartition]:
    """Preferred leaders lead again, for brokers that lead too few of what they should."""
    context, settings = term.context, term.settings
    preferred: dict[int, list[TopicPartition]] = {}
    for partition, state in context.partitions():
        if partition.topic not in context.deleting and not state.adding and not state.removing:
            preferred.setdefault(state.replicas[0], []).append(partition)
    due = []
    for node_id, partitions in preferred.items():
        away = [each for each in partitions if context.state(each).leader != node_id]
        if node_id in context.brokers and 100 * len(away) > settings.imbalance_percent * len(partitions):
            due += away
    return await change(term, due, lambda partition, state, online: elect_preferred(state, online))
