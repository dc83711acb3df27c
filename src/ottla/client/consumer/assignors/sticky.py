"""Sticky: as even as can be, and of all even assignments one that moves as little as can be.

What members had comes from their user data: an eager member has given up everything before it joins. `claims_of` says
whose each partition was, `balance` shares out; the cooperative assignor uses both.

Where all subscribe to the same topics, what each may have is known beforehand (`_Equal`). Where they differ, partitions
are moved from one to another until no move makes it more even (`_Unequal`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.consumer.assignors.spec import (
    NO_GENERATION,
    Assignment,
    Member,
    Topics,
    racks_matter,
    readers_of,
)
from ottla.client.consumer.assignors.wire import decode_sticky, encode_sticky
from ottla.ids import TopicPartition


class StickyAssignor:
    name = "sticky"
    is_cooperative = False

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return None if generation == NO_GENERATION else encode_sticky(assigned, generation)

    def assign(self, members: Mapping[str, Member], topics: Topics) -> Assignment:
        remembered = {member_id: _remembering(member) for member_id, member in members.items()}
        return balance(remembered, topics, claims_of(remembered))


def _remembering(member: Member) -> Member:
    owned, generation = decode_sticky(member.user_data)
    return member._replace(owned=owned, generation=generation)


@dataclass(frozen=True, slots=True)
class Claims:
    """Whose each partition was: of several claims that of the latest generation, of two of one generation neither."""

    owners: Mapping[TopicPartition, str]
    earlier_owners: Mapping[TopicPartition, str]  # those of an older generation than the owner
    contested: frozenset[TopicPartition]

    def is_taken_from(self, partition: TopicPartition, new_owner: str) -> bool:
        """Whether somebody may still read the partition who has to give it up for `new_owner`."""
        return partition in self.contested or self.owners.get(partition, new_owner) != new_owner


def claims_of(members: Mapping[str, Member]) -> Claims:
    owners: dict[TopicPartition, str] = {}
    earlier: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    # From the latest generation on: whoever comes later in this order has the older claim.
    for member_id in sorted(members, key=lambda each: (-members[each].generation, each)):
        generation = members[member_id].generation
        for partition in members[member_id].owned:
            owner = owners.get(partition)
            if owner is None:
                owners[partition] = member_id
            elif members[owner].generation == generation:
                contested.add(partition)
            else:
                earlier.setdefault(partition, member_id)
    return Claims(
        {partition: owner for partition, owner in owners.items() if partition not in contested},
        earlier,
        frozenset(contested),
    )


def balance(members: Mapping[str, Member], topics: Topics, claims: Claims) -> Assignment:
    readers = readers_of(members, sorted(members), topics)
    places = _Places(members, {topic: topics[topic] for topic in readers})
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for partition in sorted(claims.owners, key=lambda each: (each.partition, each.topic)):
        owner = claims.owners[partition]
        if (
            partition.topic in members[owner].topics
            and partition.partition < len(topics.get(partition.topic, ()))
            and not places.is_far(owner, partition)
        ):
            owned[owner].append(partition)
    if len({frozenset(member.topics & topics.keys()) for member in members.values()}) <= 1:
        return _Equal(owned, readers, topics, places).assign()
    return _Unequal(owned, readers, topics, places, claims).assign()


class _Places:
    """Which members and partitions are in the same rack; nowhere where racks do not matter."""

    def __init__(self, members: Mapping[str, Member], topics: Topics) -> None:
        partitions = [racks for topic in topics.values() for racks in topic]
        self.matter = bool(partitions) and racks_matter((each.rack for each in members.values()), partitions)
        self._members, self._topics = members, topics

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        return self.matter and self._members[member_id].rack in self._topics[partition.topic][partition.partition]

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition no replica in it."""
        return self.matter and self._members[member_id].rack is not None and not self.is_near(member_id, partition)

    def near(self, members: Sequence[str], partition: TopicPartition, first: int = 0) -> int | None:
        """The place in the list of the first member that is near, going round from `first`."""
        for step in range(len(members)):
            place = (first + step) % len(members)
            if self.is_near(members[place], partition):
                return place
        return None


class _Equal:
    """All subscribe to the same topics: everybody has `quota` partitions, and some have one more."""

    def __init__(
        self,
        owned: Mapping[str, Sequence[TopicPartition]],
        readers: Mapping[str, Sequence[str]],
        topics: Topics,
        places: _Places,
    ) -> None:
        self._owned = owned
        self._places = places
        self._partitions = [TopicPartition(topic, number) for topic in readers for number in range(len(topics[topic]))]
        self._quota, self._extra = divmod(len(self._partitions), len(owned))  # `_extra` places are left above it
        self._assignment: Assignment = {member_id: [] for member_id in owned}
        self._below: list[str] = []  # have less than the quota
        self._candidates: list[str] = []  # have the quota and may have one more

    def assign(self) -> Assignment:
        self._keep()
        kept = {partition for partitions in self._assignment.values() for partition in partitions}
        left = [partition for partition in self._partitions if partition not in kept]
        if self._places.matter:
            left = self._give_near(left)
        self._give_in_turn(left)
        return self._assignment

    def _keep(self) -> None:
        most = self._quota + (self._extra > 0)
        for member_id in sorted(self._owned):
            owned = self._owned[member_id]
            if len(owned) < self._quota:
                kept = owned
                self._below.append(member_id)
            elif len(owned) >= most and self._extra:
                kept = owned[:most]
                self._extra -= 1
            else:
                kept = owned[: self._quota]
                self._candidates.append(member_id)
            self._assignment[member_id] += kept

    def _give_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """To members of the same rack as far as there are; returns the others. Those with little choice come first."""
        left = []
        turn = 0
        members = list(self._owned)
        fitting = {each: sum(self._places.is_near(member_id, each) for member_id in members) for each in partitions}
        for partition in sorted(partitions, key=lambda each: fitting[each]):
            place = self._places.near(self._below, partition, turn)
            if place is not None:
                member_id = self._below[place]
                self._assignment[member_id].append(partition)
                if len(self._assignment[member_id]) >= self._quota:
                    del self._below[place]
                    self._candidates.append(member_id)
                else:
                    place += 1
                turn = place % len(self._below) if self._below else 0
            elif not self._give_candidate(partition):
                left.append(partition)
        return left

    def _give_candidate(self, partition: TopicPartition) -> bool:
        if not self._extra:
            return False
        place = self._places.near(self._candidates, partition)
        if place is None:
            return False
        self._assignment[self._candidates.pop(place)].append(partition)
        self._extra -= 1
        return True

    def _give_in_turn(self, partitions: Sequence[TopicPartition]) -> None:
        ring = deque(sorted(self._below))
        candidates = deque(sorted(self._candidates))
        for partition in partitions:
            if ring:
                member_id = ring.popleft()
                self._assignment[member_id].append(partition)
                (ring if len(self._assignment[member_id]) < self._quota else candidates).append(member_id)
            else:
                self._assignment[candidates.popleft()].append(partition)


class _Unequal:
    """Members subscribe to different topics: partitions move while that makes it more even."""

    def __init__(
        self,
        owned: Mapping[str, Sequence[TopicPartition]],
        readers: Mapping[str, Sequence[str]],
        topics: Topics,
        places: _Places,
        claims: Claims,
    ) -> None:
        self._readers = readers
        self._places = places
        self._earlier_owners = claims.earlier_owners
        self._was_fresh = not any(owned.values())
        self._assignment: Assignment = {member_id: list(partitions) for member_id, partitions in owned.items()}
        self._owner = {partition: member_id for member_id, found in owned.items() for partition in found}
        # Those that few may read come first: the others find room later.
        self._partitions = [
            TopicPartition(topic, number)
            for topic in sorted(readers, key=lambda each: (len(readers[each]), each))
            for number in range(len(topics[topic]))
        ]
        self._moved: dict[tuple[str, str, str], list[TopicPartition]] = {}  # by topic, from whom, to whom

    def assign(self) -> Assignment:
        for partition in self._partitions:
            if partition not in self._owner:
                readers = self._readers[partition.topic]
                near = [each for each in readers if self._places.is_near(each, partition)]
                self._put(partition, self._least_loaded(near or readers))
        before = {member_id: list(partitions) for member_id, partitions in self._assignment.items()}
        moved = self._move_until_even()
        if moved and not self._was_fresh and _unevenness(self._assignment) >= _unevenness(before):
            return before
        return self._assignment

    def _least_loaded(self, members: Iterable[str]) -> str:
        return min(members, key=lambda each: (len(self._assignment[each]), each))

    def _put(self, partition: TopicPartition, member_id: str) -> None:
        self._assignment[member_id].append(partition)
        self._owner[partition] = member_id

    def _move_until_even(self) -> bool:
        movable = [partition for partition in self._partitions if len(self._readers[partition.topic]) > 1]
        moved_any = False
        moved = True
        while moved:
            moved = False
            for partition in movable:
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    moved = moved_any = True
        return moved_any

    def _better_owner(self, partition: TopicPartition) -> str | None:
        load = len(self._assignment[self._owner[partition]])
        readers = self._readers[partition.topic]
        earlier = self._earlier_owners.get(partition)
        if earlier is not None and earlier in readers and load > len(self._assignment[earlier]) + 1:
            return earlier
        lighter = [each for each in readers if load > len(self._assignment[each]) + 1]
        near = [each for each in lighter if self._places.is_near(each, partition)]
        return self._least_loaded(near or lighter) if lighter else None

    def _move(self, partition: TopicPartition, target: str) -> None:
        """Moves it, or takes back a move of the same topic the other way, which comes to the same."""
        source = self._owner[partition]
        back = self._moved.get((partition.topic, target, source))
        if back:
            partition = back.pop()
        else:
            self._moved.setdefault((partition.topic, source, target), []).append(partition)
        self._assignment[source].remove(partition)
        self._put(partition, target)


def _unevenness(assignment: Assignment) -> int:
    """The sum of the differences of all pairs of loads."""
    loads = sorted(map(len, assignment.values()))
    return sum(load * (2 * place - len(loads) + 1) for place, load in enumerate(loads))
