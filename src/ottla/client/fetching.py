"""Records from brokers, a batch at a time.

    async with Fetcher(cluster, {TopicPartition("orders", 0): 0}) as fetcher:
        while not fetcher.is_done:
            for fetched in await fetcher.next():
                work_on(fetched.columns().values)

A `Fetcher` follows partitions from given offsets, to given ends or without end. One request per broker is in flight and
the next one leaves as soon as an answer is there, before its records are handed out: reading and working overlap. What
is held is at most one answer in hand and one on its way per broker. Leaders that move are looked up again; an offset
that the log does not have is an error that says what it has.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.errors import TimedOutError
from ottla.client.leaders import by_topic, learn_leader
from ottla.client.metadata import Cluster
from ottla.client.offsets import Isolation, OffsetSpec, list_offsets
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.client.visibility import Aborted, visible, whole_batches
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.records import batch
from ottla.records.batch import BatchHeader, Columns
from ottla.records.codec import ColumnsDecoder

FETCH_BY_NAME_MAX: Final = 12  # the last version that names topics; later ones have ids
# What a broker answered for each partition, or why it did not.
_Outcome = dict[TopicPartition, PartitionData] | OttlaError

ANSWER_SLACK_S: Final = 10.0  # beyond the time that a broker may wait for records

BYTES_PER_OFFSET: Final = 512.0  # a guess, until an answer shows how large the records of a partition are
SIZE_MARGIN: Final = 1.1  # records differ in size
SIZE_SLACK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class FetchOptions:
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 4 * 1024 * 1024


class FetchedBatch(NamedTuple):
    """One batch, or its part in `[start_offset, end_offset)`. `data` is the answer it lies in: nothing is copied."""

    partition: TopicPartition
    header: BatchHeader
    data: memoryview
    position: int
    start_offset: int
    end_offset: int

    def add_to(self, decoder: ColumnsDecoder) -> None:
        """Adds the records to Arrow columns in the making."""
        header = self.header
        decoder.add(
            batch.records_of(self.data, self.position, header=header),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else None,
            self.start_offset,
            self.end_offset,
        )

    def columns(self) -> Columns:
        """The records column by column."""
        columns = batch.decode(self.data, self.position)
        offsets = columns.offsets
        if not offsets or (offsets[0] >= self.start_offset and offsets[-1] < self.end_offset):
            return columns
        wanted = slice(bisect_left(offsets, self.start_offset), bisect_left(offsets, self.end_offset))
        return Columns(
            offsets[wanted],
            columns.timestamps[wanted],
            columns.keys[wanted],
            columns.values[wanted],
            columns.headers[wanted],
        )


@dataclass(eq=False, slots=True)
class _Progress:
    """How far a partition has been read."""

    position: int
    end: int | None  # the offset to stop before; None: never
    bytes_per_offset: float  # as the last answer had it
    is_asked: bool = False  # a request for it is in flight

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.position >= self.end

    def bytes_wanted(self, bytes_max: int) -> int:
        """How much to ask for: what lies beyond the end would be sent, received and thrown away."""
        if self.end is None:
            return bytes_max
        return min(bytes_max, int((self.end - self.position) * self.bytes_per_offset * SIZE_MARGIN) + SIZE_SLACK_BYTES)


@dataclass(eq=False, slots=True)
class _Trouble:
    """A partition that cannot be read for now: when to try again, and for how long it is tried."""

    deadline: Deadline
    pauses: Iterator[float]
    not_before: float = 0.0


class _Asked(NamedTuple):
    """To which broker a request in flight was sent, and for what."""

    node_id: int
    partitions: list[TopicPartition]


class OffsetOutOfRangeError(ApiError):
    """The log does not have the offset: it was deleted, or not written yet."""

    def __init__(self, partition: TopicPartition, offset: int, start: int, end: int, *, others: int = 0) -> None:
        """`others`: how many partitions more do not have it, and are farther from having it."""
        self.log_start_offset, self.log_end_offset = start, end
        has = f"it has {start} to {end - 1}" if end > start else f"it has no records; the next one will be {end}"
        if others:
            has += f"; {others} more partition{'s do' if others > 1 else ' does'} not have it either"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} does not have offset {offset}: {has}")


class Fetcher:
    """Follows partitions. Close it, or use it as an asynchronous context manager: requests are in flight."""

    def __init__(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int] | None = None,
        options: FetchOptions | None = None,
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
    ) -> None:
        """`bytes_per_offset`: what an earlier fetcher found, so that the first request asks for enough and no more."""
        self.options = options or FetchOptions()
        self._cluster = cluster
        sizes = bytes_per_offset or {}
        # In the order in which they are asked for: the one that has waited longest is first.
        self._progress = {
            partition: _Progress(
                offset, None if end is None else end[partition], sizes.get(partition, BYTES_PER_OFFSET)
            )
            for partition, offset in start.items()
        }
        self._troubles: dict[TopicPartition, _Trouble] = {}
        self._tasks: dict[asyncio.Task[_Outcome], _Asked] = {}
        self._failure: OttlaError | None = None
        self._moved: set[TopicPartition] = set()  # to leaders that an answer named

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_done(self) -> bool:
        """Whether every partition has been read to its end."""
        return self._failure is None and all(progress.is_done for progress in self._progress.values())

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to be fetched of every partition."""
        return {partition: progress.position for partition, progress in self._progress.items()}

    @property
    def bytes_per_offset(self) -> dict[TopicPartition, float]:
        """How large the records of every partition are, by the last answer or by a guess."""
        return {partition: progress.bytes_per_offset for partition, progress in self._progress.items()}

    async def next(self) -> list[FetchedBatch]:
        """The batches of the next answers. None at all means that a broker had no records in `max_wait_ms`."""
        if self._failure is not None:
            raise self._failure
        fetched: list[FetchedBatch] = []
        await self._ask_idle()
        if self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                fetched += await self._take(self._tasks.pop(task).partitions, task.result())
        elif self._troubles:
            await asyncio.sleep(self._pause_s())
        # The next requests travel while the caller works on these records.
        if fetched and self._failure is None:
            await self._ask_idle()
        return fetched

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _ask_idle(self) -> None:
        """A request to every broker that has none in flight and leads a partition that is to be read."""
        busy = {asked.node_id for asked in self._tasks.values()}
        now = asyncio.get_running_loop().time()
        wanted: dict[int, list[TopicPartition]] = {}
        for partition, progress in list(self._progress.items()):
            trouble = self._troubles.get(partition)
            if progress.is_asked or progress.is_done or (trouble is not None and trouble.not_before > now):
                continue
            try:
                leader = await self._cluster.leader_now(partition)
            except (ApiError, ConnectionFailedError) as error:
                self._bear(partition, error)
                continue
            # A second request would only wait behind the first one.
            if leader.leader_id not in busy:
                wanted.setdefault(leader.leader_id, []).append(partition)
        for node_id, partitions in wanted.items():
            for partition in partitions:
                self._progress[partition].is_asked = True
            task = asyncio.get_running_loop().create_task(self._ask(node_id, partitions))
            self._tasks[task] = _Asked(node_id, partitions)

    async def _ask(self, node_id: int, partitions: list[TopicPartition]) -> _Outcome:
        topics = [
            FetchTopic(
                topic=topic,
                topic_id=self._cluster.known_topic_id(topic),
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=progress.position,
                        partition_max_bytes=progress.bytes_wanted(self.options.partition_max_bytes),
                    )
                    for number in numbers
                    for progress in (self._progress[TopicPartition(topic, number)],)
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = FetchRequest(
            max_wait_ms=self.options.max_wait_ms,
            min_bytes=self.options.min_bytes,
            max_bytes=self.options.max_bytes,
            isolation_level=self.options.isolation,
            topics=topics,
        )
        has_ids = all(topic.topic_id != ZERO_TOPIC_ID for topic in topics)
        try:
            connection = await self._cluster.leader_connection(node_id)
            response = await connection.request(
                request,
                FetchResponse,
                version_max=None if has_ids else FETCH_BY_NAME_MAX,
                timeout_s=self.options.max_wait_ms / 1000 + ANSWER_SLACK_S,
            )
        except (ApiError, ConnectionFailedError) as error:
            return error
        if (error_in_all := error_of(response.error_code, None, "Fetch")) is not None:
            return error_in_all
        names = {topic.topic_id: topic.topic for topic in topics}
        found = {
            TopicPartition(topic.topic or names[topic.topic_id], each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }
        for partition, each in found.items():
            if each.error_code and learn_leader(self._cluster, partition, each.current_leader, response.node_endpoints):
                self._moved.add(partition)
        return found

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _take(self, asked: list[TopicPartition], outcome: _Outcome) -> list[FetchedBatch]:
        """Moves positions forward and notes what went wrong."""
        fetched: list[FetchedBatch] = []
        for partition in asked:
            self._progress[partition].is_asked = False
            if isinstance(outcome, OttlaError):
                self._bear(partition, outcome)
            elif partition in outcome:
                fetched += await self._take_partition(partition, outcome[partition])
        return fetched

    async def _take_partition(self, partition: TopicPartition, answer: PartitionData) -> list[FetchedBatch]:
        progress = self._progress[partition]
        error = error_of(answer.error_code, None, str(partition))
        if error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            error = await self._out_of_range(partition, progress.position)
        if error is not None:
            self._bear(partition, error)
            return []
        self._moved.discard(partition)
        self._troubles.pop(partition, None)
        data = answer.records
        if not data:
            return []
        assert isinstance(data, memoryview), "records of an answer are views of its buffer"
        # Who got records waits for the others.
        self._progress[partition] = self._progress.pop(partition)
        return self._batches(partition, progress, data, answer)

    @staticmethod
    def _batches(
        partition: TopicPartition, progress: _Progress, data: memoryview, answer: PartitionData
    ) -> list[FetchedBatch]:
        located = whole_batches(data)
        aborted = [Aborted(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        start = progress.position
        end = located[-1].header.end_offset if located else start
        if located:
            size_bytes = located[-1].position + located[-1].header.size_bytes
            progress.bytes_per_offset = size_bytes / max(1, end - located[0].header.base_offset)
        if progress.end is not None:
            end = min(end, progress.end)
        fetched = [
            FetchedBatch(
                partition,
                header,
                data,
                position,
                start_offset=max(header.base_offset, start),
                end_offset=min(header.end_offset, end),
            )
            for header, position in visible(data, located, aborted)
            if header.end_offset > start and header.base_offset < end
        ]
        # Past the batches that nobody may see, too.
        progress.position = max(start, end)
        return fetched

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _bear(self, partition: TopicPartition, error: OttlaError) -> None:
        """Lets a partition rest for a while, or gives up: at once, or when this has gone on for too long."""
        if partition in self._moved:
            self._moved.discard(partition)  # the answer said where to
        else:
            self._cluster.learn_from(error, [partition.topic])
        trouble = self._troubles.get(partition)
        if trouble is None:
            trouble = _Trouble(self._cluster.deadline(), iter(self._cluster.options.pauses))
            self._troubles[partition] = trouble
        pause_s = next(trouble.pauses)
        trouble.not_before = asyncio.get_running_loop().time() + pause_s
        if not is_passing(error):
            self._failure = self._failure or error
        elif pause_s >= trouble.deadline.left_s:
            self._failure = self._failure or TimedOutError(trouble.deadline.timeout_s, error)

    def _pause_s(self) -> float:
        """Until the first partition in trouble may be tried again."""
        first = min(trouble.not_before for trouble in self._troubles.values())
        return max(0.0, first - asyncio.get_running_loop().time())

    async def _out_of_range(self, partition: TopicPartition, offset: int) -> ApiError:
        start = await list_offsets(self._cluster, {partition: OffsetSpec.EARLIEST})
        end = await list_offsets(self._cluster, {partition: OffsetSpec.LATEST})
        return OffsetOutOfRangeError(partition, offset, start[partition].offset, end[partition].offset)
