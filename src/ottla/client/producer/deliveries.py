"""What became of a batch, and the futures of its records.

A batch has one `Delivery`; a record's future is a place in it, so that acknowledging a batch costs the same for one
record and for a thousand. A delivery ends exactly once, or moves: when its batch is split, or when a record that waited
for room was put into a batch. A future follows.

Futures may be waited for in any thread and on any event loop. A delivery is ended by the sender alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.errors import TimedOutError, UsageError
from ottla.client.values import RecordMetadata
from ottla.ids import TopicPartition
from ottla.records import codec

Callback = Callable[[RecordMetadata | None, BaseException | None], object]

log = logging.getLogger("ottla.client.producer")

# Callbacks may be added by any thread while the sender ends the delivery. One lock for all: it is held for an append.
_callbacks_lock = threading.Lock()


class _Move(NamedTuple):
    """Records `[start, end)` are now in another delivery, the first of them at `target_start`."""

    start: int
    end: int
    target: Delivery
    target_start: int


class Delivery:
    """Of the records of one batch."""

    __slots__ = (
        "_waiters",
        "append_time",
        "base_offset",
        "callbacks",
        "error",
        "is_done",
        "moves",
        "partition",
        "record_errors",
        "size_bytes",
        "timestamps",
        "worker",
    )

    def __init__(self, partition: TopicPartition, worker: int = 0) -> None:
        self.partition = partition
        self.worker = worker  # the thread that brings it to its end: nobody may wait for it there
        self.timestamps: Sequence[int] = ()  # since its batch was closed
        self.is_done = False
        self.size_bytes = 0  # of the batch as it was sent
        self.base_offset = -1
        self.append_time = -1
        self.error: BaseException | None = None
        self.record_errors: Mapping[int, BaseException] = {}
        self.moves: list[_Move] = []
        self._waiters: list[Callable[[], None]] = []
        self.callbacks: list[tuple[int, Callback]] = []  # the writer of an open batch adds to it

    # -- ending --------------------------------------------------------------------------------------------------------

    def acknowledged(self, base_offset: int, append_time: int = -1) -> None:
        self.base_offset, self.append_time = base_offset, append_time
        self._end()

    def failed(self, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> None:
        """`record_errors`: for the records that were the reason; the others share `error`."""
        self.error = error
        self.record_errors = record_errors or {}
        self._end()

    def moved(self, pieces: list[tuple[int, Delivery, int]]) -> None:
        """The records are elsewhere now: so many of them each in a delivery, from a place in it on."""
        assert not self.is_done
        start = 0
        moves = []
        for count, target, target_start in pieces:
            moves.append(_Move(start, start + count, target, target_start))
            start += count
        with _callbacks_lock:
            self.moves = moves  # all at once: a thread that looks sees none or all of them
            callbacks, self.callbacks = self.callbacks, []
        for index, callback in callbacks:
            target, target_index = self.find(index)
            target.add_callback(target_index, callback)
        self._wake()

    def _end(self) -> None:
        assert not self.is_done, "a delivery ends once"
        assert not self.moves, "a delivery that moved ends elsewhere"
        with _callbacks_lock:
            self.is_done = True
            callbacks, self.callbacks = self.callbacks, []
        for index, callback in callbacks:
            self._call(index, callback)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    # -- looking -------------------------------------------------------------------------------------------------------

    def find(self, index: int) -> tuple[Delivery, int]:
        """Where a record is now."""
        delivery = self
        while delivery.moves:
            for move in delivery.moves:
                if move.start <= index < move.end:
                    delivery, index = move.target, index - move.start + move.target_start
                    break
            else:
                raise AssertionError("a record that moved is in one of the pieces")
        return delivery, index

    def error_of(self, index: int) -> BaseException | None:
        return self.record_errors.get(index, self.error)

    def metadata_of(self, index: int) -> RecordMetadata:
        timestamp = self.append_time if self.append_time >= 0 else self.timestamps[index]
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp)

    def add_callback(self, index: int, callback: Callback) -> None:
        with _callbacks_lock:
            if not self.is_done and not self.moves:
                self.callbacks.append((index, callback))
                return
        delivery, index = self.find(index)
        if delivery is self:
            self._call(index, callback)
        else:
            delivery.add_callback(index, callback)

    def _call(self, index: int, callback: Callback) -> None:
        error = self.error_of(index)
        try:
            callback(None if error is not None else self.metadata_of(index), error)
        except BaseException as raised:
            # A callback is the user's; the records behind it are not to suffer for it. A program that wants to end
            # does so when they are through; from a thread of ours it cannot be ended.
            is_exit = isinstance(raised, SystemExit | KeyboardInterrupt)
            if not is_exit or threading.current_thread() is not threading.main_thread():
                log.exception("a callback of a record for %s failed", self.partition)
            elif self.worker == threading.get_ident():
                asyncio.get_running_loop().call_soon(_raise, raised)
            else:
                raise

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when it ends or moves; at once, perhaps a second time, where it has already."""
        self._waiters.append(wake)
        if self.is_done or self.moves:
            wake()


def _raise(error: BaseException) -> None:
    raise error


def _wait_in_thread(delivery: Delivery, deadline: float | None) -> bool:
    """Until it ends or moves; whether that was in time."""
    if delivery.worker == threading.get_ident():
        raise UsageError("this thread brings the record to its broker and must not wait for it: await the future")
    woken = threading.Event()
    delivery.add_waiter(woken.set)
    return woken.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


class RecordFuture(codec.RecordPlace):
    """The future of one record: `await` it, or `result()` in a thread without an event loop.

    A place in a delivery and nothing else, which the record core makes with the record.
    """

    __slots__ = ()

    delivery: Delivery
    index: int

    def take_over(self, delivery: Delivery) -> None:
        """Whoever waits for the one record of that delivery waits for this one from now on."""
        delivery.moved([(1, self.delivery, self.index)])

    def done(self) -> bool:
        return self.delivery.find(self.index)[0].is_done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Waits until the record is acknowledged and says where it is, or raises why it is not."""
        delivery, index = self._wait(timeout_s)
        error = delivery.error_of(index)
        if error is not None:
            raise error
        return delivery.metadata_of(index)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        delivery, index = self._wait(timeout_s)
        return delivery.error_of(index)

    def _wait(self, timeout_s: float | None) -> tuple[Delivery, int]:
        deadline = _deadline(timeout_s)
        while True:
            delivery, index = self.delivery.find(self.index)
            if delivery.is_done:
                return delivery, index
            if not _wait_in_thread(delivery, deadline):
                raise TimedOutError(timeout_s or 0.0, None, "waiting for the acknowledgement of a record")

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Calls back with this future, in the order of the records of a partition; at once if it is done."""
        delivery, index = self.delivery.find(self.index)
        if delivery.is_done:
            callback(self)
        else:
            delivery.add_callback(index, lambda metadata, error: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while True:
            delivery, index = self.delivery.find(self.index)
            if delivery.is_done:
                break
            yield from _woken(delivery).__await__()
        error = delivery.error_of(index)
        if error is not None:
            raise error
        return delivery.metadata_of(index)


def _woken(delivery: Delivery) -> asyncio.Future[None]:
    """A future of the running loop that is done when the delivery ends or moves."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def done() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            done()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(done)

    delivery.add_waiter(wake)
    return future


async def settled(delivery: Delivery) -> None:
    """Waits until every record of a delivery, and of those that it moved to, has its outcome."""
    waiting = [delivery]
    while waiting:
        each = waiting[-1]
        if each.moves:
            waiting.pop()
            waiting += [move.target for move in each.moves]
        elif each.is_done:
            waiting.pop()
        else:
            await _woken(each)


def wait_until_settled(deliveries: Iterable[Delivery], timeout_s: float | None) -> bool:
    """The same for several and a thread; whether it was so in time."""
    deadline = _deadline(timeout_s)
    waiting = list(deliveries)
    while waiting:
        each = waiting[-1]
        if each.moves or each.is_done:
            waiting.pop()
            waiting += [move.target for move in each.moves]
        elif not _wait_in_thread(each, deadline):
            return False
    return True
