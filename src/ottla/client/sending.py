"""Batches on their way to brokers: numbered, in order, several at a time.

Every partition with something to send has a lane, a queue in the order in which batches were added. Requests take the
next batch of every lane that a broker leads; up to five are under way to it, and while it works on them the next ones
are encoded. Idempotent batches carry numbers by which the broker keeps their order: of the five last it knows each one
again, and it refuses one whose predecessor is missing. So when something in a lane fails, the lane waits until nothing
of it is under way, and then goes on from its first batch, the same bytes under the same numbers. Without numbers one
batch of a lane is under way at a time.

A batch has its time from its first try on. What cannot be sent ends an idempotent sender: the numbers after it would
never be taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ottla.client.errors import TimedOutError
from ottla.client.metadata import Cluster
from ottla.client.partitioning import Records
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import NO_SEQUENCE, ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import BrokerConnection, ConnectionFailedError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.layout import INT32_MAX

REQUESTS_IN_FLIGHT_MAX: Final = 5  # a broker knows this many batches of a producer again
PRODUCE_BY_NAME_MAX: Final = 12  # the last version that names topics; later ones have ids
ANSWER_SLACK_S: Final = 1.0  # a broker's own limit comes first: it says what was missing
# What the log already has: the answer to the first try was lost, and it has been replaced in its memory since.
ALREADY_APPENDED: Final = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class NotDeliveredError(TimedOutError):
    """The time of a batch is over; `partition` is where it was to go."""

    def __init__(self, partition: TopicPartition, timeout_s: float, cause: OttlaError) -> None:
        super().__init__(timeout_s, cause)
        self.partition = partition

    def __str__(self) -> str:
        return f"{self.partition}: {super().__str__()}"


class Acks(IntEnum):
    """Who must have a batch before the broker answers."""

    NONE = 0
    LEADER = 1
    ALL = -1


@dataclass(frozen=True, slots=True)
class SendingOptions:
    acks: Acks
    is_idempotent: bool
    request_bytes_max: int
    delivery_timeout_s: float  # of one batch, with all its tries
    transactional_id: str | None = None
    version_max: int | None = None  # of Produce


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A batch that a broker took. Without acknowledgement its offset is not known: -1."""

    partition: TopicPartition
    base_offset: int
    record_count: int
    size_bytes: int


class Sending:
    """What was added together, and what became of it."""

    def __init__(self, batch_count: int) -> None:
        self._left = batch_count
        self._appended: list[Acknowledged] = []
        self._done: asyncio.Future[list[Acknowledged]] = asyncio.get_running_loop().create_future()
        self._end_if_done()

    async def appended(self) -> list[Acknowledged]:
        """The batches, once all are acknowledged; the error of the first that was refused."""
        return await asyncio.shield(self._done)

    def take(self, appended: Acknowledged) -> None:
        self._left -= 1
        self._appended.append(appended)
        self._end_if_done()

    def split(self) -> None:
        """One of the batches has become two."""
        self._left += 1

    def fail(self, error: BaseException) -> None:
        if not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # looked at: who does not wait any more needs no complaint

    def _end_if_done(self) -> None:
        if not self._left and not self._done.done():
            self._done.set_result(self._appended)


@dataclass(eq=False, slots=True)
class Batch:
    """Records on their way to a partition. Encoded when first sent, and then the same bytes at every try."""

    partition: TopicPartition
    records: Records
    base_sequence: int
    sending: Sending
    data: bytearray | None = None
    deadline: Deadline | None = None

    def halves(self) -> tuple[Batch, Batch]:
        """This batch, too large for its topic, in two. No number has been used up: it was refused."""
        middle = len(self.records) // 2
        first, second = self.records.slice(0, middle), self.records.slice(middle, len(self.records))
        has_numbers = self.base_sequence != NO_SEQUENCE
        second_sequence = (self.base_sequence + middle) & INT32_MAX if has_numbers else NO_SEQUENCE
        self.sending.split()
        return (
            Batch(self.partition, first, self.base_sequence, self.sending),
            Batch(self.partition, second, second_sequence, self.sending),
        )


@dataclass(eq=False, slots=True)
class _Lane:
    """The batches of a partition that are not acknowledged, in order. Those under way are the first ones."""

    partition: TopicPartition
    pauses: Iterator[float]
    queue: deque[Batch] = field(default_factory=deque)
    under_way: int = 0
    connection: BrokerConnection | None = None  # where they are under way
    is_settling: bool = False  # something failed: nothing is sent until nothing is under way
    trouble: OttlaError | None = None  # what failed, where it may pass with time
    resumes_at: float = 0.0
    leader_id: int = -1


@dataclass(eq=False, slots=True)
class _Channel:
    """The requests under way to one broker. One is written at a time, so that they arrive in order."""

    in_flight: int = 0
    is_writing: bool = False


class Sender:
    """Sends batches until none is left. It has a task of its own while there are any, and needs no closing."""

    def __init__(self, cluster: Cluster, options: SendingOptions, encode: Callable[[Batch], bytearray]) -> None:
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._options = options
        self._encode = encode
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._known: set[TopicPartition] = set()
        self._channels: dict[int, _Channel] = {}
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_running = False

    def add(self, batch: Batch) -> None:
        """Puts a batch behind those of its partition."""
        assert self.failure is None
        if batch.partition not in self._lanes:
            self._lanes[batch.partition] = _Lane(batch.partition, iter(self._cluster.options.pauses))
        self._lanes[batch.partition].queue.append(batch)
        self._moved.set()
        if not self._is_running:
            self._is_running = True
            self._start(self._run())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._end(OttlaError("the sender was stopped"))
        elif (error := task.exception()) is not None:
            self._end(error)  # a mistake of ours: whoever waits is told

    # -- what is next --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Starts requests as long as there is something to send; looks again whenever something moved."""
        try:
            while self._lanes:
                self._moved.clear()
                looked_at = asyncio.get_running_loop().time()
                for node_id in await self._leaders_of_ready_lanes():
                    channel = self._channels.setdefault(node_id, _Channel())
                    if not channel.is_writing and channel.in_flight < REQUESTS_IN_FLIGHT_MAX:
                        channel.is_writing = True
                        self._start(self._send_next(node_id, channel))
                await self._wait_for_change(looked_at)
        finally:
            self._is_running = False

    async def _wait_for_change(self, looked_at: float) -> None:
        """Until something moved, or a pause is over that was not over when the lanes were looked at."""
        resuming = [lane.resumes_at for lane in self._lanes.values() if lane.resumes_at > looked_at]
        try:
            async with asyncio.timeout_at(min(resuming, default=None)):
                await self._moved.wait()
        except TimeoutError:
            return

    def _is_ready(self, lane: _Lane) -> bool:
        # A log that knows nothing of a producer takes any number from it. So the first batch goes alone, as does one
        # after trouble: perhaps the log is another one now.
        batches_max = REQUESTS_IN_FLIGHT_MAX if lane.partition in self._known else 1
        return (
            not lane.is_settling
            and lane.under_way < min(batches_max, len(lane.queue))
            and lane.resumes_at <= asyncio.get_running_loop().time()
        )

    async def _leaders_of_ready_lanes(self) -> list[int]:
        found: dict[int, None] = {}
        for lane in list(self._lanes.values()):
            if not self._is_ready(lane):
                continue
            self._time_left_s(lane.queue[0])  # its time runs from here, also where it has no leader
            try:
                lane.leader_id = (await self._cluster.leader_now(lane.partition)).leader_id
                found[lane.leader_id] = None
            except (ConnectionFailedError, ApiError) as error:
                if self._is_ready(lane):  # still: answers may have come meanwhile
                    self._note(lane, lane.queue[lane.under_way], error)
                    self._go_on(lane)
        return list(found)

    # -- a request -----------------------------------------------------------------------------------------------------

    async def _send_next(self, node_id: int, channel: _Channel) -> None:
        """One request to one broker, from its making to what became of each batch."""
        batches: list[Batch] = []
        channel.in_flight += 1
        try:
            try:
                connection = await self._cluster.leader_connection(node_id)
                batches = self._take(node_id, connection)
                if not batches:
                    return
                outcomes = await self._exchange(connection, channel, batches)
            except (ConnectionFailedError, ApiError) as error:
                self._failed(node_id, batches, error)
                return
            for each, outcome in zip(batches, outcomes, strict=True):
                self._settle(each, outcome)
        finally:
            channel.is_writing = False
            channel.in_flight -= 1
            self._moved.set()

    def _take(self, node_id: int, connection: BrokerConnection) -> list[Batch]:
        """The next batch of every lane that this broker leads, as many as a request holds. They count as under way.

        A lane whose batches are under way elsewhere, to an old leader or on a broken connection, waits for them.
        """
        taken: list[Batch] = []
        room = self._options.request_bytes_max
        for lane in list(self._lanes.values()):
            is_elsewhere = lane.under_way > 0 and lane.connection is not connection
            if lane.leader_id != node_id or is_elsewhere or not self._is_ready(lane):
                continue
            batch = lane.queue[lane.under_way]
            if batch.data is None:
                batch.data = self._encode(batch)
            room -= len(batch.data)
            if taken and room < 0:
                break
            lane.under_way += 1
            lane.connection = connection
            taken.append(batch)
            # To the end, so that the others are first when the next request is filled.
            self._lanes[lane.partition] = self._lanes.pop(lane.partition)
        return taken

    async def _exchange(
        self, connection: BrokerConnection, channel: _Channel, batches: Sequence[Batch]
    ) -> list[Acknowledged | OttlaError]:
        wait_s = min(self._cluster.options.connection.request_timeout_s, *map(self._time_left_s, batches))
        request, version_max = self._request(batches, wait_s)
        if self._options.acks is Acks.NONE:
            await connection.send(request, version_max=version_max)
            return [_appended(each, -1) for each in batches]
        answer = await connection.post(
            request, ProduceResponse, version_max=version_max, timeout_s=wait_s + ANSWER_SLACK_S
        )
        channel.is_writing = False
        self._moved.set()
        answers = _answers(request, await answer)
        return [_outcome(each, answers[each.partition]) for each in batches]

    def _request(self, batches: Sequence[Batch], wait_s: float) -> tuple[ProduceRequest, int | None]:
        topics: dict[str, list[PartitionProduceData]] = {}
        for each in batches:
            assert each.data is not None
            data = PartitionProduceData(index=each.partition.partition, records=memoryview(each.data))
            topics.setdefault(each.partition.topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=self._options.acks,
            timeout_ms=int(wait_s * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self._cluster.known_topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )
        has_ids = all(each.topic_id != ZERO_TOPIC_ID for each in request.topic_data)
        limits = [self._options.version_max, None if has_ids else PRODUCE_BY_NAME_MAX]
        return request, min((limit for limit in limits if limit is not None), default=None)

    # -- what became of it ---------------------------------------------------------------------------------------------

    def _failed(self, node_id: int, batches: Sequence[Batch], error: OttlaError) -> None:
        """A request was not answered, or could not even be made: then all that wait for this broker know of it."""
        for each in batches:
            self._settle(each, error)
        if not batches:
            for lane in [lane for lane in self._lanes.values() if lane.leader_id == node_id and self._is_ready(lane)]:
                self._note(lane, lane.queue[lane.under_way], error)
                self._go_on(lane)

    def _settle(self, batch: Batch, outcome: Acknowledged | OttlaError) -> None:
        lane = self._lanes.get(batch.partition)
        if lane is None:
            return  # the sender has ended meanwhile
        lane.under_way -= 1
        match outcome:
            case Acknowledged():
                lane.queue.remove(batch)
                if self._options.is_idempotent:
                    self._known.add(lane.partition)
                lane.pauses = iter(self._cluster.options.pauses)
                batch.sending.take(outcome)
            case ApiError(code=ErrorCode.MESSAGE_TOO_LARGE) if len(batch.records) > 1:
                lane.is_settling = True
                place = lane.queue.index(batch)
                lane.queue.remove(batch)
                for half in reversed(batch.halves()):
                    lane.queue.insert(place, half)
            case ApiError(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) if batch is not lane.queue[0]:
                lane.is_settling = True  # one before it was not taken, and comes again first
            case _:
                self._note(lane, batch, outcome)
        self._go_on(lane)

    def _note(self, lane: _Lane, batch: Batch, error: OttlaError) -> None:
        """What may pass is tried again, everything else is the end of the batch."""
        if is_passing(error):
            self._cluster.learn_from(error, [lane.partition.topic])
            lane.is_settling, lane.trouble = True, error
            self._known.discard(lane.partition)
        else:
            self._refuse(lane, batch, error)

    def _go_on(self, lane: _Lane) -> None:
        """The lane goes on once nothing of it is under way, after a pause where there was trouble."""
        if lane.under_way:
            return
        lane.is_settling = False
        trouble, lane.trouble = lane.trouble, None
        if trouble is not None and lane.queue:
            pause_s, first = next(lane.pauses), lane.queue[0]
            if pause_s >= self._time_left_s(first):
                timed_out = NotDeliveredError(lane.partition, self._options.delivery_timeout_s, trouble)
                timed_out.__cause__ = trouble
                self._refuse(lane, first, timed_out)
            lane.resumes_at = asyncio.get_running_loop().time() + pause_s
        if not lane.queue:
            self._lanes.pop(lane.partition, None)

    def _refuse(self, lane: _Lane, batch: Batch, error: OttlaError) -> None:
        if self._options.is_idempotent:
            self._end(error)
        else:
            lane.queue.remove(batch)
            batch.sending.fail(error)

    def _end(self, error: BaseException) -> None:
        """Everybody who waits is told; nothing more is taken."""
        self.failure = error
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            while lane.queue:
                lane.queue.pop().sending.fail(error)
        self._moved.set()

    def _time_left_s(self, batch: Batch) -> float:
        if batch.deadline is None:
            batch.deadline = Deadline.after(self._options.delivery_timeout_s)
        return batch.deadline.left_s


def _answers(request: ProduceRequest, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    return {
        TopicPartition(topic.name or names[topic.topic_id], each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }


def _outcome(sent: Batch, answer: PartitionProduceResponse) -> Acknowledged | ApiError:
    message = answer.error_message
    if answer.record_errors:
        first = answer.record_errors[0]
        message = f"record {first.batch_index} of the batch: {first.batch_index_error_message or message}"
    error = error_of(answer.error_code, message, str(sent.partition))
    if error is None or error.code in ALREADY_APPENDED:
        return _appended(sent, answer.base_offset)
    return error


def _appended(sent: Batch, base_offset: int) -> Acknowledged:
    assert sent.data is not None
    return Acknowledged(sent.partition, base_offset, len(sent.records), len(sent.data))
