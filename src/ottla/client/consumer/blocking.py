"""The consumer for callers without an event loop. The same names and settings; everything waits.

    with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        for record in consumer:
            ...

The asyncio consumer runs on a loop in a thread of its own, so heartbeats go on whatever the caller does. What calls
back (listeners, callbacks of commits) is called in the thread that waits: there it may use the consumer.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from ottla.client.blocking import LoopThread
from ottla.client.consumer import consumer as core
from ottla.client.consumer.commits import CommitCallback, Offsets
from ottla.client.consumer.consumer import CLOSE_TIMEOUT_S, DEFAULT_POLL_S, LoadsKey, LoadsValue
from ottla.client.consumer.listeners import CallbackListener, RebalanceListener
from ottla.client.errors import ConcurrentUseError
from ottla.client.lifetime import Lifetime
from ottla.client.metrics import MetricName
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.runtime.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")
What = (
    Mapping[TopicPartition, OffsetAndMetadata | int]
    | ConsumerRecord[Any, Any]
    | Iterable[ConsumerRecord[Any, Any]]
    | None
)


@dataclass(frozen=True, slots=True)
class Batch(Generic[Key, Value]):
    """Records of one partition that were taken together."""

    partition: TopicPartition
    records: list[ConsumerRecord[Key, Value]]
    _consumer: Consumer[Key, Value]

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def commit(self) -> None:
        self._consumer.commit(self.records)


class Consumer(Generic[Key, Value]):
    """One thread at a time; `wakeup` may be called by any, and by signal handlers."""

    @overload
    def __init__(
        self: Consumer[bytes, bytes],
        *topics: str | Mapping[str, Any],
        key_deserializer: None = None,
        value_deserializer: None = None,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Key, bytes],
        *topics: str | Mapping[str, Any],
        key_deserializer: LoadsKey[Key],
        value_deserializer: None = None,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes, Value],
        *topics: str | Mapping[str, Any],
        key_deserializer: None = None,
        value_deserializer: LoadsValue[Value],
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str | Mapping[str, Any],
        key_deserializer: LoadsKey[Key],
        value_deserializer: LoadsValue[Value],
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None: ...

    def __init__(
        self,
        *topics: str | Mapping[str, Any],
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None:
        """Topics to subscribe to, and settings: a mapping, keywords or both, under any of their names.

        `connector`, `clock` and `rng` replace the network, the clock and the random numbers in tests.
        """
        self._consumer: core.Consumer[Key, Value] = core.Consumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            connector=connector,
            clock=clock,
            rng=rng,
            **keywords,
        )
        self.settings = self._consumer.settings
        self._lifetime = Lifetime("consumer")
        self._running: LoopThread | None = None  # since the first call that needs it
        self._calls: SimpleQueue[_Call | None] | None = None  # of whoever waits
        self._use = threading.Lock()
        self._user: int | None = None  # the thread that is inside a call

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connects to a broker: who names a wrong address hears it now. Whatever else is called does so, too."""
        self._wait(self._consumer.start())
        return self

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close(0)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Commits what was read where commits are automatic, leaves the group, ends everything, all in this time."""
        if not self._lifetime.is_closed and self._running is not None:
            self._wait(self._consumer.close(timeout_s))
        if self._lifetime.close() and self._running is not None:
            self._running.stop()

    def metrics(self) -> dict[MetricName, float]:
        """Numbers under Kafka's names, as they are now. Any thread may ask."""
        return self._consumer.metrics()

    def wakeup(self) -> None:
        """The poll that waits, or the next one, raises WakeupError."""
        self._lifetime.check()
        if self._running is not None:
            self._running.loop.call_soon_threadsafe(self._consumer.wakeup)
        else:
            self._consumer.wakeup()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work of the consumer on its loop, and meanwhile here whatever calls back."""
        try:
            self._lifetime.check()
            self._enter()
        except BaseException:
            work.close()
            raise
        is_outermost = self._calls is None
        outer, self._calls = self._calls, SimpleQueue()
        calls = self._calls
        try:
            future = self._thread().submit(work)
            future.add_done_callback(lambda done: calls.put(None))
            try:
                while (call := calls.get()) is not None:
                    call.run()
            except BaseException:
                future.cancel()
                raise
            return future.result()
        finally:
            self._calls = outer
            if is_outermost:
                self._user = None
                self._use.release()

    def _thread(self) -> LoopThread:
        if self._running is None:
            self._running = LoopThread("ottla-consumer")
            self._running.start()
        return self._running

    def _enter(self) -> None:
        thread = threading.get_ident()
        if self._user == thread:
            return  # from a listener, in the middle of another call
        if not self._use.acquire(blocking=False):
            raise ConcurrentUseError(
                "the consumer is used by another thread; make one for each, only wakeup() may be called from elsewhere"
            )
        self._user = thread

    def _do(self, work: Callable[[], Result]) -> Result:
        """Does something on the loop that does not wait."""

        async def done() -> Result:
            return work()

        return self._wait(done())

    def _here(self, call: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """The same call, made in the thread that waits."""
        if call is None:
            return None

        async def handed_over(*arguments: Any) -> Any:
            result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            assert self._calls is not None, "listeners are called while somebody waits"
            self._calls.put(_Call(call, arguments, result))
            return await result

        return handed_over

    # -- what is read --------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        broker_pattern: str | None = None,
        listener: RebalanceListener | None = None,
        on_assigned: Callable[[Collection[TopicPartition]], Any] | None = None,
        on_revoked: Callable[[Collection[TopicPartition]], Any] | None = None,
        on_lost: Callable[[Collection[TopicPartition]], Any] | None = None,
    ) -> None:
        """Shares topics with the group: by name, by a pattern of Python's, or by one of RE2's for the coordinator."""
        if listener is None:
            listener = CallbackListener(on_assigned, on_revoked, on_lost)
            on_assigned = on_revoked = on_lost = None
        here = CallbackListener(
            self._here(listener.on_partitions_assigned),
            self._here(listener.on_partitions_revoked),
            self._here(listener.on_partitions_lost),
        )
        self._do(
            lambda: self._consumer.subscribe(
                topics,
                pattern=pattern,
                broker_pattern=broker_pattern,
                listener=here,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, whoever else does. Those that stay keep their position."""
        self._do(lambda: self._consumer.assign(partitions))

    def unsubscribe(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Leaves the group, or gives up what was assigned by hand."""
        self._wait(self._consumer.unsubscribe(timeout_s))

    def assignment(self) -> frozenset[TopicPartition]:
        return self._do(self._consumer.assignment)

    def subscription(self) -> frozenset[str]:
        return self._do(self._consumer.subscription)

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Key, Value]]]:
        """Records by partition, as soon as there are some; none where there are none in this time."""
        return self._wait(self._consumer.poll(timeout_s, max_records))

    def take(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """The same as `poll`, as one list: those of a partition are in order."""
        return self._wait(self._consumer.take(timeout_s, max_records))

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        while not self._lifetime.is_closed:
            yield from self._wait(self._consumer.fill())

    def batches(
        self, max_records: int | None = None, max_wait_s: float = DEFAULT_POLL_S
    ) -> Iterator[Batch[Key, Value]]:
        """Records of one partition at a time, each with `commit()`."""
        while not self._lifetime.is_closed:
            for partition, records in self.poll(max_wait_s, max_records).items():
                yield Batch(partition, records, self)

    def poll_arrow(self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None) -> pa.RecordBatch:
        """Records as Arrow columns, those of Spark's Kafka source; `max_records` is rounded up to whole batches."""
        return self._wait(self._consumer.poll_arrow(timeout_s, max_records))

    def process(
        self,
        handler: Callable[[ConsumerRecord[Key, Value]], Any],
        *,
        concurrency: int = 16,
        order: Literal["key", "partition", "none"] = "key",
    ) -> None:
        """Handles records in threads until `wakeup`; see `processing`. A failure of a handler ends it."""
        from ottla.client.consumer.processing import process_in_threads

        self._wait(process_in_threads(self._consumer, handler, concurrency, order))

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(self, what: What = None, timeout_s: float | None = None) -> None:
        """Commits all that was read, offsets, or a record or records as the last that are done."""
        self._wait(self._consumer.commit(what, timeout_s))

    def commit_async(self, what: What = None, callback: CommitCallback | None = None) -> None:
        """Commits in the background, once. Callbacks are called in order, from a later poll, commit or close."""
        here: Callable[[Offsets, OttlaError | None], Any] | None = self._here(callback)
        self._do(lambda: self._consumer.commit_async(what, here))

    def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        return self._wait(self._consumer.committed(partitions, timeout_s))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group: what a transaction needs to commit offsets for it."""
        return self._do(self._consumer.group_metadata)

    def enforce_rebalance(self, reason: str = "asked for by the user") -> None:
        """Joins again with the next poll; without effect where the coordinator assigns."""
        self._do(lambda: self._consumer.enforce_rebalance(reason))

    # -- positions -----------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """The next record of a partition is that at `offset`, or the first one behind it."""
        self._do(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """To the first record that there is, of these partitions or of all."""
        self._do(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Behind the last record, of these partitions or of all."""
        self._do(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Back to what the group committed, of these partitions or of all; those without a commit stay."""
        self._wait(self._consumer.seek_to_committed(*partitions))

    def seek_to_time(self, when: datetime | int, *partitions: TopicPartition) -> None:
        """To the first record at or after a time, a datetime or milliseconds; to the end where there is none."""
        self._wait(self._consumer.seek_to_time(when, *partitions))

    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record to be read; waits until it is known."""
        return self._wait(self._consumer.position(partition, timeout_s))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands nothing out of these until they are resumed; what is there is kept."""
        self._do(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._do(lambda: self._consumer.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        return self._do(self._consumer.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records are left to be read, by what fetches have told; None before the first."""
        return self._do(lambda: self._consumer.lag(partition))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._wait(self._consumer.beginning_offsets(partitions, timeout_s))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """One past the last record that this consumer may see."""
        return self._wait(self._consumer.end_offsets(partitions, timeout_s))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time in milliseconds; None where there is none."""
        return self._wait(self._consumer.offsets_for_times(times, timeout_s))

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The numbers of the partitions of a topic."""
        return self._wait(self._consumer.partitions_for(topic, timeout_s))


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to be called by the thread that waits, for the loop that waits for it."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    result: asyncio.Future[Any]

    def run(self) -> None:
        loop = self.result.get_loop()
        try:
            value = self.call(*self.arguments)
        except Exception as error:
            loop.call_soon_threadsafe(self._set_error, error)
        else:
            loop.call_soon_threadsafe(self._set, value)

    def _set(self, value: Any) -> None:
        if not self.result.done():
            self.result.set_result(value)

    def _set_error(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)
