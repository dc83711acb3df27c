"""Which brokers hold which partition. Pure: chance comes as an rng.

Leaders go round the brokers from a random start; the followers of successive rounds are shifted, so that the partitions
of a dead broker spread over all others. Where racks are known, brokers take turns by rack, and the replicas of a
partition stay on different racks as long as there are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cluster.image import BrokerNode
from ottla.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    import random


def assign(
    brokers: Mapping[int, BrokerNode],
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
    *,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first."""
    if replication_factor < 1:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the {len(brokers)} brokers that are alive",
        )
    racks = {node.node_id: node.rack for node in brokers.values()}
    has_racks = all(rack is not None for rack in racks.values())
    order = _alternating(racks) if has_racks else sorted(brokers)
    start = rng.randrange(len(order))
    shift = rng.randrange(len(order))
    assignments = []
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader = order[(partition + start) % len(order)]
        followers = _followers(order, (partition + start) % len(order), shift)
        chosen = [leader]
        for candidate in _on_other_racks_first(followers, racks, leader) if has_racks else followers:
            if len(chosen) == replication_factor:
                break
            chosen.append(candidate)
        assignments.append(tuple(chosen))
    return assignments


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers in an order in which neighbours are on different racks, as far as that goes."""
    by_rack: dict[str, list[int]] = {}
    for node_id in sorted(racks):
        by_rack.setdefault(racks[node_id] or "", []).append(node_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    order = []
    for turn in range(max(map(len, queues))):
        order += [queue[turn] for queue in queues if turn < len(queue)]
    return order


def _followers(order: list[int], leader_at: int, shift: int) -> list[int]:
    """All other brokers, from a place behind the leader that the shift decides."""
    others = len(order) - 1
    return [order[(leader_at + 1 + (shift + step) % others) % len(order)] for step in range(others)] if others else []


def _on_other_racks_first(followers: Iterable[int], racks: Mapping[int, str | None], leader: int) -> list[int]:
    used = {racks[leader]}
    first, rest = [], []
    for node_id in followers:
        if racks[node_id] in used:
            rest.append(node_id)
        else:
            used.add(racks[node_id])
            first.append(node_id)
    return first + rest
