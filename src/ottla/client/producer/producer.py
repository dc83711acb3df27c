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
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from ottla.client.arguments import check_topic
from ottla.client.connecting import client_id_of, cluster_of
from ottla.client.errors import (
    BufferExhaustedError,
    ClosedError,
    TimedOutError,
    TransactionAbortedError,
    UsageError,
)
from ottla.client.lifetime import Lifetime, to_the_end
from ottla.client.logs import named
from ottla.client.metadata import Cluster, Topic
from ottla.client.metrics import MetricName, Metrics
from ottla.client.partitioning import Records
from ottla.client.producer.accumulator import Accumulator, TopicQueues
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.columns import ColumnsFuture, columns_of, pieces_of
from ottla.client.producer.deliveries import Callback, RecordFuture, settled
from ottla.client.producer.interceptors import Interceptors
from ottla.client.producer.lines import WaitingLines
from ottla.client.producer.memory import MemoryPool
from ottla.client.producer.open_transaction import OpenTransaction
from ottla.client.producer.options import accumulator_options, columns_bytes_max, refresh_options, sender_options
from ottla.client.producer.partitioners import Murmur2, partition_by_murmur2, partitioner_of
from ottla.client.producer.preparation import Preparation, PreparedRecord, RecordNotReadyError
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.sender import Sender, SenderOptions, TransactionView
from ottla.client.producer.sequences import Sequences
from ottla.client.producer.transaction_state import State
from ottla.client.producer.transactions import Transactions
from ottla.client.refreshing import Refresher
from ottla.client.retrying import Deadline
from ottla.client.serializers.base import Serializer
from ottla.client.settings import ProducerSettings
from ottla.client.values import ConsumerGroupMetadata, HeadersLike, OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.records import codec
from ottla.runtime.clock import SystemClock

Key = TypeVar("Key")
Value = TypeVar("Value")

KeySerializer = Serializer[Key] | Callable[[Key], bytes | None]
ValueSerializer = Serializer[Value] | Callable[[Value], bytes | None]

log = logging.getLogger("ottla.client.producer")


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
        """Settings as a mapping or as keywords, under any of their names. Nothing is connected yet.

        `connector` replaces the network in tests.
        """
        if key_serializer is not None:
            keywords["key_serializer"] = key_serializer
        if value_serializer is not None:
            keywords["value_serializer"] = value_serializer
        self.settings = ProducerSettings.read(settings, **keywords)
        self.client_id = client_id_of(self.settings)
        self._lifetime = Lifetime("producer")
        self._interceptors = Interceptors(self.settings.interceptors)
        self._preparation = Preparation(self.settings, self._interceptors)
        self._partitioner = partitioner_of(
            self.settings.partitioner, ignores_keys=self.settings.partitioner_ignore_keys
        )
        self._hashes_keys = isinstance(self._partitioner, Murmur2)
        self._rng = random.Random()
        self._cluster = self._make_cluster(connector)
        self._accumulator = Accumulator(
            accumulator_options(self.settings), MemoryPool(self.settings.buffer_memory), self._rng
        )
        self._refresher = Refresher(self._cluster, refresh_options(self.settings), self._learn)
        self._sequences = (
            Sequences(is_transactional=self.settings.transactional_id is not None)
            if self.settings.enable_idempotence
            else None
        )
        self._transactions = self._make_transactions()
        self._transaction = self._transaction_view()
        self._metrics = Metrics(
            self.client_id,
            lambda: 0.0 if self._loop is None else self._loop.time(),
            self.settings.metrics_sample_window_s,
            self.settings.metrics_num_samples,
            self.settings.metric_reporters,
        )
        self._sender = Sender(
            self._cluster,
            self._accumulator,
            self._sequences,
            self._refresher,
            self._sender_options(),
            self._rng,
            self._transaction,
            ProducerMetrics(self._metrics, self._accumulator),
        )
        self._lines = WaitingLines(
            self._preparation, self.settings.buffer_memory, self.settings.max_block_s, self.accept
        )
        self.lines = self._lines.by_topic  # of records that wait before they can be put into a batch
        self.short_ways: dict[str, codec.OpenBatches] = {}  # open batches of topics, for plain records: decision 17
        self._record_bytes_max = self.settings.max_request_size  # of a record in columns
        self._columns_turn = asyncio.Lock()  # one call's batches stand together
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _make_cluster(self, connector: Connector | None) -> Cluster:
        return cluster_of(self.settings, self.client_id, connector, self._rng)

    async def _close_cluster(self) -> None:
        await self._cluster.close()

    def _transaction_view(self) -> TransactionView:
        """What the sender has to know of transactions."""
        return self._transactions or TransactionView()

    def _sender_options(self) -> SenderOptions:
        return sender_options(self.settings)

    def _make_transactions(self) -> Transactions | None:
        if self.settings.transactional_id is None:
            return None
        assert self._sequences is not None
        return Transactions(
            self._cluster,
            self._sequences,
            self.settings.transactional_id,
            int(self.settings.transaction_timeout_s * 1000),
            self.settings.max_block_s,
            self._look_again,
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begins to work on the running loop. The first `send` does so by itself."""
        self._lifetime.check()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._accumulator.worker = threading.get_ident()
            self._metrics.start()
            with named(self.client_id):
                self._spawn(self._refresher.run())
                self._spawn(self._sender.run())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._loop is not None
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._sender.fail_all(error)  # a bug of ours: every record that waits fails with it

    async def close(self, timeout_s: float | None = None) -> None:
        """Sends what was accepted, then ends: at the latest after `timeout_s`, by default `delivery_timeout_s`.

        Records that are not acknowledged by then fail. Closing again does nothing.
        """
        if self._lifetime.close() and self._loop is not None:
            self._accumulator.is_closing = True
            with named(self.client_id):
                await self._flush_and_end(timeout_s)

    async def _flush_and_end(self, timeout_s: float | None) -> None:
        limit_s = self.settings.delivery_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._abort_open_transaction()
                await self._flush(Deadline.after(limit_s))
        except (TimedOutError, TimeoutError):
            log.warning("closed after %g s with records that are not acknowledged", limit_s)
        finally:
            await to_the_end(self._end())

    async def _abort_open_transaction(self) -> None:
        """What is open when the producer is closed is not committed; the coordinator need not wait for it."""
        if self._transactions is not None and await self._transactions.is_left_open():
            try:
                await self._transactions.abort(self._dropped)
            except OttlaError as error:
                log.warning("closed with a transaction that could not be aborted: %s", error)

    async def _end(self) -> None:
        await self._transaction.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()
        self._lines.drop(lambda: ClosedError("the producer was closed before the record was sent"))
        await self._close_cluster()
        self._interceptors.close()
        self._metrics.close()

    def metrics(self) -> dict[MetricName, float]:
        """Numbers under Kafka's names, as they are now."""
        return self._metrics.values()

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

        What is wrong with the record itself is raised here. Without a timestamp it has the time of this call. Where its
        serializer has to ask a schema registry first, the record waits in line, and an error is one of the future.
        """
        short_way = self.short_ways.get(topic)
        if short_way is not None and headers is None and not self.lines and self.may_append():
            future: RecordFuture | None = short_way.append(key, value, partition, timestamp, on_delivery)
            if future is not None:
                return future
        self.start()
        try:
            record = self.prepare(topic, value, key, partition, timestamp, headers, on_delivery)
        except RecordNotReadyError as error:
            return self._lines.add_unprepared(error.unprepared, self._spawn)
        return self.try_append(record) or self._lines.add_prepared(record, self._spawn)

    def may_append(self) -> bool:
        """Whether records may be sent now; if not, the long way says why. A producer that failed has no open batch."""
        if self._lifetime.refusal is not None:
            return False
        return self._transactions is None or self._transactions.state.now is State.IN_TRANSACTION

    async def room(self, timeout_s: float | None = None) -> None:
        """Waits until records that are sent now would not have to wait, at most `max_block_s`."""
        self._lifetime.check()
        deadline = Deadline.after(self.settings.max_block_s if timeout_s is None else timeout_s)
        while self._lines or self._accumulator.pool.has_waiters:
            if self._lines:
                await self._lines.wait_served(deadline)
            else:  # columns wait: behind them is room
                await self._take_room(0, deadline)

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: HeadersLike | None,
        callback: Callback | None,
    ) -> PreparedRecord:
        """The record as bytes; an error where it may not be sent now. Any thread may call this."""
        refusal = self._lifetime.refusal
        if refusal is not None:
            raise refusal
        if self._transactions is not None:
            self._transactions.state.check_may_send()
        return self._preparation.prepared(topic, value, key, partition, timestamp, headers, callback)

    def try_append(self, record: PreparedRecord, reserved_bytes: int = 0) -> RecordFuture | None:
        """Puts a record into a batch; None where it has to wait. Any thread may call this."""
        if record.topic in self._lines and not reserved_bytes:
            return None  # behind those that wait
        if self._sender.failure is not None:
            raise self._sender.failure
        topic = self._accumulator.topics.get(record.topic)
        if topic is None or not topic.partition_count:
            check_topic(record.topic)
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

    def _look_again(self) -> None:
        self._sender.wake()

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

    async def accept(self, record: PreparedRecord, deadline: Deadline) -> RecordFuture:
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
            queues = self._accumulator.topic(topic.name)
            queues.resize(len(topic.partitions), available)
        # The compiled core alone puts a record into its batch in one step, which needs no lock.
        if codec.NATIVE and self._preparation.is_needless and self._hashes_keys:
            self.short_ways[topic.name] = queues.open_batches

    # -- columns -------------------------------------------------------------------------------------------------------

    async def send_columns(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        *,
        timestamps: Any = None,
        headers: Any = None,
        partition: int | None = None,
    ) -> ColumnsFuture:
        """Takes columns of bytes, in lists, NumPy or Arrow; returns when there was room for all, before they are sent.

        Awaiting what it returns waits for the acknowledgement. Serializers and interceptors are for single records.
        """
        return await self.send_records(
            topic, columns_of(values, keys, timestamps, headers, SystemClock().now_ms()), partition
        )

    async def send_records(self, topic: str, records: Records, partition: int | None = None) -> ColumnsFuture:
        """The same for columns that are prepared already."""
        self.start()
        check_topic(topic)
        if self._transactions is not None:
            self._transactions.state.check_may_send()
        if self._sender.failure is not None:
            raise self._sender.failure
        deadline = Deadline.after(self.settings.max_block_s)
        async with self._columns_turn:
            found = await self._refresher.topic(topic, deadline)
            self._learn_topic(found)
            pieces = pieces_of(
                found,
                records,
                partition,
                self._partitioner,
                columns_bytes_max(self.settings),
                self._record_bytes_max,
            )
            batches = []
            for piece in pieces:
                number = self._accumulator.next_in_turn(topic) if piece.partition is None else piece.partition
                reserved = min(piece.size_bytes, self.settings.buffer_memory)
                await self._take_room(reserved, deadline)
                now = asyncio.get_running_loop().time()
                place = TopicPartition(topic, number)
                batch = ProducerBatch.of_records(
                    place, piece.records, reserved, now, now + self.settings.delivery_timeout_s
                )
                self._accumulator.add(batch)
                self._sender.wake()
                batches.append(batch)
        return ColumnsFuture(batches)

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The numbers of the partitions of a topic, which the broker may create now."""
        self.start()
        deadline = Deadline.after(self.settings.max_block_s if timeout_s is None else timeout_s)
        return [each.partition for each in (await self._cluster.topic(topic, deadline, may_create=True)).partitions]

    # -- transactions --------------------------------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Introduces this producer to its coordinator, which ends what an earlier one of the same id left open."""
        self.start()
        await self._transacting().init()

    def begin_transaction(self) -> None:
        """Begins a transaction: what is sent from now on belongs to it."""
        self._lifetime.check()
        self._transacting().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits offsets of a group with the transaction: the next ones to be read.

        With what `consumer.group_metadata()` gives, a member that was thrown out meanwhile is refused.
        """
        self._lifetime.check()
        group = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        await self._transacting().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Sends what is left and commits. An AbortableError: abort, and do it again."""
        self._lifetime.check()
        self._accumulator.is_completing_transaction = True
        try:
            await self._transacting().commit(self._settled)
        finally:
            self._accumulator.is_completing_transaction = False

    async def abort_transaction(self) -> None:
        """Drops what is not sent and aborts."""
        self._lifetime.check()
        await self._transacting().abort(self._dropped)

    def transaction(self) -> OpenTransaction[Key, Value]:
        """`async with producer.transaction() as t:` begins one; it is committed at the end, or aborted by an error.

        Initializes the producer when it is used for the first time.
        """
        return OpenTransaction(self)

    def _transacting(self) -> Transactions:
        if self._transactions is None:
            raise UsageError("the producer has no transactional_id: give it one to use transactions")
        return self._transactions

    async def _settled(self) -> None:
        """Waits until every record that was accepted is decided."""
        await self._flush(Deadline.after(self.settings.delivery_timeout_s + self.settings.max_block_s))

    async def _dropped(self) -> None:
        """Fails the records that are not in a batch yet; the sender drops those that are not sent."""
        self._lines.drop(lambda: TransactionAbortedError("the transaction was aborted before the record was sent"))
        await self._settled()

    # -- waiting for acknowledgements ----------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Sends everything that was accepted until now and waits until it is decided, well or not."""
        self._lifetime.check()
        if self._loop is not None:
            limit_s = self.settings.delivery_timeout_s + self.settings.max_block_s if timeout_s is None else timeout_s
            await self._flush(Deadline.after(limit_s))

    async def _flush(self, deadline: Deadline) -> None:
        waiting = self._lines.deliveries()
        batches = self._accumulator.begin_flush()
        self._sender.wake()
        try:
            async with asyncio.timeout_at(deadline.at):
                for delivery in [*waiting, *(batch.delivery for batch in batches)]:
                    await settled(delivery)
        except TimeoutError:
            cause = self._refresher.failure
            is_unreached = cause is None and not self._cluster.known_nodes()
            what = f"flushing, {self._cluster.where}" if is_unreached else "flushing"
            raise TimedOutError(deadline.timeout_s, cause, what) from None
        finally:
            self._accumulator.end_flush()
