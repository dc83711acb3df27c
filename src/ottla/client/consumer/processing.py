"""Handling records side by side without losing the order that matters, or a record.

    await consumer.process(handle, concurrency=64, order="key")

The consumer keeps polling while handlers work, so long work never costs it its membership. It takes no more records
while as many are in progress as may be, and commits only finished prefixes: an offset is committed when everything
before it is done. Before partitions go to another member, what is begun is finished and committed. A handler that
raises ends the processing with that error; what was done before it is committed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ottla.client.consumer.commits import AutoCommit
from ottla.client.consumer.errors import WakeupError
from ottla.client.consumer.positions import NO_EPOCH, Position
from ottla.client.values import ConsumerRecord
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.runtime.signal import Signal

if TYPE_CHECKING:
    from ottla.client.consumer.consumer import Consumer

Order = Literal["key", "partition", "none"]
Handler = Callable[[ConsumerRecord[Any, Any]], Any]

WAITING_PER_WORKER: Final = 8  # records that may wait for each that is being worked on
POLL_S: Final = 0.1  # how long a poll may last before what is done is committed


class HandlerCancelledError(OttlaError):
    """What a handler waited for was cancelled, so the record is not handled."""

    def __init__(self, record: ConsumerRecord[Any, Any]) -> None:
        super().__init__(f"the handler of {record.topic_partition} offset {record.offset} was cancelled")


@dataclass(slots=True)
class Prefix:
    """Records of a partition that were taken, and which of them are done. Pure."""

    taken: deque[ConsumerRecord[Any, Any]] = field(default_factory=deque)
    done: set[int] = field(default_factory=set)

    def take(self, record: ConsumerRecord[Any, Any]) -> None:
        self.taken.append(record)

    def finish(self, record: ConsumerRecord[Any, Any]) -> None:
        self.done.add(record.offset)
        while self.taken and self.taken[0].offset in self.done:
            self.done.discard(self.taken.popleft().offset)

    @property
    def first_unfinished(self) -> Position | None:
        """Everything before it is done; None where all is."""
        if not self.taken:
            return None
        first = self.taken[0]
        return Position(first.offset, NO_EPOCH if first.leader_epoch is None else first.leader_epoch)


def lane_of(record: ConsumerRecord[Any, Any], order: Order) -> object:
    """Records of one lane are handled one after the other."""
    match order:
        case "partition":
            return record.topic_partition
        case "key" if record.key is not None:
            return record.topic_partition, record.key
        case _:
            return record.topic_partition, record.offset


class Processing:
    """Records in progress. `handle` is called, and awaited if need be, once for each."""

    def __init__(self, handle: Handler, concurrency: int, order: Order, on_done: Callable[[], None]) -> None:
        if not callable(handle):
            raise TypeError(f"a handler is called with a record, and {handle!r} cannot be called")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        if order not in ("key", "partition", "none"):
            raise ValueError(f"order is key, partition or none, not {order!r}")
        self._handle = handle
        self._order = order
        self._on_done = on_done
        self._records_max = concurrency * (1 + WAITING_PER_WORKER)
        self._free = asyncio.Semaphore(concurrency)
        self._prefixes: dict[TopicPartition, Prefix] = {}
        self._lanes: dict[object, deque[ConsumerRecord[Any, Any]]] = {}
        self._running: dict[TopicPartition, int] = {}
        self._released: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._moved = Signal()
        self.failure: BaseException | None = None

    @property
    def room(self) -> int:
        """How many more records may be taken."""
        return max(0, self._records_max - self._under_way)

    def take(self, records: Iterable[ConsumerRecord[Any, Any]]) -> None:
        for record in records:
            self._released.discard(record.topic_partition)
            self._prefixes.setdefault(record.topic_partition, Prefix()).take(record)
            self._under_way += 1
            lane = lane_of(record, self._order)
            waiting = self._lanes.get(lane)
            if waiting is not None:
                waiting.append(record)
                continue
            self._lanes[lane] = deque([record])
            task = asyncio.get_running_loop().create_task(self._work(lane), name="ottla-process")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, lane: object) -> None:
        waiting = self._lanes[lane]
        while waiting:
            record = waiting.popleft()
            async with self._free:
                if self.failure is None and record.topic_partition not in self._released:
                    await self._handle_one(record)
            self._under_way -= 1
            self._moved.fire()
            self._on_done()
        del self._lanes[lane]

    async def _handle_one(self, record: ConsumerRecord[Any, Any]) -> None:
        partition = record.topic_partition
        prefix = self._prefixes[partition]
        self._running[partition] = self._running.get(partition, 0) + 1
        try:
            result = self._handle(record)
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            self.failure = self.failure or error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not ours: something that the handler waited for was cancelled. It has not handled the record.
            self.failure = self.failure or HandlerCancelledError(record)
        else:
            prefix.finish(record)
        finally:
            self._running[partition] -= 1

    def unfinished(self) -> dict[TopicPartition, Position]:
        """Where each partition would have to be read from again."""
        found = {partition: prefix.first_unfinished for partition, prefix in self._prefixes.items()}
        return {partition: position for partition, position in found.items() if position is not None}

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """Others are to read these: begins none of their records any more, and waits for those that are begun."""
        self._released.update(partitions)
        while any(self._running.get(partition) for partition in partitions):
            await self._moved.wait()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others read these now."""
        for partition in partitions:
            self._released.add(partition)
            self._prefixes.pop(partition, None)

    async def finish(self) -> None:
        """Waits until all that was taken is done, or something failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def process(consumer: Consumer[Any, Any], handler: Handler, concurrency: int, order: Order) -> None:
    """Until `wakeup`, or a handler fails."""
    processing = Processing(handler, concurrency, order, consumer.look_again)
    try:
        with consumer.holding(processing):
            await _run(consumer, processing)
    finally:
        await processing.stop()


async def _run(consumer: Consumer[Any, Any], processing: Processing) -> None:
    commits = AutoCommit(consumer.settings.auto_commit_interval_s)
    try:
        while processing.failure is None:
            processing.take(await consumer.take_some(POLL_S, lambda: processing.room))
            if consumer.settings.group_id is not None and commits.take_due(asyncio.get_running_loop().time()):
                consumer.commit_async()
    except WakeupError:
        pass  # the way to end it
    await processing.finish()
    if consumer.settings.group_id is not None:
        await consumer.commit()
    if processing.failure is not None:
        raise processing.failure


async def process_in_threads(consumer: Consumer[Any, Any], handler: Handler, concurrency: int, order: Order) -> None:
    """The same with handlers that block."""
    if not callable(handler):
        raise TypeError(f"a handler is called with a record, and {handler!r} cannot be called")
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(max(1, concurrency), "ottla-process")
    try:
        await process(consumer, lambda record: loop.run_in_executor(threads, handler, record), concurrency, order)
    finally:
        # After an interrupt handlers may still be at work: the loop, with its heartbeats, does not wait for them.
        threads.shutdown(wait=False, cancel_futures=True)
