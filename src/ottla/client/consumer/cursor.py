"""Records that were taken for an iteration and not yet seen by the user.

An iteration takes many at once and gives them out one by one. Until it has, they are not read: a commit leaves them
out, and whoever polls next gets them first.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Container, Iterator
from typing import Any, Protocol

from ottla.client.consumer.fetched import Records, first_offsets
from ottla.client.consumer.positions import Position
from ottla.client.values import ConsumerRecord
from ottla.ids import TopicPartition


class Hold(Protocol):
    """Somebody who has taken records and is not done with all of them."""

    def unfinished(self) -> dict[TopicPartition, Position]:
        """The first of each partition that is not done."""
        ...

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """These go to another member: finish what is begun."""
        ...

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These have gone."""
        ...


class Cursor:
    def __init__(self) -> None:
        self.hold: Hold | None = None
        self._records: Records = []
        self._iterator: Iterator[ConsumerRecord[Any, Any]] = iter(self._records)

    def fill(self, records: Records) -> Iterator[ConsumerRecord[Any, Any]]:
        """The iterator to give out from: how far it has come is known without counting."""
        self._records = records
        self._iterator = iter(records)
        return self._iterator

    @property
    def iterator(self) -> Iterator[ConsumerRecord[Any, Any]]:
        return self._iterator

    @property
    def unread_count(self) -> int:
        return operator.length_hint(self._iterator)

    def unread(self) -> Records:
        count = self.unread_count
        return self._records[len(self._records) - count :] if count else []

    def unread_positions(self, assigned: Container[TopicPartition]) -> dict[TopicPartition, Position]:
        found = first_offsets(self.unread())
        if self.hold is not None:
            found.update(self.hold.unfinished())
        return {partition: position for partition, position in found.items() if partition in assigned}

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        if self.hold is not None:
            await self.hold.release(partitions)

    def take(self, limit: int) -> Records:
        """The first of those that are left, for somebody else to give out."""
        left = self.unread()
        self.fill(left[limit:])
        return left[:limit]

    def take_of_one(self) -> Records:
        """The first of those that are left, as far as they are of one partition."""
        left = self.unread()
        if not left:
            return left
        place = left[0][:2]
        return self.take(next((number for number, each in enumerate(left) if each[:2] != place), len(left)))

    def put_back(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Takes out what is left of these; where each of them has to be read from again."""
        unread = self.unread()
        self.fill([record for record in unread if record.topic_partition not in partitions])
        return {each: position for each, position in first_offsets(unread).items() if each in partitions}

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """These were sought elsewhere or given up."""
        if self.hold is not None:
            self.hold.forget(partitions)
        self.put_back(partitions)
