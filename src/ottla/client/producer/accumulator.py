"""The records that are not acknowledged: a queue of batches for each partition, the last one open for records.

Pure: time, leaders and the order of numbers are arguments. Any thread may append; the sender alone looks for what is
ready, drains and puts back. One lock keeps them apart, and it is never held while anybody waits.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.deliveries import Callback, RecordFuture
from ottla.client.producer.memory import MemoryPool
from ottla.client.producer.partitioners import Sticky
from ottla.client.values import RecordHeaders
from ottla.ids import TopicPartition
from ottla.records import codec
from ottla.records.layout import HEADER_BYTES, INT32_MAX
from ottla.runtime.clock import wall_time_ns

RATIO_MARGIN: Final = 1.05
RATIO_BETTER_STEP: Final = 0.005
RATIO_WORSE_STEP: Final = 0.05
RATIO_LEAST: Final = 0.05  # however well records compress, a batch is not more than twenty of its limit


class Leader(NamedTuple):
    node_id: int
    epoch: int


LeaderOf = Callable[[TopicPartition], Leader | None]


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    batch_size: int
    linger_s: float
    delivery_timeout_s: float
    record_bytes_max: int = INT32_MAX
    is_compressed: bool = False
    is_adaptive: bool = True
    availability_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Nodes with something to take, when to look again, and topics with a partition whose leader is not known."""

    nodes: frozenset[int]
    next_at: float
    leaderless: frozenset[str]


class PartitionQueue:
    __slots__ = ("_open_batches", "batches", "is_muted", "open", "partition")

    def __init__(self, partition: TopicPartition, open_batches: codec.OpenBatches) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None  # the last of them, while it takes records
        self.is_muted = False
        self._open_batches = open_batches

    def begin(self, batch: ProducerBatch) -> None:
        """Opens a batch, which has its first record, for others."""
        self.open = batch
        self._open_batches.open(self.partition.partition, batch.writer)

    def close(self) -> None:
        """No record goes into the open batch any more, on no way and in no thread."""
        if self.open is not None:
            self._open_batches.close(self.partition.partition)
            self.open.close()
            self.open = None


class TopicQueues:
    """The queues of a topic, by partition; how well its records compress; where its keyless records go."""

    __slots__ = ("available", "limit_bytes", "name", "open_batches", "partition_count", "queues", "ratio", "sticky")

    def __init__(self, name: str, sticky: Sticky, record_bytes_max: int, now_ns: Callable[[], int]) -> None:
        self.name = name
        self.partition_count = 0
        self.available: Sequence[int] = ()
        self.queues: list[PartitionQueue] = []
        self.open_batches = codec.OpenBatches(record_bytes_max, now_ns)
        self.sticky = sticky
        self.ratio = 1.0
        self.limit_bytes = 0

    def resize(self, partition_count: int, available: Sequence[int]) -> None:
        """Takes what is known of the topic. Partitions are never fewer than before."""
        for number in range(len(self.queues), partition_count):
            self.queues.append(PartitionQueue(TopicPartition(self.name, number), self.open_batches))
        if partition_count != self.partition_count:
            self.open_batches.resize(partition_count)
        self.partition_count = partition_count
        self.available = available

    def observe(self, ratio: float) -> None:
        """How well a batch compressed: better lowers the estimate slowly, worse raises it at once."""
        if ratio > self.ratio:
            self.ratio = max(self.ratio + RATIO_WORSE_STEP, ratio)
        else:
            self.ratio = max(self.ratio - RATIO_BETTER_STEP, ratio, RATIO_LEAST)


@dataclass(eq=False, slots=True)
class _NodeTimes:
    """When a node last had something to take and when it last took it."""

    ready_at: float = -math.inf
    drained_at: float = -math.inf


@dataclass(eq=False, slots=True)
class _Counts:
    flushes: int = 0
    order: int = 0
    nodes: dict[int, _NodeTimes] = field(default_factory=dict)


class Accumulator:
    def __init__(
        self,
        options: AccumulatorOptions,
        pool: MemoryPool,
        rng: random.Random,
        now_ns: Callable[[], int] = wall_time_ns,
    ) -> None:
        """`now_ns`: for records without a timestamp that are put into an open batch at once."""
        self.options = options
        self.pool = pool
        self.lock = threading.Lock()
        self.topics: dict[str, TopicQueues] = {}
        self.incomplete: dict[ProducerBatch, None] = {}  # every batch that is not done, in order of creation
        self.worker = 0  # the thread that sends
        self.is_closing = False
        self.is_completing_transaction = False
        self.has_news = False  # a batch was begun or filled: the sender should look
        self.is_told = False  # and has been woken for it
        self._rng = rng
        self._now_ns = now_ns
        self._busy: dict[PartitionQueue, None] = {}
        self._order: dict[ProducerBatch, int] = {}  # of batches that were drained once, to put them back in place
        self._counts = _Counts()

    # -- taking records in ---------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicQueues:
        """The queues of a topic; it has no partitions until `resize` gives it some."""
        found = self.topics.get(name)
        if found is None:
            sticky = Sticky(self.options.batch_size, self._rng)
            found = self.topics[name] = TopicQueues(name, sticky, self.options.record_bytes_max, self._now_ns)
            found.limit_bytes = max(1, self.options.batch_size)
        return found

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: RecordHeaders,
        size_bytes: int,
        now: float,
        callback: Callback | None = None,
        reserved_bytes: int = 0,
    ) -> RecordFuture | None:
        """Puts a record into the open batch of its partition, or of the sticky one; None where there is no room.

        `reserved_bytes`: room that the caller has waited for and taken already, for a new batch.
        """
        with self.lock:
            queue = self._sticky_queue(topic, size_bytes) if partition is None else topic.queues[partition]
            batch, future = queue.open, None
            if batch is not None:
                future = batch.append(key, value, timestamp, headers, callback)
                if future is None:
                    self._close_batch(queue)
                elif reserved_bytes:
                    self.pool.give_back(reserved_bytes)  # somebody else began a batch meanwhile
            if batch is None or future is None:
                batch = self._new_batch(topic, queue, size_bytes, now, reserved_bytes)
                if batch is None:
                    return None
                future = batch.append(key, value, timestamp, headers, callback)
                assert future is not None, "the first record of a batch fits"
                self._enter(queue, batch)
                queue.begin(batch)
            if batch.is_full:
                self._close_batch(queue)
            if partition is None:
                topic.sticky.appended(size_bytes)
                topic.open_batches.stick_to(topic.sticky.partition, topic.sticky.bytes_left)
            return future

    def _sticky_queue(self, topic: TopicQueues, size_bytes: int) -> PartitionQueue:
        """The queue that keyless records go to now: another one where the batch of the last one is complete."""
        sticky = topic.sticky
        sticky.appended(topic.open_batches.sticky_bytes)
        topic.open_batches.stick_to(-1, 0)  # until the record is in its place
        queue = topic.queues[sticky.choose(topic.partition_count, topic.available)]
        batch = queue.open
        if batch is None:
            wants_other = sticky.has_produced_a_batch
        else:
            wants_other = batch.size_bytes + size_bytes > batch.limit_bytes or sticky.has_produced_two
        if wants_other:
            if batch is not None:
                self._close_batch(queue)
            sticky.switch(topic.partition_count, topic.available)
            queue = topic.queues[sticky.partition]
        return queue

    def _close_batch(self, queue: PartitionQueue) -> None:
        queue.close()
        self.has_news = True

    def _new_batch(
        self, topic: TopicQueues, queue: PartitionQueue, size_bytes: int, now: float, reserved: int
    ) -> ProducerBatch | None:
        if not reserved:
            reserved = self.room_for(topic, size_bytes)
            if not self.pool.try_take(reserved):
                return None
        deadline = now + self.options.delivery_timeout_s
        return ProducerBatch(queue.partition, topic.limit_bytes, reserved, now, deadline)

    def room_for(self, topic: TopicQueues, size_bytes: int) -> int:
        """The bytes that a new batch for such a record takes."""
        return min(max(topic.limit_bytes, HEADER_BYTES + size_bytes), self.pool.limit_bytes)

    def add(self, batch: ProducerBatch) -> None:
        """Puts a batch that is full already behind the others of its partition. Its room has been taken."""
        with self.lock:
            queue = self.topics[batch.partition.topic].queues[batch.partition.partition]
            queue.close()
            self._enter(queue, batch)

    def next_in_turn(self, name: str) -> int:
        """The partition for a batch without keys that is full already: the one with the least to do, else in turn."""
        with self.lock:
            topic = self.topic(name)
            choices = topic.available or range(topic.partition_count)
            if self.options.is_adaptive:
                lengths = [len(topic.queues[number].batches) for number in choices]
                choices = [number for number, length in zip(choices, lengths, strict=True) if length == min(lengths)]
            return topic.sticky.take_turn(choices)

    def _enter(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.delivery.worker = self.worker
        queue.batches.append(batch)
        self.incomplete[batch] = None
        self._busy[queue] = None
        self.has_news = True

    # -- what is ready -------------------------------------------------------------------------------------------------

    def ready(self, now: float, leader_of: LeaderOf) -> Readiness:
        """Which nodes have something to take at this moment."""
        with self.lock:
            nodes: set[int] = set()
            leaderless: set[str] = set()
            next_at = math.inf
            all_ready = bool(
                self.pool.has_waiters or self._counts.flushes or self.is_closing or self.is_completing_transaction
            )
            for queue in self._busy:
                leader = leader_of(queue.partition)
                if leader is None:
                    leaderless.add(queue.partition.topic)
                    continue
                batch = queue.batches[0]
                if queue.is_muted:
                    continue
                if batch.retry_after > now and leader.epoch <= batch.tried_epoch:
                    next_at = min(next_at, batch.retry_after)
                    continue
                is_due = all_ready or batch.attempts or len(queue.batches) > 1 or queue.open is not batch
                if is_due or batch.created_at + self.options.linger_s <= now:
                    nodes.add(leader.node_id)
                else:
                    next_at = min(next_at, batch.created_at + self.options.linger_s)
            for node_id in nodes:
                self._counts.nodes.setdefault(node_id, _NodeTimes()).ready_at = now
            if self.options.is_adaptive:
                self._weigh(leader_of)
            return Readiness(frozenset(nodes), next_at, frozenset(leaderless))

    def _weigh(self, leader_of: LeaderOf) -> None:
        """Tells the sticky partitions how long the queues are (KIP-794)."""
        for topic in self.topics.values():
            if topic.sticky.partition >= 0 and len(topic.queues) == topic.partition_count > 1:
                lengths = [len(queue.batches) for queue in topic.queues]
                available = [number for number in topic.available if self._is_responsive(topic, number, leader_of)]
                topic.sticky.load(lengths, available)

    def _is_responsive(self, topic: TopicQueues, number: int, leader_of: LeaderOf) -> bool:
        if not self.options.availability_timeout_s:
            return True
        leader = leader_of(TopicPartition(topic.name, number))
        times = None if leader is None else self._counts.nodes.get(leader.node_id)
        return times is None or times.ready_at - times.drained_at <= self.options.availability_timeout_s

    def drain(
        self,
        node_id: int,
        leader_of: LeaderOf,
        request_bytes_max: int,
        now: float,
        may_send: Callable[[ProducerBatch], bool] = lambda batch: True,
        *,
        mutes: bool = False,
    ) -> list[ProducerBatch]:
        """The first batch of every partition that a node leads, as many as a request holds.

        Partitions that gave one go to the end, so that the others are first the next time. `mutes`: a partition that
        gave a batch gives no other until it is unmuted.
        """
        taken: list[ProducerBatch] = []
        size_bytes = 0
        with self.lock:
            for queue in list(self._busy):
                leader = leader_of(queue.partition)
                if leader is None or leader.node_id != node_id or queue.is_muted:
                    continue
                batch = queue.batches[0]
                if (batch.retry_after > now and leader.epoch <= batch.tried_epoch) or not may_send(batch):
                    continue
                if queue.open is batch:
                    queue.close()  # from here on it does not grow
                if taken and size_bytes + batch.size_bytes > request_bytes_max:
                    break
                size_bytes += batch.size_bytes
                self._take(queue, batch, leader)
                queue.is_muted = mutes
                taken.append(batch)
            if taken:
                self._counts.nodes.setdefault(node_id, _NodeTimes()).drained_at = now
        return taken

    def _take(self, queue: PartitionQueue, batch: ProducerBatch, leader: Leader) -> None:
        queue.batches.popleft()
        del self._busy[queue]
        if queue.batches:
            self._busy[queue] = None
        batch.tried_epoch = leader.epoch
        if batch not in self._order:
            self._counts.order += 1
            self._order[batch] = self._counts.order

    # -- what comes back -----------------------------------------------------------------------------------------------

    def _queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        return self.topics[batch.partition.topic].queues[batch.partition.partition]

    def unmute(self, batch: ProducerBatch) -> None:
        with self.lock:
            self._queue_of(batch).is_muted = False

    def put_back(self, batch: ProducerBatch) -> None:
        """In front of what was drained later, or not at all yet."""
        with self.lock:
            self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self._queue_of(batch)
        order = self._order[batch]
        at = 0
        for each in queue.batches:
            if self._order.get(each, math.inf) >= order:
                break
            at += 1
        queue.batches.insert(at, batch)
        self._busy[queue] = None
        self.has_news = True

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Puts the pieces of a batch that was too large in its place; its room is theirs now."""
        with self.lock:
            order = self._order.pop(batch)
            del self.incomplete[batch]
            topic = self.topics[batch.partition.topic]
            topic.ratio = max(1.0, topic.ratio)
            for piece in reversed(pieces):
                piece.delivery.worker = self.worker
                self._order[piece] = order
                self._insert(piece)
            # In front, as their deadlines are.
            self.incomplete = {**dict.fromkeys(pieces), **self.incomplete}

    def done(self, batch: ProducerBatch) -> None:
        """Gives its room back: to the first who waits."""
        with self.lock:
            del self.incomplete[batch]
            self._order.pop(batch, None)
        self.give_back(batch.reserved_bytes)

    def give_back(self, size_bytes: int) -> None:
        with self.lock:
            self.pool.give_back(size_bytes)

    def encoded(self, batch: ProducerBatch) -> None:
        """Learns from the bytes of a batch how well the records of its topic compress."""
        if self.options.is_compressed and batch.data is not None:
            topic = self.topics[batch.partition.topic]
            topic.observe(len(batch.data) / max(1, batch.size_bytes))
            topic.limit_bytes = max(1, int(self.options.batch_size / min(1.0, topic.ratio * RATIO_MARGIN)))

    def expired(self, now: float) -> list[ProducerBatch]:
        """Takes out the queued batches whose time is over."""
        with self.lock:
            return self._remove(lambda batch: batch.deadline <= now)

    def remove_unsent(self) -> list[ProducerBatch]:
        """Takes out every queued batch, as when a transaction is aborted or a producer is closed by force."""
        with self.lock:
            return self._remove(lambda batch: True)

    def _remove(self, is_meant: Callable[[ProducerBatch], bool]) -> list[ProducerBatch]:
        removed: list[ProducerBatch] = []
        for queue in list(self._busy):
            meant = [batch for batch in queue.batches if is_meant(batch)]
            if not meant:
                continue
            removed += meant
            queue.batches = deque(batch for batch in queue.batches if batch not in meant)
            if queue.open in meant:
                queue.close()
            if not queue.batches:
                del self._busy[queue]
        return removed

    @property
    def next_deadline(self) -> float:
        """When the first batch, queued or in flight, expires: they are kept in the order of their deadlines."""
        with self.lock:
            return next((batch.deadline for batch in self.incomplete if not batch.delivery.is_done), math.inf)

    # -- flushing ------------------------------------------------------------------------------------------------------

    def begin_flush(self) -> list[ProducerBatch]:
        """Everything counts as ready until `end_flush`; the batches that are incomplete now."""
        with self.lock:
            self._counts.flushes += 1
            self.has_news = True
            for queue in self._busy:
                queue.close()
            return list(self.incomplete)

    def end_flush(self) -> None:
        with self.lock:
            self._counts.flushes -= 1
