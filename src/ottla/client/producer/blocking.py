"""The producer for callers without an event loop.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        future = producer.send("orders", b"a record")
        future.result()

Any number of threads may use it. A record is put into its batch by the calling thread; a thread of the producer's own
does the rest. It is the asyncio producer on a loop of its own, so names, settings and guarantees are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from ottla.client.blocking import LoopThread
from ottla.client.metrics import MetricName
from ottla.client.producer import producer as asynchronous
from ottla.client.producer.columns import ColumnsFuture
from ottla.client.producer.deliveries import Callback, RecordFuture
from ottla.client.producer.lines import ready
from ottla.client.producer.preparation import PreparedRecord, RecordNotReadyError, UnpreparedRecord
from ottla.client.producer.producer import KeySerializer, ValueSerializer
from ottla.client.retrying import Deadline
from ottla.client.settings import ProducerSettings
from ottla.client.values import ConsumerGroupMetadata, HeadersLike, OffsetAndMetadata
from ottla.ids import TopicPartition
from ottla.net.client import Connector

Key = TypeVar("Key")
Value = TypeVar("Value")


class _OnThread(asynchronous.Producer[Any, Any]):
    """The asyncio producer, woken from other threads."""

    def _wake(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._sender.wake)


class Producer(Generic[Key, Value]):
    """Sends records of keys `Key` and values `Value`. Use it as a context manager, or call `close`."""

    @overload
    def __init__(
        self: Producer[bytes, bytes],
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        connector: Connector | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Key, bytes],
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: KeySerializer[Key],
        value_serializer: None = None,
        connector: Connector | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[bytes, Value],
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: None = None,
        value_serializer: ValueSerializer[Value],
        connector: Connector | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: KeySerializer[Key],
        value_serializer: ValueSerializer[Value],
        connector: Connector | None = None,
        **keywords: Any,
    ) -> None: ...

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        connector: Connector | None = None,
        **keywords: Any,
    ) -> None:
        """Settings as a mapping or as keywords, under any of their names."""
        self._core = _OnThread(
            settings, key_serializer=key_serializer, value_serializer=value_serializer, connector=connector, **keywords
        )
        self._thread = LoopThread(f"ottla-{self._core.client_id}")
        self._thread.start()
        self._thread.wait(self._started())

    async def _started(self) -> None:
        self._core.start()

    @property
    def settings(self) -> ProducerSettings:
        return self._core.settings

    @property
    def client_id(self) -> str:
        return self._core.client_id

    def metrics(self) -> dict[MetricName, float]:
        """Numbers under Kafka's names, as they are now."""
        return self._core.metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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
        """Takes a record and returns its future; waits up to `max_block_s` while there is no room for it.

        `on_delivery(metadata, error)` is called when it is decided, in order, on the producer's thread.
        """
        try:
            record = self._core.prepare(topic, value, key, partition, timestamp, headers, on_delivery)
        except RecordNotReadyError as error:  # only where the caller's thread runs an event loop of its own
            record = self._thread.wait(self._ready(error.unprepared))
        future = self._core.try_append(record)
        if future is None:
            future = self._thread.wait(self._accepted(record))
        return future

    async def _ready(self, unprepared: UnpreparedRecord) -> PreparedRecord:
        return await ready(self._core._preparation, unprepared, Deadline.after(self.settings.max_block_s))

    async def _accepted(self, record: Any) -> RecordFuture:
        return await self._core.accept(record, Deadline.after(self.settings.max_block_s))

    def send_columns(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        *,
        timestamps: Any = None,
        headers: Any = None,
        partition: int | None = None,
    ) -> ColumnsFuture:
        """Takes columns of bytes, in lists, NumPy or Arrow; waits until there is room, not until they are sent."""
        self._core._lifetime.check()
        return self._thread.wait(
            self._core.send_columns(topic, values, keys, timestamps=timestamps, headers=headers, partition=partition)
        )

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The numbers of the partitions of a topic, which the broker may create now."""
        self._core._lifetime.check()
        return self._thread.wait(self._core.partitions_for(topic, timeout_s))

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends everything that was accepted until now and waits until it is decided, well or not."""
        self._core._lifetime.check()
        self._thread.wait(self._core.flush(timeout_s))

    def init_transactions(self) -> None:
        """Introduces this producer to its coordinator, which ends what an earlier one of the same id left open."""
        self._core._lifetime.check()
        self._thread.wait(self._core.init_transactions())

    def begin_transaction(self) -> None:
        self._core.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commits offsets of a group with the transaction: the next ones to be read."""
        self._core._lifetime.check()
        self._thread.wait(self._core.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Sends what is left and commits. An AbortableError: abort, and do it again."""
        self._core._lifetime.check()
        self._thread.wait(self._core.commit_transaction())

    def abort_transaction(self) -> None:
        """Drops what is not sent and aborts."""
        self._core._lifetime.check()
        self._thread.wait(self._core.abort_transaction())

    @contextmanager
    def transaction(self) -> Iterator[OpenTransaction[Key, Value]]:
        """`with producer.transaction():` begins one; it is committed at the end, or aborted by an error."""
        self._core._lifetime.check()
        transaction = self._core.transaction()
        self._thread.wait(transaction.__aenter__())
        try:
            yield OpenTransaction(self)
        except BaseException as error:
            self._thread.wait(transaction.__aexit__(type(error), error, None))
            raise
        self._thread.wait(transaction.__aexit__(None, None, None))

    def close(self, timeout_s: float | None = None) -> None:
        """Sends what was accepted, then ends: at the latest after `timeout_s`, by default `delivery_timeout_s`."""
        if self._core._lifetime.is_closed and not self._thread.is_running:
            return
        try:
            self._thread.wait(self._core.close(timeout_s))
        finally:
            self._thread.stop()


class ReadingConsumer(Protocol):
    """What is needed of `ottla.Consumer`."""

    def assignment(self) -> Iterable[TopicPartition]: ...
    def position(self, partition: TopicPartition, /) -> int: ...
    def group_metadata(self) -> ConsumerGroupMetadata: ...


class OpenTransaction(Generic[Key, Value]):
    """A transaction of a producer, inside of its `with` block."""

    def __init__(self, producer: Producer[Key, Value]) -> None:
        self._producer = producer

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

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit_offsets(self, consumer: ReadingConsumer) -> None:
        """Commits, with the transaction, everything that the consumer has handed out: its positions."""
        positions = {partition: consumer.position(partition) for partition in consumer.assignment()}
        self.send_offsets(positions, consumer.group_metadata())
