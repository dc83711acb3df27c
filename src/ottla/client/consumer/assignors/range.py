"""Ranges: each topic is cut into as many stretches as it has readers.

Topics with as many partitions and the same readers are cut alike, so partition 3 of both has one reader: joins work.
With racks (KIP-881) a reader prefers partitions with a replica in its own, as far as its quota goes; what is left is
cut as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.client.consumer.assignors.spec import Assignment, Member, Topics, racks_matter, readers_of, static_first
from ottla.ids import TopicPartition


class RangeAssignor:
    name = "range"
    is_cooperative = False

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Mapping[str, Member], topics: Topics) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        shares = [
            _Share(topic, topics[topic], readers, {each: members[each].rack for each in readers})
            for topic, readers in readers_of(members, static_first(members), topics).items()
            if topics[topic]
        ]
        has_racks = any(share.racks_matter for share in shares)
        if has_racks:
            _match_racks(shares, assignment)
        for share in shares:
            share.give_ranges(assignment, lambda reader, partition: True)
        if has_racks:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


def _match_racks(shares: Sequence[_Share], assignment: Assignment) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Share]] = {}
    for share in shares:
        alike.setdefault((tuple(share.readers), len(share.partition_racks)), []).append(share)
    for together in alike.values():
        if len(together) > 1:
            _match_together(together, assignment)
        elif together[0].racks_matter:
            together[0].give_ranges(assignment, together[0].is_near)


def _match_together(shares: Sequence[_Share], assignment: Assignment) -> None:
    """A partition of all these topics goes to the first reader with room whose rack has a replica of each of them."""
    for partition in range(len(shares[0].partition_racks)):
        for reader in shares[0].readers:
            if all(share.room(reader) and share.is_near(reader, partition) for share in shares):
                for share in shares:
                    share.give(assignment, reader, [partition])
                break


class _Share:
    """One topic while it is shared out: what is left, and what each reader has of it."""

    def __init__(
        self,
        topic: str,
        partition_racks: Sequence[frozenset[str]],
        readers: Sequence[str],
        reader_racks: Mapping[str, str | None],
    ) -> None:
        self.topic = topic
        self.partition_racks = partition_racks
        self.readers = readers
        self.racks_matter = racks_matter(reader_racks.values(), partition_racks)
        self._reader_racks = reader_racks
        self._quota, self._extra = divmod(len(partition_racks), len(readers))
        self._left = list(range(len(partition_racks)))
        self._given = dict.fromkeys(readers, 0)

    def is_near(self, reader: str, partition: int) -> bool:
        rack = self._reader_racks[reader]
        return rack is None or rack in self.partition_racks[partition]

    def room(self, reader: str) -> int:
        """How many more the reader may have: one above the quota while such places are left."""
        return max(0, self._quota + (self._extra > 0) - self._given[reader])

    def give(self, assignment: Assignment, reader: str, partitions: Sequence[int]) -> None:
        assignment[reader] += [TopicPartition(self.topic, partition) for partition in partitions]
        self._given[reader] += len(partitions)
        if self._given[reader] > self._quota:
            self._extra -= 1
        gone = set(partitions)
        self._left = [partition for partition in self._left if partition not in gone]

    def give_ranges(self, assignment: Assignment, may_have: Callable[[str, int], bool]) -> None:
        for reader in self.readers:
            fitting = [partition for partition in self._left if may_have(reader, partition)]
            if wanted := fitting[: self.room(reader)]:
                self.give(assignment, reader, wanted)
