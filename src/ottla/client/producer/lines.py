"""Records that wait before they can be put into a batch, a line for each topic, in the order in which they came.

They wait for their serializer to look something up, for their topic to be known, or for room.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

from ottla.client.errors import BufferExhaustedError, TimedOutError
from ottla.client.off_loop import off_loop
from ottla.client.producer.deliveries import Callback, Delivery, RecordFuture
from ottla.client.producer.preparation import Preparation, PreparedRecord, RecordNotReadyError, UnpreparedRecord
from ottla.client.retrying import Deadline
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

# What a record that waits for its serializer counts for: how large it will be is not known yet.
UNPREPARED_BYTES: Final = 1024


class _Waiting(NamedTuple):
    record: PreparedRecord | UnpreparedRecord
    size_bytes: int
    delivery: Delivery
    deadline: Deadline


class Accept(Protocol):
    async def __call__(self, record: PreparedRecord, deadline: Deadline) -> RecordFuture:
        """Waits until there is room for a record and puts it into a batch."""
        ...


class WaitingLines:
    def __init__(self, preparation: Preparation, bytes_max: int, wait_max_s: float, accept: Accept) -> None:
        self._preparation = preparation
        self._bytes_max = bytes_max
        self._wait_max_s = wait_max_s
        self._accept = accept
        self.by_topic: dict[str, deque[_Waiting]] = {}  # one object for life: a producer looks at it for every record
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_topic

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def deliveries(self) -> list[Delivery]:
        return [each.delivery for line in self.by_topic.values() for each in line]

    async def wait_served(self, deadline: Deadline) -> None:
        """Until every record that waits now has been put into a batch, or has failed."""
        await asyncio.wait(list(self._tasks.values()), timeout=deadline.left_s)
        if self.by_topic and not deadline.left_s:
            raise BufferExhaustedError(deadline.timeout_s, None, "records wait for room, or for their topics")

    def add_prepared(self, record: PreparedRecord, spawn: Spawn) -> RecordFuture:
        waiting = record._replace(callback=None)
        return self._add(waiting, record.topic, record.partition, record.size_bytes, record.callback, spawn)

    def add_unprepared(self, unprepared: UnpreparedRecord, spawn: Spawn) -> RecordFuture:
        given, callback = unprepared
        waiting = UnpreparedRecord(given, None)
        return self._add(waiting, given.topic, given.partition, UNPREPARED_BYTES, callback, spawn)

    def _add(
        self,
        record: PreparedRecord | UnpreparedRecord,
        topic: str,
        partition: int | None,
        size_bytes: int,
        callback: Callback | None,
        spawn: Spawn,
    ) -> RecordFuture:
        if self._bytes + size_bytes > self._bytes_max:
            raise BufferExhaustedError(
                0.0, None, f"buffer_memory is full, and so is the line before it: `await producer.room()`; {topic}"
            )
        delivery = Delivery(TopicPartition(topic, -1 if partition is None else partition), threading.get_ident())
        if callback is not None:
            delivery.add_callback(0, callback)
        self._bytes += size_bytes
        line = self.by_topic.get(topic)
        if line is None:
            line = self.by_topic[topic] = deque()
            self._tasks[topic] = spawn(self._serve(topic, line))
        line.append(_Waiting(record, size_bytes, delivery, Deadline.after(self._wait_max_s)))
        return RecordFuture(delivery, 0)

    async def _serve(self, topic: str, line: deque[_Waiting]) -> None:
        while line:
            waiting = line[0]
            try:
                record = waiting.record
                if isinstance(record, UnpreparedRecord):
                    record = await ready(self._preparation, record, waiting.deadline)
                future = await self._accept(record, waiting.deadline)
            except Exception as error:  # also what a partitioner of the user's raises: those behind it go on
                waiting.delivery.failed(error)
            else:
                future.take_over(waiting.delivery)
            line.popleft()
            self._bytes -= waiting.size_bytes
        del self.by_topic[topic]
        del self._tasks[topic]

    def drop(self, error: Callable[[], OttlaError]) -> None:
        """Fails what waits."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        lines = list(self.by_topic.values())
        self.by_topic.clear()
        for line in lines:
            while line:
                waiting = line.popleft()
                self._bytes -= waiting.size_bytes
                waiting.delivery.failed(error())


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


async def ready(preparation: Preparation, unprepared: UnpreparedRecord, deadline: Deadline) -> PreparedRecord:
    """Looks up what the serializers of a record need, in threads, and prepares it."""
    while True:
        try:
            return preparation.prepared_again(unprepared)
        except RecordNotReadyError as error:
            try:
                async with asyncio.timeout_at(deadline.at):
                    await off_loop(error.look_up)
            except TimeoutError:
                what = f"looking up how to serialize a record for {unprepared.record.topic}"
                raise TimedOutError(deadline.timeout_s, None, what) from None
