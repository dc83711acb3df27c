"""Moving partitions to other brokers: the new replicas are added, catch up, take over, and the old ones go.

Each phase is written before the next one begins, into the topic's assignment and the partition's state; a new
controller resumes from those two.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ottla.cluster import moves, nodes
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import NO_LEADER, PartitionState
from ottla.cluster.leadership import elect_of_target
from ottla.controller.elections import Rule, change
from ottla.controller.term import Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.store.api import BadVersion, Put, StoreError

logger = logging.getLogger(__name__)


async def begin(
    term: Term, partition: TopicPartition, replicas: Sequence[int], *, may_change_factor: bool = True
) -> None:
    """Starts a move, or gives one that is in progress another target; ApiError says why not."""
    context = term.context
    state = _known(term, partition)
    moves.check_replicas(replicas, context.brokers)
    count = len(moves.origin(state))
    if not may_change_factor and len(replicas) != count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{partition} has {count} replicas, and {len(replicas)} are named; the request allows no change of that",
        )
    if not moves.is_moving(state) and tuple(replicas) == state.replicas:
        return
    dropped = set(state.adding) - set(replicas)  # of an earlier target that is not to come any more
    if dropped and set(state.isr) <= dropped:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"only {list(state.isr)} have all of {partition}, of a move that has begun; they cannot be left out now",
        )
    await _write_assignment(term, partition, moves.begin(state, replicas))
    logger.info("%s moves from %s to %s", partition, list(moves.origin(state)), list(replicas))

    def announce(_: TopicPartition, known: PartitionState, online: list[int]) -> PartitionState:
        isr = tuple(node for node in known.isr if node not in dropped)
        leader = known.leader
        if leader in dropped:  # elected while the move went on
            leader = next((node for node in known.replicas if node in isr and node in online), NO_LEADER)
        return _next_epoch(known, leader, isr)

    await _announce(term, partition, announce)
    _drop(term, partition, dropped)
    term.send()
    await complete_if_caught_up(term, partition)


async def resume(term: Term, partition: TopicPartition) -> None:
    """Goes on with a move that an earlier controller began, perhaps without having said so to anybody.

    The leader would not let replicas join of which it does not know, and it learns of them in a new epoch only.
    """
    if not await complete_if_caught_up(term, partition):
        await _announce(term, partition, lambda _, known, online: _next_epoch(known, known.leader, known.isr))
        term.send()


async def _announce(term: Term, partition: TopicPartition, rule: Rule) -> None:
    """All that are to have the partition learn of each other."""
    await change(term, [partition], rule)
    context = term.context
    for node in context.state(partition).adding:
        if node in context.brokers:
            term.batch.lead_or_follow([node], partition, is_new=True)


async def complete_if_caught_up(term: Term, partition: TopicPartition) -> bool:
    """Ends a move whose target is in sync; whether it did."""
    context = term.context
    state = context.find(partition)
    if state is None or partition.topic in context.deleting:
        return False
    if not (moves.is_moving(state) and moves.has_caught_up(state)):
        return False
    target, gone = moves.target(state), state.removing

    def take_over(_: TopicPartition, known: PartitionState, online: list[int]) -> PartitionState | None:
        elected = elect_of_target(known, target, online)
        if elected is None:
            return None  # no replica of the target is online; the move goes on when one is
        return replace(elected, isr=tuple(node for node in elected.isr if node in target))

    if not await change(term, [partition], take_over):
        return False
    await _write_assignment(term, partition, moves.finish(context.state(partition)))
    term.notify_replicas(partition)
    term.send()
    _drop(term, partition, gone)
    term.send()
    logger.info("%s has been moved to %s", partition, list(target))
    return True


async def cancel(term: Term, partition: TopicPartition) -> None:
    """The partition stays where it was; ApiError if it does not move."""
    state = _known(term, partition)
    if not moves.is_moving(state):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being moved")
    stays, gone = moves.origin(state), state.adding
    if not set(stays) & set(state.isr):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of the replicas {list(stays)} of {partition} is in sync"
        )

    def stay(_: TopicPartition, known: PartitionState, online: list[int]) -> PartitionState | None:
        elected = elect_of_target(known, stays, online)
        return None if elected is None else replace(elected, isr=tuple(node for node in elected.isr if node in stays))

    if not await change(term, [partition], stay):
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {partition} that stays can lead it")
    await _write_assignment(term, partition, moves.cancel(term.context.state(partition)))
    term.notify_replicas(partition)
    term.send()
    _drop(term, partition, gone)
    term.send()


def _known(term: Term, partition: TopicPartition) -> PartitionState:
    state = term.context.find(partition)
    if state is None or partition.topic in term.context.deleting:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
    return state


async def _write_assignment(term: Term, partition: TopicPartition, state: PartitionState) -> None:
    """The whole assignment of the topic, with this partition's changed; known once it is written.

    Partitions that were added meanwhile, which we have not looked at yet, stay in it.
    """
    topic = term.context.topics[partition.topic]
    partitions = list(topic.partitions)
    partitions[partition.partition] = state
    changed = replace(topic, partitions=tuple(partitions))
    path = nodes.topic_path(topic.name)
    while True:
        node = await term.get(path)
        if node is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} does not exist")
        added = nodes.decode_assignment(path, node.data).partitions[len(partitions) :]
        written = replace(changed, partitions=(*partitions, *(unwritten(each.replicas) for each in added)))
        result = await term.write(Put(path, nodes.encode_topic(written), node.version))
        if not isinstance(result, BadVersion):
            break
    if isinstance(result, StoreError):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the move of {partition} was not written: {result}")
    term.context.set_topic(changed)


def _next_epoch(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, version=state.version + 1)


def _drop(term: Term, partition: TopicPartition, gone: Sequence[int] | set[int]) -> None:
    """Brokers that hold a partition no longer stop it, and then delete it."""
    epoch = term.context.state(partition).leader_epoch
    for deletes in (False, True):
        if gone:
            term.batch.stop(gone, partition, epoch, deletes=deletes)
            term.send()
