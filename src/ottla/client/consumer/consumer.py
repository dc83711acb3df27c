"""The consumer, on asyncio.

    async with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        async for record in consumer:
            ...

One task at a time reads; `wakeup` may be called by others. All that talks to brokers is in the parts, which work in
the background; what concerns the user's records, commits and listeners happens inside `poll` and what is built on it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, overload

from ottla.client.arguments import offset_of, partitions_of, time_of, topics_and_settings
from ottla.client.consumer.assembly import parts_of
from ottla.client.consumer.batches import Batch
from ottla.client.consumer.columns import ArrowTaken, arrow_of, first_of_batches
from ottla.client.consumer.commits import CommitCallback, Commits, as_offsets, offsets_meant
from ottla.client.consumer.cursor import Hold
from ottla.client.consumer.fetched import Records, Taken, by_partition
from ottla.client.consumer.listeners import CallbackListener, RebalanceListener
from ottla.client.consumer.partition_offsets import PartitionOffsets
from ottla.client.consumer.parts import GroupParts
from ottla.client.consumer.poller import Poller, records_limit
from ottla.client.consumer.positions import NO_EPOCH, Position
from ottla.client.consumer.reset import EARLIEST, LATEST
from ottla.client.consumer.subscription import BrokerPattern, Pattern, checked_topics
from ottla.client.errors import ClosedError, ConcurrentUseError, UsageError
from ottla.client.fetching import FetchedBatch
from ottla.client.lifetime import Lifetime, to_the_end
from ottla.client.logs import named
from ottla.client.metrics import MetricName
from ottla.client.retrying import Deadline, retrying
from ottla.client.serializers import Deserializer
from ottla.client.settings import ConsumerSettings
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

Key = TypeVar("Key")
Value = TypeVar("Value")
Found = TypeVar("Found")

LoadsKey = Deserializer[Key] | Callable[[bytes], Key]
LoadsValue = Deserializer[Value] | Callable[[bytes], Value]

DEFAULT_POLL_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 30.0

log = logging.getLogger("ottla.client.consumer")


class Consumer(PartitionOffsets, Generic[Key, Value]):
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
        if key_deserializer is not None:
            keywords["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            keywords["value_deserializer"] = value_deserializer
        given, names = topics_and_settings(topics)
        self.settings = ConsumerSettings.read(given, **keywords)
        rng = rng or random.Random()
        self._lifetime = Lifetime("consumer")
        self._parts = parts_of(self.settings, connector, clock or SystemClock(), rng)
        self._interceptors = self._parts.interceptors
        self._poller = Poller(self._parts)
        self._membership = self._poller.membership
        self._user: asyncio.Task[Any] | None = None  # who polls
        self._is_connected = False
        if names:
            self.subscribe(names)

    @property
    def client_id(self) -> str:
        return self._parts.cluster.options.connection.client_id

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, timeout_s: float | None = None) -> Self:
        """Connects to a broker: who names a wrong address hears it now. Whatever else is called does so, too."""
        await self._connected(self._deadline(timeout_s))
        return self

    async def _connected(self, deadline: Deadline) -> None:
        if not self._is_connected:
            with named(self.client_id):
                await self._parts.cluster.connect(deadline)
            self._begin()

    def _begin(self) -> None:
        if not self._is_connected:
            self._parts.metrics.all.start()
            self._is_connected = True

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self._parts.cluster.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Commits what was read where commits are automatic, leaves the group, ends everything, all in this time."""
        if self._lifetime.close():
            with named(self.client_id):
                await self._leave_and_end(timeout_s)

    async def _leave_and_end(self, timeout_s: float) -> None:
        deadline = Deadline.after(timeout_s)
        parts = self._parts
        self._poller.end()
        try:
            async with asyncio.timeout_at(deadline.at):
                await self._poll_ended()
                if parts.group is not None:
                    if parts.group.auto_commit is not None and self._is_connected:
                        await self._commit_on_close(parts.group.commits, deadline)
                    await parts.group.commits.settle(deadline)
                if self._membership is not None:
                    await self._membership.leave(deadline)
        except TimeoutError:
            log.warning("the consumer could not leave its group in %g s", timeout_s)
        finally:
            await to_the_end(self._end(deadline))

    async def _end(self, deadline: Deadline) -> None:
        await self._poller.stop(deadline)
        await self._parts.cluster.close()
        self._interceptors.close()
        self._parts.metrics.all.close()

    async def _poll_ended(self) -> None:
        """Another task may be in a poll: what that begins would outlive us. A listener that closes is in its own."""
        while self._user not in (None, asyncio.current_task()):
            await self._parts.moved.wait()

    async def _commit_on_close(self, commits: Commits, deadline: Deadline) -> None:
        try:
            await commits.commit(self._poller.uncommitted(), deadline, persists=True)
        except OttlaError as error:
            log.warning("[group %s] the commit on close failed: %s", self.settings.group_id, error)

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._lifetime.check()
        if self._user is not None:
            raise ConcurrentUseError("the consumer is polled already; only wakeup() may be called beside it")
        self._user = asyncio.current_task()
        try:
            with named(self.client_id):
                yield
        finally:
            self._user = None
            self._parts.moved.fire()

    def wakeup(self) -> None:
        """The poll that waits, or the next one, raises WakeupError."""
        self._poller.wake()

    def metrics(self) -> dict[MetricName, float]:
        """Numbers under Kafka's names, as they are now."""
        return self._parts.metrics.all.values()

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
        self._lifetime.check()
        if self._membership is None:
            raise UsageError("subscribe() needs a group_id; assign() reads partitions without a group")
        if sum(given is not None for given in (topics, pattern, broker_pattern)) != 1:
            raise UsageError("subscribe() takes topics, a pattern or a broker_pattern")
        if broker_pattern is not None and self.settings.group_protocol != "consumer":
            raise UsageError("broker_pattern needs group_protocol=consumer; use pattern")
        if listener is not None and (on_assigned or on_revoked or on_lost):
            raise UsageError("give a listener or functions, not both")
        subscription = self._parts.subscription
        if topics is not None:
            subscription.subscribe(checked_topics(topics))
        elif pattern is not None:
            subscription.subscribe(Pattern(re.compile(pattern)))
        else:
            assert broker_pattern is not None
            subscription.subscribe(BrokerPattern(broker_pattern))
        self._parts.listeners.listener = listener or CallbackListener(on_assigned, on_revoked, on_lost)
        self._parts.moved.fire()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, whoever else does. Those that stay keep their position."""
        self._lifetime.check()
        wanted = partitions_of(partitions)
        self._parts.subscription.assign(wanted)
        gone = set(self._parts.positions) - set(wanted)
        self._parts.positions.assign(wanted, asks_group=self._parts.group is not None)
        self._parts.cursor.drop(gone)
        self._poller.topics.note_leaders()
        self._parts.moved.fire()

    async def unsubscribe(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Leaves the group, or gives up what was assigned by hand."""
        self._lifetime.check()
        was_of_group = self._parts.subscription.is_of_group
        self._parts.subscription.unsubscribe()
        if was_of_group and self._membership is not None:
            await self._membership.leave(Deadline.after(timeout_s))
        gone = set(self._parts.positions)
        self._parts.positions.assign((), asks_group=False)
        self._parts.cursor.drop(gone)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._parts.positions)

    def subscription(self) -> frozenset[str]:
        """The topics that are shared with the group."""
        return self._parts.subscription.topics if self._parts.subscription.is_of_group else frozenset()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Key, Value]]]:
        """Records by partition, as soon as there are some; none where there are none in this time."""
        limit = records_limit(max_records, self.settings.max_poll_records)
        by_partition: dict[TopicPartition, list[ConsumerRecord[Key, Value]]] = {}
        for taken in await self._poll(timeout_s, lambda: self._take(limit)) or ():
            by_partition.setdefault(taken.partition, []).extend(taken.records)
        return by_partition

    async def take(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """The same as `poll`, as one list: those of a partition are in order."""
        limit = records_limit(max_records, self.settings.max_poll_records)
        return await self._poll(timeout_s, lambda: self._take_records(limit)) or []

    async def take_some(self, timeout_s: float, limit: Callable[[], int]) -> list[ConsumerRecord[Key, Value]]:
        """The same; how many may be taken is asked for whenever there are some."""
        return await self._poll(timeout_s, lambda: self._take_records(limit())) or []

    def look_again(self) -> None:
        """Whoever waits for records asks again how many may be taken."""
        self._parts.moved.fire()

    @contextmanager
    def holding(self, hold: Hold) -> Iterator[None]:
        """What `hold` has taken counts as read when it says so."""
        self._parts.cursor.hold = hold
        try:
            yield
        finally:
            self._parts.cursor.hold = None

    async def process(
        self,
        handler: Callable[[ConsumerRecord[Key, Value]], Any],
        *,
        concurrency: int = 16,
        order: Literal["key", "partition", "none"] = "key",
    ) -> None:
        """Handles records side by side until `wakeup`; see `processing`. A failure of a handler ends it."""
        from ottla.client.consumer.processing import process

        await process(self, handler, concurrency, order)

    def _take(self, limit: int) -> list[Taken]:
        """What is here, by partition; positions that only moved are left out."""
        if self._parts.cursor.unread_count:  # of an iteration that was left
            return by_partition(self._parts.cursor.take(limit))
        found = self._poller.fetcher.take(limit)
        if self._interceptors:
            found = [taken._replace(records=self._interceptors.on_consume(taken.records)) for taken in found]
        return [taken for taken in found if taken.records]

    def _take_records(self, limit: int) -> Records:
        taken = self._take(limit)
        if len(taken) == 1:
            return taken[0].records
        return [record for each in taken for record in each.records]

    async def fill(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> Iterator[ConsumerRecord[Key, Value]]:
        """Records to be given out one by one: they count as read when the iterator has given them out."""
        cursor = self._parts.cursor
        if not cursor.unread_count:
            limit = records_limit(max_records, self.settings.max_poll_records)
            return cursor.fill(await self._poll(timeout_s, lambda: self._take_records(limit)) or [])
        return cursor.iterator

    async def take_of_one(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Records of one partition. Those of others that came with them are not read before they are taken, too."""
        await self.fill(timeout_s, max_records)
        return self._parts.cursor.take_of_one()

    def put_back(self, first: Mapping[TopicPartition, Position]) -> None:
        """Records that were taken and never seen are read again, from the first of each partition on."""
        here = {partition: position for partition, position in first.items() if partition in self._parts.positions}
        for partition, position in here.items():
            self._parts.positions.state(partition).seek(position)
        self._sought(here)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[Key, Value]]:
        await self.start()
        with suppress(ClosedError):  # by another task: there are no more
            while True:
                for record in await self.fill():
                    yield record

    async def batches(
        self, max_records: int | None = None, max_wait_s: float = DEFAULT_POLL_S
    ) -> AsyncIterator[Batch[Key, Value]]:
        """Records of one partition at a time, each with `commit()`."""
        await self.start()
        with suppress(ClosedError):
            while True:
                if records := await self.take_of_one(max_wait_s, max_records):
                    yield Batch(records[0].topic_partition, records, self)

    async def poll_arrow(self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None) -> pa.RecordBatch:
        """Records as Arrow columns, those of Spark's Kafka source; none becomes a Python object.

        `max_records` is rounded up to whole batches of the log.
        """
        return (await self.take_arrow(timeout_s, max_records)).rows

    async def take_arrow(self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None) -> ArrowTaken:
        """The same, with where it begins."""
        batches = await self.take_batches(timeout_s, max_records)
        first = first_of_batches(batches)
        try:
            return ArrowTaken(arrow_of(batches), first)
        except BaseException:
            self.put_back(first)
            raise

    async def take_batches(
        self, timeout_s: float = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[FetchedBatch]:
        """Whole batches of the log, of which each decodes its records into columns; deserializers have no part in it.

        `max_records` is rounded up to whole batches.
        """
        if self._parts.cursor.unread_count:
            raise UsageError("an iteration has records that were not seen yet; finish it, or seek")
        limit = records_limit(max_records, self.settings.max_poll_records)
        return await self._poll(timeout_s, lambda: self._poller.fetcher.take_batches(limit)) or []

    async def _poll(self, timeout_s: float, take: Callable[[], Found]) -> Found | None:
        with self._used():
            self._begin()  # brokers that cannot be reached are looked for in the background, as long as it is polled
            return await self._poller.poll(timeout_s, take)

    # -- commits -------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        what: Mapping[TopicPartition, OffsetAndMetadata | int]
        | ConsumerRecord[Key, Value]
        | Iterable[ConsumerRecord[Key, Value]]
        | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commits all that was read, offsets, or a record or records as the last that are done."""
        group = self._group("commit()")
        deadline = Deadline.after(self.settings.default_api_timeout_s if timeout_s is None else timeout_s)
        await group.commits.settle(deadline)
        await group.commits.commit(self._offsets(what), deadline)

    def commit_async(
        self,
        what: Mapping[TopicPartition, OffsetAndMetadata | int]
        | ConsumerRecord[Key, Value]
        | Iterable[ConsumerRecord[Key, Value]]
        | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commits in the background, once. Callbacks are called in order, from a later poll, commit or close."""
        self._group("commit_async()").commits.start(self._offsets(what), callback)

    def _offsets(self, what: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        return as_offsets(self._parts.consumed()) if what is None else offsets_meant(what)

    def _group(self, what: str) -> GroupParts:
        self._lifetime.check()
        if self._parts.group is None:
            raise UsageError(f"{what} needs a group_id")
        return self._parts.group

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        group = self._group("committed()")
        deadline = self._deadline(timeout_s)
        partitions = partitions_of(partitions)
        found = await retrying(
            lambda: group.commits.fetch(partitions, min(deadline.left_s, self.settings.request_timeout_s)),
            deadline,
            self._parts.pauses,
        )
        return {partition: found.get(partition) for partition in partitions}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group: what a transaction needs to commit offsets for it."""
        self._group("group_metadata()")
        assert self._membership is not None, "a group has members"
        return self._membership.metadata()

    def enforce_rebalance(self, reason: str = "asked for by the user") -> None:
        """Joins again with the next poll; without effect where the coordinator assigns."""
        self._group("enforce_rebalance()")
        assert self._membership is not None, "a group has members"
        self._membership.enforce_rebalance(reason)

    # -- positions -----------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """The next record of a partition is that at `offset`, or the first one behind it."""
        self._lifetime.check()
        wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        offset_of(wanted.offset)
        epoch = NO_EPOCH if wanted.leader_epoch is None else wanted.leader_epoch
        self._parts.positions.state(partition).seek(Position(wanted.offset, epoch))
        self._sought([partition])
        log.info("%s goes on at offset %d: sought", partition, wanted.offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """To the first record that there is, of these partitions or of all."""
        partitions = tuple(partitions_of(partitions))
        for partition in partitions or list(self._parts.positions):
            self._parts.positions.state(partition).await_reset(EARLIEST)
        self._sought(partitions or self._parts.positions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Behind the last record, of these partitions or of all."""
        partitions = tuple(partitions_of(partitions))
        for partition in partitions or list(self._parts.positions):
            self._parts.positions.state(partition).await_reset(LATEST)
        self._sought(partitions or self._parts.positions)

    async def seek_to_committed(self, *partitions: TopicPartition, timeout_s: float | None = None) -> None:
        """Back to what the group committed, of these partitions or of all; those without a commit stay."""
        for partition, found in (await self.committed(partitions or list(self._parts.positions), timeout_s)).items():
            if found is not None:
                self.seek(partition, found)

    async def seek_to_time(
        self, when: datetime | int, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> None:
        """To the first record at or after a time, a datetime or milliseconds; to the end where there is none."""
        timestamp = time_of(when)
        wanted = partitions_of(partitions) or tuple(self._parts.positions)
        for partition, found in (await self.offsets_for_times(dict.fromkeys(wanted, timestamp), timeout_s)).items():
            if found is None:
                self.seek_to_end(partition)
            else:
                self.seek(partition, found.offset)

    def _sought(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._poller.fetcher.drop(gone)
        self._parts.cursor.drop(gone)
        self._poller.topics.note_leaders()
        self._parts.moved.fire()

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record to be read; waits until it is known."""
        deadline = self._deadline(timeout_s)
        await self._connected(deadline)
        return await self._poller.position(partition, deadline)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands nothing out of these until they are resumed; what is there is kept."""
        partitions = tuple(partitions_of(partitions))
        # What an iteration has ahead is not given out either: it is read again when the partition is resumed.
        for partition, position in self._parts.cursor.put_back(partitions).items():
            self._parts.positions.state(partition).seek(position)
            self._poller.fetcher.drop([partition])
        for partition in partitions:
            self._parts.positions.state(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Hands out what these have, after a pause."""
        for partition in partitions_of(partitions):
            self._parts.positions.state(partition).is_paused = False
        self._parts.moved.fire()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is handed out."""
        return frozenset(partition for partition, state in self._parts.positions.items() if state.is_paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records are left to be read, as of the last fetch; None before the first."""
        left = self._parts.positions.lag(partition, committed_only=self._is_read_committed)
        if left is None:
            return None
        return left + sum(record.topic_partition == partition for record in self._parts.cursor.unread())

    def _deadline(self, timeout_s: float | None) -> Deadline:
        self._lifetime.check()
        return Deadline.after(self.settings.default_api_timeout_s if timeout_s is None else timeout_s)
