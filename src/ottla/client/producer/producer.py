"""The producer for asyncio.

    async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivered = await producer.send("orders", b"a record", key=b"customer 7")

`send` returns at once with a future; awaiting it waits for the acknowledgement. A record that finds no room, or whose
topic is not known yet, waits in line inside, up to `max_block_s`; when as much waits as `buffer_memory` holds, `send`
refuses, and `await producer.room()` waits until it would not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from ottla.client.connecting import client_id_of, cluster_of
from ottla.client.error_codes import InvalidTopicError, MessageTooLargeError
from ottla.client.errors import BufferExhaustedError, SerializationError, TimedOutError, UsageError
from ottla.client.lifetime import Lifetime
from ottla.client.metadata import Topic
from ottla.client.partitioning import HEADER_OVERHEAD_BYTES
from ottla.client.producer.accumulator import Accumulator, AccumulatorOptions, TopicQueues, compression_of
from ottla.client.producer.deliveries import Callback, Delivery, RecordFuture, settled
from ottla.client.producer.interceptors import Interceptors
from ottla.client.producer.memory import MemoryPool
from ottla.client.producer.partitioners import Murmur2, partition_by_murmur2, partitioner_of
from ottla.client.producer.sender import Sender, SenderOptions, TransactionView
from ottla.client.producer.sequences import Sequences
from ottla.client.refreshing import Refresher, RefreshOptions
from ottla.client.retrying import Deadline
from ottla.client.serializers.base import Context, Serializer, serialize, serializer_of
from ottla.client.settings import ProducerSettings
from ottla.client.values import HeadersLike, ProducerRecord, RecordHeaders
from ottla.errors import OttlaError
from ottla.ids import TopicPartition, is_valid_topic_name
from ottla.net.client import Door
from ottla.records.layout import RECORD_OVERHEAD_BYTES, Compression
from ottla.runtime.clock import SystemClock

Key = TypeVar("Key")
Value = TypeVar("Value")

KeySerializer = Serializer[Key] | Callable[[Key], bytes | None]
ValueSerializer = Serializer[Value] | Callable[[Value], bytes | None]

log = logging.getLogger("ottla.client.producer")


class _Prepared(NamedTuple):
    """A record as bytes, checked, with its size."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: RecordHeaders
    size_bytes: int
    callback: Callback | None


class _Waiting(NamedTuple):
    """A record that waits for its topic to be known, or for room."""

    record: _Prepared
    delivery: Delivery
    deadline: Deadline


class Producer(Generic[Key, Value]):
    """Sends records of keys `Key` and values `Value`. Use it as an asynchronous context manager, or call `close`."""

    @overload
    def __init__(
        self: Producer[bytes, bytes],
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        door: Door | None = None,
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
        door: Door | None = None,
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
        door: Door | None = None,
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
        door: Door | None = None,
        **keywords: Any,
    ) -> None: ...

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        door: Door | None = None,
        **keywords: Any,
    ) -> None:
        """Settings as a mapping or as keywords, under any of their names. Nothing is connected yet.

        `door`: another way to the network, for tests.
        """
        if key_serializer is not None:
            keywords["key_serializer"] = key_serializer
        if value_serializer is not None:
            keywords["value_serializer"] = value_serializer
        self.settings = ProducerSettings.read(settings, **keywords)
        self.client_id = client_id_of(self.settings)
        self._lifetime = Lifetime("producer")
        self._interceptors = Interceptors(self.settings.interceptors)
        self._dump_key = serializer_of(self.settings.key_serializer, "key_serializer")
        self._dump_value = serializer_of(self.settings.value_serializer, "value_serializer")
        self._partitioner = partitioner_of(
            self.settings.partitioner, ignores_keys=self.settings.partitioner_ignore_keys
        )
        self._hashes_keys = isinstance(self._partitioner, Murmur2)
        self._rng = random.Random()
        self._clock = SystemClock()
        self._cluster = cluster_of(self.settings, self.client_id, door)
        self._accumulator = Accumulator(_accumulator_options(self.settings), self._pool(), self._rng)
        self._refresher = Refresher(self._cluster, _refresh_options(self.settings), self._learn)
        self._sequences = Sequences() if self.settings.enable_idempotence else None
        self._sender = Sender(
            self._cluster,
            self._accumulator,
            self._sequences,
            self._refresher,
            _sender_options(self.settings),
            self._rng,
            TransactionView(),
        )
        self._lines: dict[str, deque[_Waiting]] = {}
        self._waiting_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _pool(self) -> MemoryPool:
        return MemoryPool(self.settings.buffer_memory)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begins to work on the running loop. The first `send` does so by itself."""
        self._lifetime.check()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._spawn(self._refresher.run())
            self._spawn(self._sender.run())

    def _spawn(self, work: Any) -> None:
        assert self._loop is not None
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sender.fail_all(error)  # a mistake of ours: whoever waits is told

    async def close(self, timeout_s: float | None = None) -> None:
        """Sends what was accepted, then ends: at the latest after `timeout_s`, by default `delivery_timeout_s`.

        Records that are not acknowledged by then fail. Closing again does nothing.
        """
        if not self._lifetime.close() or self._loop is None:
            return
        self._accumulator.is_closing = True
        limit_s = self.settings.delivery_timeout_s if timeout_s is None else timeout_s
        try:
            await self._flush(Deadline.after(limit_s))
        except TimedOutError:
            log.warning("%s: closed after %g s with records that are not acknowledged", self.client_id, limit_s)
        finally:
            await self._end()

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()
        for line in self._lines.values():
            for waiting in line:
                waiting.delivery.failed(_closed())
        self._lines.clear()
        await self._cluster.close()
        self._interceptors.close()

    # -- sending -------------------------------------------------------------------------------------------------------

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
        """Takes a record and returns its future. `on_delivery(metadata, error)` is called when it is decided, in order.

        What is wrong with the record itself is raised here. Without a timestamp it has the time of this call.
        """
        self.start()
        record = self.prepare(topic, value, key, partition, timestamp, headers, on_delivery)
        return self.try_append(record) or self._get_in_line(record)

    async def room(self) -> None:
        """Waits until records that are sent now would not have to wait."""
        self._lifetime.check()
        while self._lines or self._accumulator.pool.has_waiters:
            await asyncio.gather(*(settled(line[-1].delivery) for line in self._lines.values() if line))

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: HeadersLike | None,
        callback: Callback | None,
    ) -> _Prepared:
        """The record as bytes: intercepted, serialized and checked. Any thread may call this."""
        refusal = self._lifetime.refusal
        if refusal is not None:
            raise refusal
        pairs = _pairs(headers) if headers else ()
        if self._interceptors:
            callback = self._acknowledging(callback)
            record = self._interceptors.on_send(ProducerRecord(topic, value, key, partition, timestamp, pairs))
            topic, value, key = record.topic, record.value, record.key
            partition, timestamp, pairs = record.partition, record.timestamp, record.headers
        if self._dump_key is not None or self._dump_value is not None:
            added = list(pairs)
            if self._dump_key is not None:
                key = serialize(self._dump_key, key, Context(topic, True, added))
            if self._dump_value is not None:
                value = serialize(self._dump_value, value, Context(topic, False, added))
            pairs = tuple(added)
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key, topic, "key")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value, topic, "value")
        size = RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
        if pairs:
            size += sum(4 * len(name) + len(data or b"") + HEADER_OVERHEAD_BYTES for name, data in pairs)
        if size > self.settings.max_request_size or size > self.settings.buffer_memory:
            raise MessageTooLargeError(
                f"a record of {size} bytes for {topic}: max_request_size is {self.settings.max_request_size} and "
                f"buffer_memory {self.settings.buffer_memory}"
            )
        if timestamp is None:
            timestamp = self._clock.now_ms()
        elif timestamp < 0:
            raise ValueError(f"a timestamp counts milliseconds since 1970 and cannot be {timestamp}")
        if partition is not None and partition < 0:
            raise ValueError(f"partitions are counted from 0: there is no partition {partition}")
        return _Prepared(topic, partition, key, value, timestamp, pairs, size, callback)

    def _acknowledging(self, callback: Callback | None) -> Callback:
        def acknowledged(metadata: Any, error: BaseException | None) -> None:
            self._interceptors.on_acknowledgement(metadata, error)
            if callback is not None:
                callback(metadata, error)

        return acknowledged

    def try_append(self, record: _Prepared, reserved_bytes: int = 0) -> RecordFuture | None:
        """Puts a record into a batch; None where it has to wait. Any thread may call this."""
        if record.topic in self._lines and not reserved_bytes:
            return None  # behind those that wait
        if self._sender.failure is not None:
            raise self._sender.failure
        topic = self._accumulator.topics.get(record.topic)
        if topic is None or not topic.partition_count:
            if not is_valid_topic_name(record.topic):
                raise InvalidTopicError(f"{record.topic!r} is not the name of a topic")
            return None
        partition = record.partition
        if partition is None:
            partition = self._choose(topic, record.key)
        elif partition >= topic.partition_count:
            return None
        assert self._loop is not None
        future = self._accumulator.append(
            topic,
            partition,
            record.key,
            record.value,
            record.timestamp,
            record.headers,
            record.size_bytes,
            self._loop.time(),
            record.callback,
            reserved_bytes,
        )
        if self._accumulator.has_news and not self._accumulator.is_told:
            self._accumulator.is_told = True
            self._wake()
        return future

    def _wake(self) -> None:
        """Tells the sender that there is something to do; the blocking front calls from other threads."""
        self._sender.wake()

    def _choose(self, topic: TopicQueues, key: bytes | None) -> int | None:
        """The partition of a record that names none; None leaves it to the sticky one."""
        if self._hashes_keys:
            return None if key is None else partition_by_murmur2(key, topic.partition_count)
        number = self._partitioner.partition(topic.name, key, topic.partition_count, topic.available)
        if number is not None and not 0 <= number < topic.partition_count:
            raise UsageError(f"the partitioner chose {number} of {topic.partition_count} partitions of {topic.name}")
        return number

    # -- waiting in line -----------------------------------------------------------------------------------------------

    def _get_in_line(self, record: _Prepared) -> RecordFuture:
        """Keeps a record until its topic is known and there is room, in the order in which records came."""
        if self._waiting_bytes + record.size_bytes > self.settings.buffer_memory:
            raise BufferExhaustedError(
                0.0,
                None,
                f"buffer_memory is full, and so is the line before it: `await producer.room()`; {record.topic}",
            )
        delivery = Delivery(TopicPartition(record.topic, -1 if record.partition is None else record.partition))
        if record.callback is not None:
            delivery.add_callback(0, record.callback)
        waiting = _Waiting(record._replace(callback=None), delivery, Deadline.after(self.settings.max_block_s))
        self._waiting_bytes += record.size_bytes
        line = self._lines.get(record.topic)
        if line is None:
            self._lines[record.topic] = deque([waiting])
            self._spawn(self._serve_line(record.topic))
        else:
            line.append(waiting)
        return RecordFuture(delivery, 0)

    async def _serve_line(self, topic: str) -> None:
        line = self._lines[topic]
        while line:
            waiting = line[0]
            try:
                future = await self.accept(waiting.record, waiting.deadline)
            except OttlaError as error:
                waiting.delivery.failed(error)
            else:
                future.take_over(waiting.delivery)
            line.popleft()
            self._waiting_bytes -= waiting.record.size_bytes
        del self._lines[topic]

    async def accept(self, record: _Prepared, deadline: Deadline) -> RecordFuture:
        """Waits until the topic of a record is known and there is room for it, and puts it into a batch."""
        while True:
            topic = await self._refresher.topic(record.topic, deadline)
            if record.partition is None or record.partition < len(topic.partitions):
                break
            await self._refresher.asked_again(deadline, f"{topic.name} has {len(topic.partitions)} partitions")
        self._learn_topic(topic)
        queues = self._accumulator.topic(record.topic)
        size_bytes = self._accumulator.room_for(queues, record.size_bytes)
        await self._take_room(size_bytes, deadline)
        future = self.try_append(record, size_bytes)
        assert future is not None, "there is room for it"
        return future

    async def _take_room(self, size_bytes: int, deadline: Deadline) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._accumulator.lock:
            waiter = self._accumulator.pool.wait(size_bytes, lambda: granted.set_result(None))
        self._sender.wake()  # who waits makes every batch ready
        try:
            async with asyncio.timeout_at(deadline.at):
                await asyncio.shield(granted)
        except BaseException as error:
            with self._accumulator.lock:
                self._accumulator.pool.cancel(waiter)
                if granted.done():
                    self._accumulator.pool.give_back(size_bytes)
            if isinstance(error, TimeoutError):
                raise BufferExhaustedError(
                    deadline.timeout_s, None, f"no room in {self.settings.buffer_memory} bytes of buffer_memory"
                ) from None
            raise

    def _learn(self) -> None:
        """Takes what is known of the topics in use after every answer about them."""
        known = self._cluster.known_topics()
        for name in self._accumulator.topics:
            if name in known:
                self._learn_topic(known[name])
        self._sender.wake()

    def _learn_topic(self, topic: Topic) -> None:
        available = [each.partition for each in topic.partitions if each.leader_id >= 0]
        with self._accumulator.lock:
            self._accumulator.topic(topic.name).resize(len(topic.partitions), available)

    # -- waiting for acknowledgements ----------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Sends everything that was accepted until now and waits until it is decided, well or not."""
        self._lifetime.check()
        if self._loop is not None:
            limit_s = self.settings.delivery_timeout_s + self.settings.max_block_s if timeout_s is None else timeout_s
            await self._flush(Deadline.after(limit_s))

    async def _flush(self, deadline: Deadline) -> None:
        waiting = [line[-1].delivery for line in self._lines.values() if line]
        batches = self._accumulator.begin_flush()
        self._sender.wake()
        try:
            async with asyncio.timeout_at(deadline.at):
                for delivery in [*waiting, *(batch.delivery for batch in batches)]:
                    await settled(delivery)
        except TimeoutError:
            raise TimedOutError(deadline.timeout_s, None, "flushing") from None
        finally:
            self._accumulator.end_flush()


def _closed() -> UsageError:
    from ottla.client.errors import ClosedError

    return ClosedError("the producer was closed before the record was sent")


def _pairs(headers: HeadersLike) -> RecordHeaders:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = tuple((name, data) for name, data in pairs)
    for name, data in found:
        if not isinstance(name, str) or not (data is None or isinstance(data, bytes)):
            raise TypeError(f"a header is a name and bytes or None, not {name!r} and {type(data).__name__}")
    return found


def _as_bytes(data: Any, topic: str, what: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the {what} of a record for {topic} is {type(data).__name__}, not bytes: encode it, or give the producer a "
        f"{what}_serializer"
    )


def _accumulator_options(settings: ProducerSettings) -> AccumulatorOptions:
    return AccumulatorOptions(
        batch_size=settings.batch_size,
        linger_s=settings.linger_s,
        delivery_timeout_s=settings.delivery_timeout_s,
        is_compressed=settings.compression_type != "none",
        is_adaptive=settings.partitioner_adaptive_partitioning_enable and settings.partitioner is None,
        availability_timeout_s=settings.partitioner_availability_timeout_s,
    )


def _refresh_options(settings: ProducerSettings) -> RefreshOptions:
    rebootstraps = settings.metadata_recovery_strategy == "rebootstrap"
    return RefreshOptions(
        max_age_s=settings.metadata_max_age_s,
        max_idle_s=settings.metadata_max_idle_s,
        rebootstrap_after_s=settings.metadata_recovery_rebootstrap_trigger_s if rebootstraps else None,
    )


def _sender_options(settings: ProducerSettings) -> SenderOptions:
    compression = compression_of(settings.compression_type)
    return SenderOptions(
        acks=settings.acks,
        request_timeout_s=settings.request_timeout_s,
        request_bytes_max=settings.max_request_size,
        in_flight_max=settings.max_in_flight_requests_per_connection,
        retries=settings.retries,
        retry_backoff_s=settings.retry_backoff_s,
        retry_backoff_max_s=settings.retry_backoff_max_s,
        reconnect_backoff_s=settings.reconnect_backoff_s,
        reconnect_backoff_max_s=settings.reconnect_backoff_max_s,
        batch_size=settings.batch_size,
        compression=compression,
        compression_level=_level(settings, compression),
        transactional_id=settings.transactional_id,
    )


def _level(settings: ProducerSettings, compression: Compression) -> int | None:
    """The level for the codec in use; None is its default, as for LZ4, where Kafka's 9 stands for the fast one."""
    if settings.compression_level is not None:
        return settings.compression_level
    if compression is Compression.GZIP:
        return settings.compression_gzip_level
    if compression is Compression.LZ4:
        return None if settings.compression_lz4_level == 9 else settings.compression_lz4_level
    return settings.compression_zstd_level if compression is Compression.ZSTD else None
