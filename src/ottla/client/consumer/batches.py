"""Records of one partition that were taken together, with a commit of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.client.values import ConsumerRecord
from ottla.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.consumer.consumer import Consumer

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Batch(Generic[Key, Value]):
    partition: TopicPartition
    records: list[ConsumerRecord[Key, Value]]
    _consumer: Consumer[Key, Value]

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    async def commit(self) -> None:
        """All of it is done."""
        await self._consumer.commit(self.records)
