"""A producer's next request, which differs from its last in correlation id and records only.

Clients send one partition per Produce request, again and again: between the correlation id and the records stand the
same bytes every time. The first such request of a connection goes the general way, and what it came to is remembered
under those bytes: the partition, and the answer around its three offsets. A request with the same bytes skips decoding,
lookup and encoding; everything that decides about records is still asked, in `Partition.append`. Whatever is not just
as remembered goes the general way again. But what was appended or refused here has been judged: an append stamps the
bytes where they stand, so they are no longer what was sent, and nobody may look at them a second time.

With acks=all the answer is made at once and sent when the in-sync replicas have the records; no task is needed for
that. A producer that sends more meanwhile is not kept waiting: repeated requests behind one that waits are taken as
well, so that the followers fetch the records of all of them together, and answers leave in the order of the requests.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.commits import PendingAcknowledgement
from ottla.broker.partition import ALL_REPLICAS, Partition
from ottla.broker.produce_refusals import refuse
from ottla.broker.refused_starts import FOR_NOW, BatchStart, Place, start_of
from ottla.broker.repeated import LateAnswer
from ottla.broker.session import Session
from ottla.compiled import is_pure_python_asked_for
from ottla.errors import ApiError, ErrorCode
from ottla.net.connection import Connection
from ottla.net.outbox import Part
from ottla.protocol.codec import encode
from ottla.protocol.frames import framed
from ottla.protocol.headers import encode_response_header
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.wire import encode_uvarint
from ottla.records.layout import ATTRIBUTES_AT, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT
from ottla.runtime.clock import Clock
from ottla.runtime.deadline import Deadline
from ottla.storage.admission import TakesLongError

PRODUCE_KEY = 0
FIRST_VERSION = 7  # before it, the codec of the records has to be looked at
FIRST_FLEXIBLE_VERSION = 9
API_KEY_AT = 1  # its lower byte, as that of the version
VERSION_AT = 3
CORRELATION_ID_AT = 4
KEY_START = 8  # behind API key, version and correlation id
NO_TAGS = b"\0\0\0"  # of partition, topic and request
TARGETS_MAX = 256  # partitions remembered for one connection
KEY_ENDS_MAX = 4  # lengths of what stands before the records: one per length of a topic's name
PENDING_MAX = 32  # answers that wait for the followers; clients have five requests in flight
LEARNED_MAX = 4096  # a connection whose requests do not repeat is not learned from for ever

_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")  # base offset, append time, log start offset: they stand together in the answer
_MARK = _OFFSETS.pack(0x1122334455667788, 0x2233445566778811, 0x3344556677881122)


Completed = Callable[[ProduceResponse], ProduceResponse]


class RepeatedTarget:
    """Where a remembered request goes, and what its answer looks like."""

    __slots__ = ("acks", "answer", "completed", "head", "offsets_at", "partition", "place", "timeout_s")

    def __init__(
        self,
        head: bytes,
        partition: Partition,
        request: ProduceRequest,
        around_offsets: tuple[bytes, bytes],
        completed: Completed,
    ) -> None:
        """`completed` adds to a response what one of its version says of leaders."""
        self.head = head
        self.partition = partition
        self.acks = request.acks
        self.timeout_s = max(0, request.timeout_ms) / 1000
        topic = request.topic_data[0]
        self.place = Place(topic.name, topic.topic_id, topic.partition_data[0].index)
        self.completed = completed
        # Length, correlation id, the answer up to the offsets, the offsets, the rest.
        before, after = around_offsets
        self.answer = framed(bytes(4) + before + _MARK + after)
        self.offsets_at = 8 + len(before)


class _Waiting(NamedTuple):
    """An answer that is right once its records are committed."""

    target: RepeatedTarget
    commit: PendingAcknowledgement
    answer: bytes
    correlation_id: int
    append_time_ms: int
    log_start_offset: int
    start: BatchStart | None
    deadline: float


@dataclass(slots=True)
class _Led:
    """A time in which this broker leads a partition without a break, and up to where enough replicas have it."""

    partition: Partition
    leadership: int
    high_watermark: int


class RepeatedProduce(LateAnswer):
    """What one connection's Produce requests have in common, and the answers that wait."""

    __slots__ = (
        "_clock",
        "_deadline",
        "_is_due",
        "_is_forgotten",
        "_learned_count",
        "_loop",
        "_pending",
        "_places",
        "_session",
        "_targets",
        "_watched",
    )

    api_key = PRODUCE_KEY
    takes_more = True

    def __init__(self, session: Session, clock: Clock) -> None:
        super().__init__()
        self._session = session
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._look)
        self._targets: dict[int, dict[bytes, RepeatedTarget]] = {}  # by where the common bytes end, then by those bytes
        self._learned_count = 0
        # Answers in the order of their requests. The first one waits; bytes are answers that are ready.
        self._pending: deque[_Waiting | bytes] = deque()
        # Whose records some answer waits for, or has waited for, in the order in which they are watched.
        self._watched: list[_Led] = []
        self._places: dict[Partition, int] = {}
        self._is_forgotten = False
        self._is_due = False  # whether they are about to be looked at

    def repeat(self, connection: Connection, frame: memoryview) -> list[Part] | LateAnswer | None:
        """The framed answer to a request that is known, or the promise of it; None where it must go the general way."""
        answer = self._append(frame)
        if answer is None:
            return None
        if isinstance(answer, bytes):
            return [answer]
        self.connection = connection
        self._pending.append(answer)
        self._deadline.set(answer.deadline)
        return self

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """A request behind one that waits: whether it was taken, and will be answered in its turn."""
        session, dispatcher = self._session, self.dispatcher
        if (
            dispatcher is None
            or len(self._pending) >= PENDING_MAX
            or len(frame) <= API_KEY_AT
            or frame[API_KEY_AT] != PRODUCE_KEY
            or session.ends_ms is not None  # whether it has ended is for the authenticator to say
            or session.repeated.get(PRODUCE_KEY) is not self
        ):
            return False
        started_ns = time.perf_counter_ns()
        answer = self._append(frame)
        if answer is None:
            return False
        self._pending.append(answer)
        dispatcher.taken(PRODUCE_KEY, started_ns)
        self.begun(dispatcher, started_ns)
        return True

    def _append(self, frame: memoryview) -> _Waiting | bytes | None:
        """Appends the records of a request that is known: its answer, or what that waits for; None where the request
        must go the general way."""
        located = _locate(frame, self._targets)
        if located is None:
            return None
        target, records = located
        partition, session = target.partition, self._session
        leader = partition.current_leader
        # Records of a transaction need its coordinator's word, and what was refused before has to come again first:
        # both are asked about on the general way.
        if (
            leader is None
            or (session.refused_starts is not None and session.has_refused(self._clock))
            or len(records) < HEADER_BYTES
            or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
        ):
            return None
        try:
            appended = partition.append(records, acks=target.acks, now_ms=self._clock.now_ms())
        except TakesLongError:
            return None  # not a byte was stamped: the general way has a thread look at it
        except ApiError as error:
            if error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                return None  # nor was one here: the general way remembers who will send it again
            if error.code in FOR_NOW:
                session.note_refused(target.place, start_of(records), self._clock.steady_ms())
            return _refused(target, frame, records, error)
        first_offset, last_offset, append_time_ms, _ = appended
        log_start_offset = partition.log.log_start_offset
        answer = _fill(target.answer, target.offsets_at, frame, first_offset, append_time_ms, log_start_offset)
        if target.acks != ALL_REPLICAS or leader.high_watermark > last_offset:
            return answer
        (correlation_id,) = _INT32.unpack_from(frame, CORRELATION_ID_AT)
        self._watch(partition)
        return _Waiting(
            target,
            PendingAcknowledgement(partition, last_offset + 1, partition.leadership),
            answer,
            correlation_id,
            append_time_ms,
            log_start_offset,
            start_of(records),
            self._loop.time() + target.timeout_s,
        )

    # -- answers that wait ---------------------------------------------------------------------------------------------

    def _watch(self, partition: Partition) -> None:
        led = _Led(partition, partition.leadership, partition.high_watermark)
        place = self._places.get(partition)
        if place is None:
            self._places[partition] = place = len(self._watched)
            self._watched.append(led)
            partition.committed.watch(self, place)
        else:
            self._watched[place] = led

    def note(self, place: int) -> None:
        """More of a partition is committed, or its role has changed."""
        led = self._watched[place]
        partition = led.partition
        if partition.current_leader is not None and partition.leadership == led.leadership:
            if partition.has_enough_in_sync:
                led.high_watermark = partition.high_watermark
        else:
            self._decide_all_in(partition, led.high_watermark)
        if not self._is_due and self._pending and _is_ready(self._pending[0]):
            self._is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Sends the answers that are ready, up to the first that is not."""
        self._is_due = False
        pending, now = self._pending, self._loop.time()
        answers: list[Part] = []
        while pending:
            first = pending[0]
            if not isinstance(first, bytes):
                outcome = self._outcome_of(first)
                if outcome is None and now < first.deadline:
                    break
                first = self._answer_of(first, ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome)
            answers.append(first)
            pending.popleft()
        if pending and isinstance(pending[0], _Waiting):
            self._deadline.set(pending[0].deadline)
        else:
            self._stop_waiting()
        if answers:
            self.answer(answers, count=len(answers), is_last=not pending)

    def _outcome_of(self, waiting: _Waiting) -> ErrorCode | None:
        """What enough replicas had when it was committed is acknowledged, also where fewer are in sync by now."""
        led = self._watched[self._places[waiting.commit.partition]]
        return ErrorCode.NONE if waiting.commit.end_offset <= led.high_watermark else waiting.commit.outcome

    def _decide_all_in(self, partition: Partition, high_watermark: int) -> None:
        """This broker no longer leads a partition without a break. What enough replicas had committed by then is
        acknowledged; all else fails now and not in its turn: nothing behind it may be taken for the first of a
        producer, and whoever leads again has other records there."""
        for place, waiting in enumerate(self._pending):
            if isinstance(waiting, _Waiting) and waiting.commit.partition is partition and waiting.commit.outcome:
                was_committed = waiting.commit.end_offset <= high_watermark
                outcome = ErrorCode.NONE if was_committed else ErrorCode.NOT_LEADER_OR_FOLLOWER
                self._pending[place] = self._answer_of(waiting, outcome)

    def _answer_of(self, waiting: _Waiting, outcome: ErrorCode) -> bytes:
        if not outcome:
            return waiting.answer
        self._session.note_refused(waiting.target.place, waiting.start, self._clock.steady_ms())
        return _failed_late(waiting, outcome)

    def cancel(self) -> None:
        """The connection is closed. The records stay where they are."""
        self._pending.clear()
        self._stop_waiting()
        super().cancel()

    def _stop_waiting(self) -> None:
        for partition in self._places:
            partition.committed.unwatch(self)
        self._watched.clear()
        self._places.clear()
        if self._is_forgotten:
            self._deadline.close()
        else:
            self._deadline.clear()

    def forget(self) -> None:
        """Nothing repeats any more; answers that wait are still sent."""
        self._is_forgotten = True
        self._targets.clear()
        if not self._pending:
            self._deadline.close()

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn(
        self,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse,
        version: int,
        partition: Partition,
        completed: Completed,
    ) -> None:
        """Remembers a request whose records were appended, if others like it can be answered from here."""
        if version < FIRST_VERSION or request.transactional_id is not None or request.acks == 0:
            return
        records = request.topic_data[0].partition_data[0].records
        assert records is not None, "it was appended"
        is_flexible = version >= FIRST_FLEXIBLE_VERSION
        size = encode_uvarint(len(records) + 1) if is_flexible else _INT32.pack(len(records))
        key_end = len(frame) - (len(NO_TAGS) if is_flexible else 0) - len(records) - len(size)
        if frame[key_end : key_end + len(size)] != size or (is_flexible and frame[-len(NO_TAGS) :] != NO_TAGS):
            return  # tags, or bytes behind the request: legal, and too rare to remember
        around_offsets = _answer_around_offsets(response, version)
        target = RepeatedTarget(bytes(frame[:4]), partition, request, around_offsets, completed)
        self._remember(key_end, bytes(frame[KEY_START:key_end]), target)

    def _remember(self, key_end: int, key: bytes, target: RepeatedTarget) -> None:
        if self._learned_count >= LEARNED_MAX:
            return
        self._learned_count += 1
        if key_end not in self._targets and len(self._targets) >= KEY_ENDS_MAX:
            del self._targets[next(iter(self._targets))]
        targets = self._targets.setdefault(key_end, {})
        if len(targets) >= TARGETS_MAX:
            targets.clear()
        targets[key] = target


def locate(
    frame: memoryview, targets: dict[int, dict[bytes, RepeatedTarget]]
) -> tuple[RepeatedTarget, memoryview] | None:
    """The target that a frame repeats and its records; None where there is none."""
    for key_end, by_key in targets.items():
        target = by_key.get(bytes(frame[KEY_START:key_end]))
        if target is not None and frame[:4] == target.head:
            records = _records(frame, key_end, target.head[VERSION_AT] >= FIRST_FLEXIBLE_VERSION)
            return None if records is None else (target, records)
    return None


def _records(frame: memoryview, position: int, is_flexible: bool) -> memoryview | None:
    """The records at the end of a known request; None where it does not end as one."""
    end = len(frame)
    if end < position + 8:
        return None
    if is_flexible:
        size, shift = 0, 0
        while shift < 28:
            byte = frame[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        size -= 1
        end -= len(NO_TAGS)
        if frame[end:] != NO_TAGS:
            return None
    else:
        (size,) = _INT32.unpack_from(frame, position)
        position += 4
    if position + size != end or size <= MAGIC_AT or frame[position + MAGIC_AT] != MAGIC:
        return None
    return frame[position:end]


def fill(
    answer: bytes, offsets_at: int, frame: memoryview, base_offset: int, time_ms: int, log_start_offset: int
) -> bytes:
    """The answer with the correlation id of a frame and the three offsets in their places."""
    filled = bytearray(answer)
    filled[4:8] = frame[4:8]
    _OFFSETS.pack_into(filled, offsets_at, base_offset, time_ms, log_start_offset)
    return bytes(filled)


def _is_ready(answer: _Waiting | bytes) -> bool:
    return isinstance(answer, bytes) or answer.commit.outcome is not None


def _refused(target: RepeatedTarget, frame: memoryview, records: memoryview, error: ApiError) -> bytes:
    """The framed answer that says why nothing was appended, as the general way would."""
    (correlation_id,) = _INT32.unpack_from(frame, CORRELATION_ID_AT)
    answer = PartitionProduceResponse(index=target.place.partition, base_offset=-1)
    refuse(answer, error, records, target.partition.log.log_start_offset)
    return _framed(target, correlation_id, answer)


def _failed_late(waiting: _Waiting, code: ErrorCode) -> bytes:
    """The framed answer where the records were appended, and nobody can say that they are committed."""
    answer = PartitionProduceResponse(
        index=waiting.target.place.partition,
        base_offset=-1,
        error_code=code,
        log_append_time_ms=waiting.append_time_ms,
        log_start_offset=waiting.log_start_offset,
    )
    return _framed(waiting.target, waiting.correlation_id, answer)


def _framed(target: RepeatedTarget, correlation_id: int, answer: PartitionProduceResponse) -> bytes:
    version = target.head[VERSION_AT]
    topic = TopicProduceResponse(name=target.place.topic, topic_id=target.place.topic_id, partition_responses=[answer])
    response = target.completed(ProduceResponse(responses=[topic]))
    return framed(encode_response_header(correlation_id, PRODUCE_KEY, version), encode(response, version))


def _answer_around_offsets(response: ProduceResponse, version: int) -> tuple[bytes, bytes]:
    """The encoded answer before and behind its three offsets, without length and correlation id."""
    answer = response.responses[0].partition_responses[0]
    real = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
    answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = _OFFSETS.unpack(_MARK)
    encoded = encode_response_header(0, PRODUCE_KEY, version)[4:] + encode(response, version)
    answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = real
    at = encoded.index(_MARK)
    return encoded[:at], encoded[at + len(_MARK) :]


# Every repetition takes these two steps; where they were built, their compiled twins do.
_locate, _fill = locate, fill
if not is_pure_python_asked_for():
    with suppress(ImportError):
        from ottla.broker._repeat import fill as _fill  # type: ignore[import-not-found,no-redef,unused-ignore]
        from ottla.broker._repeat import locate as _locate  # type: ignore[no-redef,unused-ignore]
