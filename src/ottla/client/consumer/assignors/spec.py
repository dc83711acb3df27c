"""What an assignor is given, and what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ottla.ids import TopicPartition

NO_GENERATION = -1

# The racks of the replicas of every partition, by topic. A topic that is not here does not exist.
Topics: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
Assignment: TypeAlias = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member as an assignor sees it: what it reads, and what it had in which generation."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None


class Assignor(Protocol):
    """One way to share partitions out. It keeps no state: what it must remember travels in the user data."""

    @property
    def name(self) -> str:
        """As members of a group name it to each other."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while the group rebalances."""
        ...

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """What a member adds to its subscription; `generation` is NO_GENERATION before its first assignment."""
        ...

    def assign(self, members: Mapping[str, Member], topics: Topics) -> Assignment:
        """Who reads what: an entry for every member."""
        ...


def static_first(members: Mapping[str, Member]) -> list[str]:
    """Static members by their instance ids, which survive restarts, then dynamic ones by their member ids."""
    return sorted(members, key=lambda member_id: _place(member_id, members[member_id].instance_id))


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def readers_of(members: Mapping[str, Member], order: Iterable[str], topics: Topics) -> dict[str, list[str]]:
    """Who subscribes to each topic that exists, in that order; topics by name."""
    order = list(order)
    found = {topic: [each for each in order if topic in members[each].topics] for topic in sorted(topics)}
    return {topic: readers for topic, readers in found.items() if readers}


def racks_matter(racks: Iterable[str | None], partitions: Iterable[frozenset[str]]) -> bool:
    """Whether choosing by rack can bring readers and replicas together.

    Somebody must read from a rack that holds a replica, and the partitions must differ: where all of them are in the
    same racks, any choice is as good.
    """
    placements = set(partitions)
    held = frozenset().union(*placements)
    return len(placements) > 1 and any(rack in held for rack in racks if rack is not None)
