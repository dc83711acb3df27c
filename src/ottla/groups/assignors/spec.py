"""What an assignor is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.groups.partitions import NO_PARTITIONS, Partitions

# Partition counts by topic id. A topic that is not here does not exist, whoever subscribes to it.
TopicSizes: TypeAlias = Mapping[UUID, int]
Assignment: TypeAlias = dict[str, Partitions]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it: what it reads, and what it was to have so far."""

    topic_ids: frozenset[UUID]
    target: Partitions = NO_PARTITIONS
    instance_id: str | None = None


Assign: TypeAlias = Callable[[Mapping[str, MemberSpec], TopicSizes], Assignment]


def in_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """The same order whoever joined first; that of static members survives their restarts."""
    return sorted(members, key=lambda member_id: (members[member_id].instance_id or member_id, member_id))


def as_assignment(found: Mapping[str, Iterable[tuple[UUID, int]]]) -> Assignment:
    assignment: Assignment = {}
    for member_id, partitions in found.items():
        by_topic: dict[UUID, set[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, set()).add(partition)
        assignment[member_id] = {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
    return assignment
