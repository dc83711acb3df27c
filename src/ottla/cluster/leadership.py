"""Who leads a partition: one function for each reason to ask. Pure.

Every change that a controller makes to the state of a partition begins a new leader epoch, even where the leader stays:
whoever knows the old state can see that it is over. None means that there is nothing to change, or nothing that
could be done without losing records.

`online` are the brokers whose replica of the partition is online: alive, and their log directory works.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.cluster.image import NO_LEADER, PartitionState


def elect_first(replicas: Sequence[int], online: Collection[int]) -> PartitionState:
    """The first state of a new partition: whoever is there is in sync, for there is nothing to have yet."""
    isr = tuple(node for node in replicas if node in online)
    leader = isr[0] if isr else NO_LEADER
    return PartitionState(tuple(replicas), leader=leader, leader_epoch=0, isr=isr)


def elect_of_in_sync(state: PartitionState, online: Collection[int]) -> PartitionState | None:
    """After the leader is lost: the first in-sync replica that is online; of the others those stay that are online."""
    isr = tuple(node for node in state.isr if node in online)
    leader = _first(state.replicas, isr)
    return None if leader is None else _elected(state, leader, isr)


def elect_of_any(state: PartitionState, online: Collection[int]) -> PartitionState | None:
    """The same, or else the first replica that is online: what it lacks is lost (unclean election)."""
    clean = elect_of_in_sync(state, online)
    if clean is not None:
        return clean
    leader = _first(state.replicas, online)
    return None if leader is None else replace(_elected(state, leader, (leader,)), is_recovering=True)


def elect_preferred(state: PartitionState, online: Collection[int]) -> PartitionState | None:
    """The first of the replicas leads again, if it is in sync."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in online or preferred not in state.isr:
        return None
    return _elected(state, preferred, state.isr)


def elect_without(state: PartitionState, leaving: Collection[int], online: Collection[int]) -> PartitionState | None:
    """Before brokers shut down: another replica in sync leads; None where only they are in sync."""
    staying = [node for node in online if node not in leaving]
    isr = tuple(node for node in state.isr if node not in leaving)
    leader = _first(state.replicas, [node for node in isr if node in staying])
    return None if leader is None else _elected(state, leader, isr)


def elect_of_target(state: PartitionState, target: Sequence[int], online: Collection[int]) -> PartitionState | None:
    """When a move has caught up: a replica that stays leads; the present leader, if it stays and is online."""
    if state.leader in target and state.leader in online:
        return _elected(state, state.leader, state.isr)
    leader = _first(target, [node for node in state.isr if node in online])
    return None if leader is None else _elected(state, leader, state.isr)


def repair(state: PartitionState, online: Collection[int], *, unclean: bool) -> PartitionState | None:
    """After replicas were lost: somebody leads whom one can have, and nobody else counts as in sync.

    Where nobody in sync is left nobody leads, and those in sync stay so: no other has all that was acknowledged, and
    each of them has.
    """
    if state.leader in online:
        isr = tuple(node for node in state.isr if node in online)
        return None if isr == state.isr else _elected(state, state.leader, isr)
    elected = (elect_of_any if unclean else elect_of_in_sync)(state, online)
    if elected is not None or state.leader == NO_LEADER:
        return elected
    return _elected(state, NO_LEADER, state.isr)


def remove_replica(state: PartitionState, node_id: int) -> PartitionState | None:
    """A replica is about to stop. The last one in sync stays so: no other has all that was acknowledged."""
    leader = NO_LEADER if state.leader == node_id else state.leader
    isr = state.isr if state.isr == (node_id,) else tuple(node for node in state.isr if node != node_id)
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _elected(state, leader, isr)


def without_leader(state: PartitionState) -> PartitionState:
    """Nobody leads any more: the topic is being deleted."""
    return _elected(state, NO_LEADER, state.isr)


def _first(replicas: Sequence[int], candidates: Collection[int]) -> int | None:
    """By the order of the assignment."""
    return next((node for node in replicas if node in candidates), None)


def _elected(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, version=state.version + 1)
