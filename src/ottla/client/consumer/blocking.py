"""The consumer for callers without an event loop. The same names and settings; everything waits.

    with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        for record in consumer:
            ...

The asyncio consumer runs on a loop in a thread of its own, so heartbeats go on whatever the caller does. What calls
back (listeners, callbacks of commits) is called in the thread that waits: there it may use the consumer.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import random
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from ottla.client.blocking import Front, LoopThread, on_loop, waiting
from ottla.client.consumer import consumer as core
from ottla.client.consumer.columns import ArrowTaken
from ottla.client.consumer.commits import CommitCallback, Offsets
from ottla.client.consumer.consumer import CLOSE_TIMEOUT_S, DEFAULT_POLL_S, LoadsKey, LoadsValue
from ottla.client.consumer.fetched import first_offsets
from ottla.client.consumer.listeners import CallbackListener, RebalanceListener
from ottla.client.consumer.positions import Position
from ottla.client.errors import ConcurrentUseError
from ottla.client.lifetime import Lifetime
from ottla.client.metrics import MetricName
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.runtime.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")
_Core = core.Consumer[Any, Any]
FirstOffsets = Mapping[TopicPartition, Position]
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


@dataclass(slots=True)
class _Handover:
    """Something that was read and is on its way to the caller: where it begins, until it is there."""

    first: Callable[[], FirstOffsets] | None = None


class Consumer(Front[core.Consumer[Any, Any]], Generic[Key, Value]):
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
        self._core: core.Consumer[Key, Value] = core.Consumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            connector=connector,
            clock=clock,
            rng=rng,
            **keywords,
        )
        self.settings = self._core.settings
        self._lifetime = Lifetime("consumer")
        self._running: LoopThread | None = None  # since the first call that needs it
        # An interrupt may end a call between any two statements, so what is left of it must not look like a call.
        self._calls: SimpleQueue[_Call | None] | None = None  # of whoever waits
        self._future: Future[Any] | None = None  # of the same: once it is done, nobody is inside a call
        self._users: dict[str, int] = {}  # the thread that is inside a call
        self._turn = asyncio.Lock()  # what an interrupt cancelled may still be ending when the next call comes
        self._unclaimed: _Handover | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float | None = None) -> Self:
        """Connects to a broker: who names a wrong address hears it now. Whatever else is called does so, too."""
        self._wait(self._core.start(timeout_s))
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
            self._wait(self._core.close(timeout_s))
        if self._lifetime.close() and self._running is not None:
            self._running.stop()

    def metrics(self) -> dict[MetricName, float]:
        """Numbers under Kafka's names, as they are now. Any thread may ask."""
        return self._core.metrics()

    def wakeup(self) -> None:
        """The poll that waits, or the next one, raises WakeupError."""
        self._lifetime.check()
        if self._running is not None:
            self._running.loop.call_soon_threadsafe(self._core.wakeup)
        else:
            self._core.wakeup()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work of the consumer on its loop, and meanwhile here whatever calls back."""
        try:
            self._lifetime.check()
            self._enter()
        except BaseException:
            work.close()
            raise
        calls, future = self._calls, self._future
        is_outermost = future is None or future.done()  # or it is from a listener, in the middle of another call
        try:
            return self._run(work, is_outermost)
        finally:
            if is_outermost:
                self._users.clear()
            else:
                self._calls, self._future = calls, future

    def _run(self, work: Coroutine[Any, Any, Result], is_outermost: bool) -> Result:
        calls: SimpleQueue[_Call | None] = SimpleQueue()
        thread, self._calls = self._thread(), calls
        future: Future[Result] | None = None
        try:
            future = self._future = thread.submit(self._next(work) if is_outermost else work)
            future.add_done_callback(lambda done: calls.put(None))
            while (call := calls.get()) is not None:
                call.run()
            return future.result()
        except BaseException:
            if future is not None:
                future.cancel()
            thread.loop.call_soon_threadsafe(_close_unstarted, work)
            raise

    async def _next(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does it after what came before, of which nothing that was read may be lost."""
        try:
            await self._turn.acquire()
        except BaseException:
            work.close()
            raise
        try:
            left, self._unclaimed = self._unclaimed, None
            if left is not None and left.first is not None:
                self._core.put_back(left.first())
            return await work
        finally:
            self._turn.release()

    def _read(
        self, reading: Callable[[], Coroutine[Any, Any, Result]], first: Callable[[Result], FirstOffsets]
    ) -> Result:
        """What was read. An interrupt may come at any moment: until this returns, nothing of it counts as read."""
        handover = _Handover()

        async def read() -> Result:
            found = await reading()
            handover.first = functools.partial(first, found)
            self._unclaimed = handover
            return found

        found = self._wait(read())
        # Nothing is called from here to the caller, so that no interrupt can come in between.
        handover.first = None
        return found

    def _thread(self) -> LoopThread:
        if self._running is None:
            self._running = LoopThread("ottla-consumer")
            self._running.start()
        return self._running

    def _enter(self) -> None:
        thread = threading.get_ident()
        if self._users.setdefault("thread", thread) != thread:
            raise ConcurrentUseError(
                "the consumer is used by another thread; make one for each, only wakeup() may be called from elsewhere"
            )

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
            answer = await result
            return await answer if inspect.isawaitable(answer) else answer

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
            lambda: self._core.subscribe(
                topics,
                pattern=pattern,
                broker_pattern=broker_pattern,
                listener=here,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        )

    assign = on_loop(_Core.assign)
    unsubscribe = waiting(_Core.unsubscribe)
    assignment = on_loop(_Core.assignment)
    subscription = on_loop(_Core.subscription)

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Key, Value]]]:
        """Records by partition, as soon as there are some; none where there are none in this time."""
        return self._read(lambda: self._core.poll(timeout_s, max_records), _first_of_partitions)

    def take(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """The same as `poll`, as one list: those of a partition are in order."""
        return self._read(lambda: self._core.take(timeout_s, max_records), first_offsets)

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        self.start()
        while not self._lifetime.is_closed:
            yield from self._wait(self._core.fill())

    def batches(
        self, max_records: int | None = None, max_wait_s: float = DEFAULT_POLL_S
    ) -> Iterator[Batch[Key, Value]]:
        """Records of one partition at a time, each with `commit()`."""
        self.start()
        while not self._lifetime.is_closed:
            if (found := self._read(lambda: self._take_batch(max_wait_s, max_records), _first_of_batch)) is not None:
                yield found

    async def _take_batch(self, timeout_s: float, max_records: int | None) -> Batch[Key, Value] | None:
        records = await self._core.take_of_one(timeout_s, max_records)
        return Batch(records[0].topic_partition, records, self) if records else None

    def poll_arrow(self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None) -> pa.RecordBatch:
        """Records as Arrow columns, those of Spark's Kafka source; none becomes a Python object.

        `max_records` is rounded up to whole batches of the log.
        """
        return self._read(lambda: self._core.take_arrow(timeout_s, max_records), _first_of_arrow).rows

    def process(
        self,
        handler: Callable[[ConsumerRecord[Key, Value]], Any],
        *,
        concurrency: int = 16,
        order: Literal["key", "partition", "none"] = "key",
    ) -> None:
        """Handles records in threads until `wakeup`; see `processing`. A failure of a handler ends it."""
        from ottla.client.consumer.processing import process_in_threads

        self._wait(process_in_threads(self._core, handler, concurrency, order))

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(self, what: What = None, timeout_s: float | None = None) -> None:
        """Commits all that was read, offsets, or a record or records as the last that are done."""
        self._wait(self._core.commit(what, timeout_s))

    def commit_async(self, what: What = None, callback: CommitCallback | None = None) -> None:
        """Commits in the background, once. Callbacks are called in order, from a later poll, commit or close."""
        here: Callable[[Offsets, OttlaError | None], Any] | None = self._here(callback)
        self._do(lambda: self._core.commit_async(what, here))

    committed = waiting(_Core.committed)
    group_metadata = on_loop(_Core.group_metadata)
    enforce_rebalance = on_loop(_Core.enforce_rebalance)

    # -- positions -----------------------------------------------------------------------------------------------------

    seek = on_loop(_Core.seek)
    seek_to_beginning = on_loop(_Core.seek_to_beginning)
    seek_to_end = on_loop(_Core.seek_to_end)
    seek_to_committed = waiting(_Core.seek_to_committed)
    seek_to_time = waiting(_Core.seek_to_time)
    position = waiting(_Core.position)
    pause = on_loop(_Core.pause)
    resume = on_loop(_Core.resume)
    paused = on_loop(_Core.paused)
    lag = on_loop(_Core.lag)

    # -- offsets -------------------------------------------------------------------------------------------------------

    beginning_offsets = waiting(_Core.beginning_offsets)
    end_offsets = waiting(_Core.end_offsets)
    offsets_for_times = waiting(_Core.offsets_for_times)
    partitions_for = waiting(_Core.partitions_for)


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


def _close_unstarted(work: Coroutine[Any, Any, Any]) -> None:
    """Cancelled before its turn came, it would never be awaited."""
    if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def _first_of_partitions(found: Mapping[TopicPartition, list[ConsumerRecord[Any, Any]]]) -> FirstOffsets:
    return first_offsets(itertools.chain.from_iterable(found.values()))


def _first_of_batch(found: Batch[Any, Any] | None) -> FirstOffsets:
    return {} if found is None else first_offsets(found.records[:1])


def _first_of_arrow(found: ArrowTaken) -> FirstOffsets:
    return found.first
