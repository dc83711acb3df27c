"""Moving a partition to other brokers, as values. Pure.

A move is written into the assignment of its topic and can be resumed from there alone: the replicas are those of the
target first and then those that go; `adding` are not there yet, `removing` go once the target has caught up.

    begin:   replicas 1,2 → 2,3     replicas 2,3,1   adding 3   removing 1
    switch:  2 and 3 in sync        a leader of the target is elected
    finish:                         replicas 2,3
    cancel:                         replicas 2,1     (in the order of the move, as Kafka leaves them)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.cluster.image import PartitionState
from ottla.errors import ApiError, ErrorCode


def is_moving(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def target(state: PartitionState) -> tuple[int, ...]:
    """The replicas that a partition has or will have."""
    return tuple(node for node in state.replicas if node not in state.removing)


def origin(state: PartitionState) -> tuple[int, ...]:
    """The replicas that a partition has or had before it moved."""
    return tuple(node for node in state.replicas if node not in state.adding)


def begin(state: PartitionState, replicas: Sequence[int]) -> PartitionState:
    """The partition on its way to `replicas`; one that moves already changes its way."""
    before = origin(state)
    union = tuple(dict.fromkeys((*replicas, *before)))
    return replace(
        state,
        replicas=union,
        adding=tuple(node for node in union if node not in before),
        removing=tuple(node for node in union if node not in replicas),
    )


def cancel(state: PartitionState) -> PartitionState:
    """The partition as it was before it moved, with those gone that were being added."""
    return replace(state, replicas=origin(state), adding=(), removing=())


def has_caught_up(state: PartitionState) -> bool:
    return set(target(state)) <= set(state.isr)


def finish(state: PartitionState) -> PartitionState:
    return replace(state, replicas=target(state), adding=(), removing=())


def check_replicas(replicas: Sequence[int], known: Collection[int]) -> None:
    """What somebody asks for must be a set of brokers that exist."""
    if not replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs at least one replica")
    if len(set(replicas)) != len(replicas):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is listed twice in {list(replicas)}")
    if any(node < 0 for node in replicas):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker id cannot be negative: {list(replicas)}")
    missing = [node for node in replicas if node not in known]
    if missing:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {missing[0]} is not alive")
