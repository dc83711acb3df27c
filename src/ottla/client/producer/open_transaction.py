"""A transaction as a block of code: committed at its end, aborted by an error in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from ottla.client.errors import AbortableError
from ottla.client.producer.deliveries import Callback, RecordFuture
from ottla.client.producer.transaction_state import State
from ottla.client.values import ConsumerGroupMetadata, HeadersLike, OffsetAndMetadata
from ottla.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer

Key = TypeVar("Key")
Value = TypeVar("Value")


class ReadingConsumer(Protocol):
    """What is needed of `ottla.aio.Consumer`."""

    def assignment(self) -> Iterable[TopicPartition]: ...
    async def position(self, partition: TopicPartition, /) -> int: ...
    def group_metadata(self) -> ConsumerGroupMetadata: ...


class OpenTransaction(Generic[Key, Value]):
    """A transaction of a producer, from the beginning of an `async with` to its end."""

    def __init__(self, producer: Producer[Key, Value]) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        self._producer.start()
        transactions = self._producer._transacting()
        if await transactions.settle() and transactions.is_open:
            await self._producer.abort_transaction()  # a commit that was cancelled has failed meanwhile
        if transactions.state.now is State.UNINITIALIZED:
            await self._producer.init_transactions()
        self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._producer.commit_transaction()
            except AbortableError:
                await self._producer.abort_transaction()
                raise
        elif self._producer._transacting().is_open:
            await self._producer.abort_transaction()

    def send(
        self,
        topic: str,
        value: Value | None = None,
        key: Key | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: HeadersLike | None = None,
        on_delivery: Callback | None = None,
    ) -> RecordFuture:
        """As `Producer.send`."""
        return self._producer.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
        )

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        await self._producer.send_offsets_to_transaction(offsets, group)

    async def commit_offsets(self, consumer: ReadingConsumer) -> None:
        """Commits, with the transaction, everything that the consumer has handed out: its positions."""
        positions = {partition: await consumer.position(partition) for partition in consumer.assignment()}
        await self.send_offsets(positions, consumer.group_metadata())
