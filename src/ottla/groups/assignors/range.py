"""Ranges: each topic is cut into as many stretches as it has readers.

Topics with as many partitions and the same readers are cut alike, so partition 3 of both has one reader: joins work.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ottla.groups.assignors.spec import Assignment, MemberSpec, TopicSizes, in_order


def assign_ranges(members: Mapping[str, MemberSpec], topics: TopicSizes) -> Assignment:
    readers: dict[UUID, list[str]] = {}
    for member_id in in_order(members):
        for topic_id in members[member_id].topic_ids:
            readers.setdefault(topic_id, []).append(member_id)
    found: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, reading in readers.items():
        size, extra = divmod(topics.get(topic_id, 0), len(reading))
        start = 0
        for position, member_id in enumerate(reading):
            end = start + size + (position < extra)
            if end > start:
                found[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(found)
