"""Which brokers hold which partition, as Kafka places them. Pure: chance comes as an rng.

Leaders go round the brokers from a random start; the followers of successive rounds are shifted, so that the partitions
of a dead broker spread over all others. Where racks are known, brokers take turns by rack, and the replicas of a
partition stay on different racks as long as there are enough. New partitions of a topic continue the round that its
first partition began. The same start gives the same brokers as in Kafka 3.9, so it is of no account which kind of
broker is the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from ottla.cluster.image import BrokerNode
from ottla.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    import random


def assign(
    brokers: Mapping[int, BrokerNode], partition_count: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition of a new topic, the preferred leader first."""
    _check_factor(brokers, replication_factor)
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    return assign_from(brokers, range(partition_count), replication_factor, start, shift)


def assign_more(
    brokers: Mapping[int, BrokerNode], partitions: range, first_replicas: Sequence[int]
) -> list[tuple[int, ...]]:
    """The replicas of each of the partitions that a topic gets, whose partition 0 has `first_replicas`."""
    _check_factor(brokers, len(first_replicas))
    # The place by id also where brokers take turns by rack: so in Kafka.
    start = next((place for place, node_id in enumerate(sorted(brokers)) if node_id >= first_replicas[0]), 0)
    return assign_from(brokers, partitions, len(first_replicas), start, start)


def _check_factor(brokers: Mapping[int, BrokerNode], replication_factor: int) -> None:
    if replication_factor < 1:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the {len(brokers)} brokers that are alive",
        )


def assign_from(
    brokers: Mapping[int, BrokerNode], partitions: Iterable[int], replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    """From the broker in place `start` on; `shift` is how far behind its leader the first follower is."""
    known = {node.node_id: node.rack for node in brokers.values()}
    has_racks = all(rack is not None for rack in known.values())
    order = _alternating(known) if has_racks else sorted(brokers)
    # A rack for each broker: without racks each is alone on its own.
    racks: dict[int, object] = {node_id: rack if has_racks else node_id for node_id, rack in known.items()}
    # By as many brokers as there are racks: a shift by one would mostly lead to another broker of the same rack.
    stride = len(set(racks.values())) if has_racks else 1
    assignments = []
    for partition in partitions:
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader_at = (partition + start) % len(order)
        followers = _followers(order, leader_at, shift * stride)
        assignments.append(_replicas(order[leader_at], followers, replication_factor, racks))
    return assignments


def _replicas(
    leader: int, followers: Sequence[int], replication_factor: int, racks: Mapping[int, object]
) -> tuple[int, ...]:
    """The leader, and followers in their order, round and round; each rack once before any of them twice."""
    rack_count = len(set(racks.values()))
    chosen, used = [leader], {racks[leader]}
    rounds = cycle(followers)
    while len(chosen) < replication_factor:
        candidate = next(rounds)
        if candidate not in chosen and (racks[candidate] not in used or len(used) == rack_count):
            chosen.append(candidate)
            used.add(racks[candidate])
    return tuple(chosen)


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
