"""Brings batches to their leaders: a task that looks for what is ready, and a task for each request in flight.

Who may be sent to, in what order and under which numbers is decided by the accumulator and the sequences; here are
connections, requests, answers and time. A batch that fails for a reason that may pass is put back and tried again until
its time is over. The sender never waits for one node while another could be served.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.error_codes import InvalidRecordError, error_of_code
from ottla.client.errors import ClosedError, DeliveryTimeoutError, TransactionAbortedError
from ottla.client.leaders import Endpoint, learn_leader
from ottla.client.metadata import Cluster
from ottla.client.producer.accumulator import Accumulator, Leader
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.producer_metrics import ProducerMetrics
from ottla.client.producer.sequences import Identity, Remedy, Sequences
from ottla.client.refreshing import Refresher
from ottla.client.retrying import JITTER, error_of
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import BrokerConnection, ConnectionFailedError, RequestTimedOutError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records.layout import INT32_MAX, Compression

PRODUCE_BY_NAME_MAX: Final = 12  # the last version that names topics; later ones have ids
PRODUCE_BEFORE_TV2_MAX: Final = 11  # later ones add partitions to transactions by themselves (KIP-890)
ANSWER_SLACK_S: Final = 1.0  # a broker's own limit comes first: it says what was missing
REQUEST_OVERHEAD_BYTES: Final = 1024

log = logging.getLogger("ottla.client.producer")


@dataclass(frozen=True, slots=True)
class SenderOptions:
    acks: int
    request_timeout_s: float
    request_bytes_max: int
    in_flight_max: int
    mutes: bool  # one batch of a partition in flight at a time: without numbers only that keeps their order
    retries: int
    retry_backoff_s: float
    retry_backoff_max_s: float
    reconnect_backoff_s: float
    reconnect_backoff_max_s: float
    batch_size: int
    compression: Compression
    compression_level: int | None
    transactional_id: str | None = None


class TransactionView:
    """What the sender has to know of transactions; this one is for producers without."""

    is_transactional = False
    uses_implicit_partitions = False

    def may_send(self, partition: TopicPartition) -> bool:
        return True

    def produce_failed(self, error: OttlaError) -> None: ...

    @property
    def error(self) -> BaseException | None:
        """Why nothing may be sent any more in the transaction, or sent again."""
        return None

    async def close(self) -> None:
        """Ends what is in flight."""


@dataclass(eq=False, slots=True)
class _Channel:
    """The way to one broker. One request is written at a time, so that they arrive in order."""

    connection: BrokerConnection | None = None
    in_flight: int = 0
    is_connecting: bool = False
    is_writing: bool = False
    failures: int = 0
    trouble: OttlaError | None = None  # why there is no connection
    resumes_at: float = 0.0
    throttled_until: float = 0.0
    batches: set[ProducerBatch] = field(default_factory=set)


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        sequences: Sequences | None,
        refresher: Refresher,
        options: SenderOptions,
        rng: random.Random,
        transaction: TransactionView,
        metrics: ProducerMetrics,
    ) -> None:
        self.failure: BaseException | None = None  # fatal: the producer is of no use any more
        self._cluster = cluster
        self._accumulator = accumulator
        self._sequences = sequences
        self._refresher = refresher
        self._options = options
        self._rng = rng
        self._transaction = transaction
        self._metrics = metrics
        self._channels: dict[int, _Channel] = {}
        self._aside: set[ProducerBatch] = set()  # in no queue and not on the wire: see `Sequences`
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._is_identifying = False

    def wake(self) -> None:
        """Something changed: look again. On the loop's thread only."""
        self._moved.set()

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._moved.clear()
                self._accumulator.has_news = self._accumulator.is_told = False
                now = loop.time()
                self._expire(now)
                self._identify()
                next_at = self._send_ready(now)
                await self._wait(min(next_at, self._accumulator.next_deadline))
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, until: float) -> None:
        if self._accumulator.has_news:  # a thread appended while we looked
            return
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                await self._moved.wait()
        except TimeoutError:
            return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail_all(error)  # a bug of ours: every record that waits fails with it

    # -- what is next --------------------------------------------------------------------------------------------------

    def leader_of(self, partition: TopicPartition) -> Leader | None:
        known = self._cluster.known_partition(partition)
        return None if known is None or known.leader_id < 0 else Leader(known.leader_id, known.leader_epoch)

    def _send_ready(self, now: float) -> float:
        """Starts what can be started; when to look again if nothing happens."""
        if self._sequences is not None:
            self._settle_aside(self._sequences)
            torn = self._sequences.resolve()
            if torn:
                self._transaction.produce_failed(
                    DeliveryTimeoutError(0.0, None, f"records of {torn[0]} may be missing from the transaction")
                )
        if (cause := self._transaction.error) is not None:
            self.fail_unsent(lambda: _never_sent(cause))
        readiness = self._accumulator.ready(now, self.leader_of)
        for topic in readiness.leaderless:
            self._refresher.use(topic)
        if readiness.leaderless:
            self._refresher.stale()
        next_at = readiness.next_at
        for node_id in readiness.nodes:
            next_at = min(next_at, self._serve(node_id, now))
        return next_at

    def _settle_aside(self, sequences: Sequences) -> None:
        """Ends or sends again what was set aside until it is known whether it is in the log."""
        for batch in sequences.take_proven():
            self._aside.discard(batch)
            if not batch.delivery.is_done:
                batch.delivery.acknowledged(-1)
            self._accumulator.done(batch)
        for batch in sequences.take_back():
            self._aside.discard(batch)
            self._accumulator.put_back(batch)

    def _serve(self, node_id: int, now: float) -> float:
        channel = self._channels.setdefault(node_id, _Channel())
        not_before = max(channel.resumes_at, channel.throttled_until)
        if not_before > now:
            return not_before
        if channel.is_writing or channel.is_connecting or channel.in_flight >= self._options.in_flight_max:
            return math.inf
        if channel.connection is None or channel.connection.is_closed:
            channel.is_connecting = True
            self._start(self._connect(node_id, channel))
            return math.inf
        batches = self._accumulator.drain(
            node_id,
            self.leader_of,
            self._options.request_bytes_max - REQUEST_OVERHEAD_BYTES,
            now,
            self._may_send,
            mutes=self._options.mutes,
        )
        if batches:
            for batch in batches:
                if self._sequences is not None:
                    self._sequences.sent(batch)
            channel.is_writing = True
            channel.in_flight += 1
            self._start(self._send(channel, channel.connection, batches))
        return math.inf

    def _may_send(self, batch: ProducerBatch) -> bool:
        if not self._transaction.may_send(batch.partition):
            return False
        return self._sequences is None or self._sequences.may_send(batch)

    async def _connect(self, node_id: int, channel: _Channel) -> None:
        try:
            channel.connection = await self._cluster.connection(node_id)
            channel.failures, channel.trouble = 0, None
        except (ConnectionFailedError, ApiError) as error:
            pause_s = self._backoff_s(
                channel.failures, self._options.reconnect_backoff_s, self._options.reconnect_backoff_max_s
            )
            channel.failures += 1
            channel.trouble = error
            channel.resumes_at = asyncio.get_running_loop().time() + pause_s
            self._refresher.stale()
        finally:
            channel.is_connecting = False
            self.wake()

    def _backoff_s(self, failures: int, first_s: float, max_s: float) -> float:
        pause_s: float = min(first_s * 2 ** min(failures, 30), max_s)
        return pause_s * self._rng.uniform(1 - JITTER, 1 + JITTER)

    # -- a request -----------------------------------------------------------------------------------------------------

    async def _send(self, channel: _Channel, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        """One request, from its making to what became of each batch."""
        sent = self._encode(batches)
        if sent:
            await self._exchange(channel, connection, sent)
        else:
            self._returned(channel, ())

    def _encode(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Makes the bytes of each batch; columns that are no records fail alone, and are left out."""
        encoded: list[ProducerBatch] = []
        for batch in batches:
            is_new = batch.data is None
            try:
                batch.encode(
                    self._options.compression, self._options.compression_level, self._transaction.is_transactional
                )
            except Exception as error:
                self._off_the_wire(batch)
                self._fail(batch, error if isinstance(error, OttlaError) else _not_a_record(error))
                continue
            if is_new:
                self._accumulator.encoded(batch)
            encoded.append(batch)
        return encoded

    async def _exchange(self, channel: _Channel, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        channel.batches.update(batches)
        outcome: ProduceResponse | OttlaError | None = None
        request = None
        sent_at = asyncio.get_running_loop().time()
        try:
            request, version_max = self._request(batches)
            self._metrics.sent(batches, sent_at)
            if self._options.acks == 0:
                await connection.send(request, version_max=version_max)
            else:
                answer = await connection.post(
                    request,
                    ProduceResponse,
                    version_max=version_max,
                    timeout_s=self._options.request_timeout_s + ANSWER_SLACK_S,
                )
                channel.is_writing = False
                self.wake()
                outcome = await answer
                now = asyncio.get_running_loop().time()
                self._metrics.answered(sent_at, now, outcome.throttle_time_ms)
        except (ConnectionFailedError, ApiError) as error:
            outcome = error
        finally:
            self._returned(channel, batches)
        assert request is not None
        self._settle_all(channel, request, batches, outcome)

    def _returned(self, channel: _Channel, batches: Sequence[ProducerBatch]) -> None:
        """The request is over, well or not."""
        channel.is_writing = False
        channel.in_flight -= 1
        channel.batches.difference_update(batches)
        self.wake()
        for batch in batches:
            self._off_the_wire(batch)

    def _off_the_wire(self, batch: ProducerBatch) -> None:
        """Nothing of the batch is on the wire: others of its partition may follow."""
        if self._sequences is not None:
            self._sequences.returned(batch)
        if self._options.mutes:
            self._accumulator.unmute(batch)

    def _request(self, batches: Sequence[ProducerBatch]) -> tuple[ProduceRequest, int | None]:
        topics: dict[str, list[PartitionProduceData]] = {}
        is_transactional = self._transaction.is_transactional
        for batch in batches:
            assert batch.data is not None, "encoded before"
            entry = PartitionProduceData(index=batch.partition.partition, records=memoryview(batch.data))
            topics.setdefault(batch.partition.topic, []).append(entry)
        for name in topics:
            self._refresher.use(name)
        request = ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=self._options.acks,
            timeout_ms=int(self._options.request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self._cluster.known_topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )
        if is_transactional and not self._transaction.uses_implicit_partitions:
            return request, PRODUCE_BEFORE_TV2_MAX
        has_ids = all(each.topic_id != ZERO_TOPIC_ID for each in request.topic_data)
        return request, None if has_ids else PRODUCE_BY_NAME_MAX

    # -- what became of it ---------------------------------------------------------------------------------------------

    def _settle_all(
        self,
        channel: _Channel,
        request: ProduceRequest,
        batches: Sequence[ProducerBatch],
        outcome: ProduceResponse | OttlaError | None,
    ) -> None:
        if outcome is None:  # acks=0: written is all that is known
            for batch in batches:
                self._acknowledged(batch, -1, -1)
        elif isinstance(outcome, OttlaError):
            self._lost(batches, outcome)
        else:
            if outcome.throttle_time_ms:
                now = asyncio.get_running_loop().time()
                channel.throttled_until = now + outcome.throttle_time_ms / 1000
            answers = _answers(request, outcome)
            for batch in batches:
                answer = answers.get(batch.partition)
                if answer is None:
                    self._refused(batch, error_of_code(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves it out"))
                else:
                    self._settle(batch, answer, outcome.node_endpoints)

    def _lost(self, batches: Sequence[ProducerBatch], error: OttlaError) -> None:
        """The request was not answered: nobody knows whether it was carried out."""
        self._refresher.stale()
        if isinstance(error, ApiError):
            passing = error  # the broker lacks the API: it says so, and was not asked
        else:
            is_late = isinstance(error, RequestTimedOutError)
            code = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NETWORK_EXCEPTION
            passing = error_of_code(code, str(error))
            passing.__cause__ = error
        for batch in batches:
            self._refused(batch, passing, is_in_log_perhaps=not isinstance(error, ApiError))

    def _settle(self, batch: ProducerBatch, answer: PartitionProduceResponse, endpoints: Sequence[Endpoint]) -> None:
        error = error_of(answer.error_code, answer.error_message, str(batch.partition))
        if error is None or error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledged(batch, answer.base_offset, answer.log_append_time_ms)
            return
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.delivery.is_done:
            self._split(batch)
            return
        if error.code.refresh_metadata and not learn_leader(
            self._cluster, batch.partition, answer.current_leader, endpoints
        ):
            self._refresher.stale()
        record_errors = {
            each.batch_index: InvalidRecordError(each.batch_index_error_message or str(error))
            for each in answer.record_errors
        }
        self._refused(batch, error, answer.log_start_offset, record_errors)

    def _acknowledged(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        if self._sequences is not None:
            self._sequences.acked(batch, base_offset)
        if not batch.delivery.is_done:  # else its time was over before
            batch.delivery.acknowledged(base_offset, append_time)
        self._accumulator.done(batch)

    def _split(self, batch: ProducerBatch) -> None:
        pieces = batch.split(self._options.batch_size)
        self._metrics.split(asyncio.get_running_loop().time())
        log.info(
            "%s: a batch of %d bytes is too large and is sent in %d", batch.partition, batch.size_bytes, len(pieces)
        )
        if self._sequences is not None:
            self._sequences.split(batch, pieces)
        self._accumulator.replace(batch, pieces)

    def _refused(
        self,
        batch: ProducerBatch,
        error: ApiError,
        log_start_offset: int = -1,
        record_errors: dict[int, InvalidRecordError] | None = None,
        *,
        is_in_log_perhaps: bool = False,
    ) -> None:
        if self._sequences is not None:
            remedy = self._sequences.failed(batch, error.code, log_start_offset)
        else:
            remedy = Remedy.RETRY if error.code.retriable else Remedy.FAIL
        now = asyncio.get_running_loop().time()
        may_retry = (
            remedy is not Remedy.FAIL
            and batch.attempts < self._options.retries
            and not batch.delivery.is_done
            and self._transaction.error is None
            and self.failure is None
        )
        batch.is_in_log_perhaps |= is_in_log_perhaps
        batch.trouble = error
        if may_retry and remedy is Remedy.SET_ASIDE:
            self._aside.add(batch)
        elif may_retry:
            pause_s = self._backoff_s(batch.attempts, self._options.retry_backoff_s, self._options.retry_backoff_max_s)
            batch.attempts += 1
            batch.retry_after = now + pause_s
            self._metrics.retried(batch, now)
            log.debug("%s: %s; tried again in %.3f s", batch.partition, error, pause_s)
            self._accumulator.put_back(batch)
        else:
            self._fail(batch, error, record_errors, is_in_log_perhaps=is_in_log_perhaps)

    def _fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        record_errors: dict[int, InvalidRecordError] | None = None,
        *,
        is_in_log_perhaps: bool = False,
    ) -> None:
        if self._sequences is not None:
            self._sequences.gave_up(batch, is_in_log_perhaps=is_in_log_perhaps)
        if not batch.delivery.is_done:
            self._metrics.failed(batch, asyncio.get_running_loop().time())
            batch.delivery.failed(error, record_errors)
            if isinstance(error, OttlaError):
                self._transaction.produce_failed(error)
        self._accumulator.done(batch)

    def _expire(self, now: float) -> None:
        """Ends what had its time: in the queue for good, on the wire as far as its caller is concerned."""
        if self._accumulator.next_deadline > now:
            return
        for batch in self._accumulator.expired(now):
            self._fail(batch, self._too_late(batch), is_in_log_perhaps=batch.attempts > 0)
        for under_way in [*(channel.batches for channel in self._channels.values()), self._aside]:
            for batch in under_way:
                if batch.deadline <= now and not batch.delivery.is_done:
                    error = self._too_late(batch)
                    self._metrics.failed(batch, now)
                    batch.deadline = math.inf  # its answer, or the lack of one, ends the rest
                    batch.delivery.failed(error)
                    self._transaction.produce_failed(error)

    def _too_late(self, batch: ProducerBatch) -> DeliveryTimeoutError:
        """With what was in the way: the answer to the last try, the connection to its leader, or metadata."""
        leader = self.leader_of(batch.partition)
        channel = None if leader is None else self._channels.get(leader.node_id)
        cause = batch.trouble or (None if channel is None else channel.trouble) or self._refresher.failure
        what = f"{batch.partition}: {batch.record_count} records"
        error = DeliveryTimeoutError(self._accumulator.options.delivery_timeout_s, cause, what)
        error.__cause__ = cause
        return error

    def fail_unsent(self, error: Callable[[], OttlaError]) -> None:
        """Ends what is queued: its transaction is aborted, or the producer is closed."""
        for batch in self._accumulator.remove_unsent():
            self._fail(batch, error(), is_in_log_perhaps=batch.attempts > 0)

    def fail_all(self, error: BaseException) -> None:
        """Ends everything, queued or on the wire; nothing can be sent from now on."""
        self.failure = self.failure or error
        unsent = self._accumulator.remove_unsent()  # first: a batch that ends must not be open for records
        for batch in list(self._accumulator.incomplete):
            if not batch.delivery.is_done:
                batch.delivery.failed(error)
        for batch in unsent:
            self._accumulator.done(batch)
        self.wake()

    async def close(self) -> None:
        """Ends what is left after `run` was cancelled."""
        self._accumulator.remove_unsent()  # first: a batch that ends must not be open for records
        for batch in list(self._accumulator.incomplete):
            if not batch.delivery.is_done:
                batch.delivery.failed(ClosedError("the producer was closed before the record was acknowledged"))
        for batch in list(self._accumulator.incomplete):
            self._accumulator.done(batch)

    # -- who we are ----------------------------------------------------------------------------------------------------

    def _identify(self) -> None:
        """Asks for a producer id where there is none: a transactional producer has its own way."""
        if (
            self._sequences is None
            or self._sequences.identity is not None
            or self._transaction.is_transactional
            or self._is_identifying
            or self.failure is not None
        ):
            return
        self._is_identifying = True
        self._start(self._ask_for_identity())

    async def _ask_for_identity(self) -> None:
        failures = 0
        assert self._sequences is not None
        while self._sequences.identity is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
            try:
                connection = await self._cluster.any_connection()
                response = await connection.request(request, InitProducerIdResponse)
                error: OttlaError | None = error_of(response.error_code, None, "a producer id")
            except (ConnectionFailedError, ApiError) as failure:
                error = failure
            if error is None:
                self._sequences.start(Identity(response.producer_id, response.producer_epoch))
                break
            if isinstance(error, ApiError) and not error.code.retriable:
                self.fail_all(error)
                break
            await asyncio.sleep(
                self._backoff_s(failures, self._options.retry_backoff_s, self._options.retry_backoff_max_s)
            )
            failures += 1
        self._is_identifying = False
        self.wake()


def _not_a_record(cause: Exception) -> InvalidRecordError:
    error = InvalidRecordError(f"a record cannot be encoded: {cause}")
    error.__cause__ = cause
    return error


def _never_sent(cause: BaseException) -> TransactionAbortedError:
    if isinstance(cause, TransactionAbortedError):
        return cause
    error = TransactionAbortedError(f"the transaction ended before the record was sent: {cause}")
    error.__cause__ = cause
    return error


def _answers(request: ProduceRequest, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }
