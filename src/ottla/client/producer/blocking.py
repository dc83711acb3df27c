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

from ottla.client.blocking import ThreadedClient, waiting
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


class Producer(ThreadedClient[_OnThread], Generic[Key, Value]):
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
        super().__init__(
            _OnThread(
                settings,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                connector=connector,
                **keywords,
            )
        )
        self._wait(self._started())

    async def _started(self) -> None:
        self._core.start()

    @property
    def settings(self) -> ProducerSettings:
        return self._core.settings

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

        `on_delivery(metadata, error)` is called when it is decided, in order, on the producer's thread. What a callback
        sends does not wait there: it gets in line.
        """
        core = self._core
        short_way = core.short_ways.get(topic)
        if short_way is not None and headers is None and not core.lines and core.may_append():
            future: RecordFuture | None = short_way.append(key, value, partition, timestamp, on_delivery)
            if future is not None:
                return future
        if self._thread.is_current:
            return core.send(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
            )
        try:
            record = core.prepare(topic, value, key, partition, timestamp, headers, on_delivery)
        except RecordNotReadyError as error:  # only where the caller's thread runs an event loop of its own
            record = self._wait(self._ready(error.unprepared))
        future = core.try_append(record)
        if future is None:
            future = self._wait(self._accepted(record))
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
        return self._wait(
            self._core.send_columns(topic, values, keys, timestamps=timestamps, headers=headers, partition=partition)
        )

    partitions_for = waiting(_OnThread.partitions_for)
    flush = waiting(_OnThread.flush)
    init_transactions = waiting(_OnThread.init_transactions)
    send_offsets_to_transaction = waiting(_OnThread.send_offsets_to_transaction)
    commit_transaction = waiting(_OnThread.commit_transaction)
    abort_transaction = waiting(_OnThread.abort_transaction)

    def begin_transaction(self) -> None:
        """Begins a transaction: what is sent from now on belongs to it."""
        self._core.begin_transaction()

    @contextmanager
    def transaction(self) -> Iterator[OpenTransaction[Key, Value]]:
        """`with producer.transaction():` begins one; it is committed at the end, or aborted by an error."""
        transaction = self._core.transaction()
        self._wait(transaction.__aenter__())
        try:
            yield OpenTransaction(self)
        except BaseException as error:
            self._wait(transaction.__aexit__(type(error), error, None))
            raise
        self._wait(transaction.__aexit__(None, None, None))

    def close(self, timeout_s: float | None = None) -> None:
        """Sends what was accepted, then ends: at the latest after `timeout_s`, by default `delivery_timeout_s`."""
        self._close(self._core.close(timeout_s))


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
