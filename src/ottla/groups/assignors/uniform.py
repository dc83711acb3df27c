"""Uniform: members have the same number of partitions, as near as their subscriptions let them, and keep what they can.

If all read the same topics, numbers differ by one at most and no more partitions move than that takes. Otherwise a
partition goes to the reader with the fewest, and moves while that makes two readers more equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.groups.assignors.spec import Assignment, MemberSpec, TopicSizes, as_assignment, in_order
from ottla.groups.partitions import each_partition


def assign_uniformly(members: Mapping[str, MemberSpec], topics: TopicSizes) -> Assignment:
    if not members:
        return {}
    subscriptions = {spec.topic_ids for spec in members.values()}
    if len(subscriptions) == 1:
        return _assign_alike(members, _partitions_of(next(iter(subscriptions)), topics))
    return _assign_unlike(members, topics)


def _partitions_of(topic_ids: Iterable[UUID], topics: TopicSizes) -> list[tuple[UUID, int]]:
    return [(topic_id, partition) for topic_id in sorted(topic_ids) for partition in range(topics.get(topic_id, 0))]


def _assign_alike(members: Mapping[str, MemberSpec], partitions: list[tuple[UUID, int]]) -> Assignment:
    """Everybody keeps up to its share; what is left goes to those who lack some."""
    share, extras = divmod(len(partitions), len(members))
    unclaimed = dict.fromkeys(partitions)
    kept: dict[str, list[tuple[UUID, int]]] = {}
    # Those with the most come first: if somebody has one more than the share, it should be one who has it already.
    order = in_order(members)
    order.sort(key=lambda member_id: -sum(map(len, members[member_id].target.values())))
    for member_id in order:
        mine = kept[member_id] = []
        limit = share + (extras > 0)
        for partition in each_partition(members[member_id].target):
            if len(mine) == limit:
                break
            if partition in unclaimed:
                del unclaimed[partition]
                mine.append(partition)
        if len(mine) > share:
            extras -= 1
    left = deque(unclaimed)
    for member_id in order:
        while left and len(kept[member_id]) < share:
            kept[member_id].append(left.popleft())
    for member_id in order:
        if left and len(kept[member_id]) == share:
            kept[member_id].append(left.popleft())
    assert not left, "shares and extras add up to all partitions"
    return as_assignment(kept)


def _assign_unlike(members: Mapping[str, MemberSpec], topics: TopicSizes) -> Assignment:
    order = in_order(members)
    readers: dict[UUID, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].topic_ids:
            if topic_id in topics:
                readers.setdefault(topic_id, []).append(member_id)
    # What a member has of a topic; its load is the sum over topics.
    held: dict[UUID, dict[str, set[int]]] = {topic_id: {} for topic_id in readers}
    load = dict.fromkeys(order, 0)
    free = {topic_id: set(range(topics[topic_id])) for topic_id in readers}
    for member_id in order:
        for topic_id, partition in each_partition(members[member_id].target):
            if topic_id in members[member_id].topic_ids and partition in free.get(topic_id, ()):
                free[topic_id].discard(partition)
                held[topic_id].setdefault(member_id, set()).add(partition)
                load[member_id] += 1
    # Topics with few readers first: who can read others as well gets its share of those.
    by_readers = sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id))
    for topic_id in by_readers:
        for partition in sorted(free[topic_id]):
            least = min(readers[topic_id], key=load.__getitem__)
            held[topic_id].setdefault(least, set()).add(partition)
            load[least] += 1
    while any(_even_out(readers[topic_id], held[topic_id], load) for topic_id in by_readers):
        pass  # each move makes the sum of squares of the loads smaller, so there is an end
    return as_assignment(
        {
            member_id: [(topic_id, partition) for topic_id in held for partition in held[topic_id].get(member_id, ())]
            for member_id in order
        }
    )


def _even_out(readers: list[str], held: dict[str, set[int]], load: dict[str, int]) -> bool:
    """Moves partitions of a topic from its busiest holders to its idlest readers; whether any moved."""
    has_moved = False
    while True:
        busiest = max((member_id for member_id in held if held[member_id]), key=load.__getitem__, default=None)
        idlest = min(readers, key=load.__getitem__)
        if busiest is None or load[busiest] - load[idlest] < 2:
            return has_moved
        partition = max(held[busiest])
        held[busiest].discard(partition)
        held.setdefault(idlest, set()).add(partition)
        load[busiest] -= 1
        load[idlest] += 1
        has_moved = True
