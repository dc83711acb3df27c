"""A producer's next request, which differs from its last in correlation id and records only.

Clients send one partition per Produce request, again and again: between the correlation id and the records stand the
same bytes every time. The first such request of a connection goes the general way, and what it came to is remembered
under those bytes: the partition, and the answer around its three offsets. A request with the same bytes skips decoding,
lookup and encoding; everything that decides about records is still asked, in `Partition.append`. Whatever is not just
as remembered goes the general way again. But what was appended or refused here has been judged: an append stamps the
bytes where they stand, so they are no longer what was sent, and nobody may look at them a second time.
"""

from __future__ import annotations

import struct
from contextlib import suppress

from ottla.broker.partition import Partition
from ottla.broker.produce_refusals import refuse
from ottla.compiled import is_pure_python_asked_for
from ottla.errors import ApiError, ErrorCode
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
from ottla.storage.admission import TakesLongError

PRODUCE_KEY = 0
FIRST_VERSION = 7  # before it, the codec of the records has to be looked at
FIRST_FLEXIBLE_VERSION = 9
VERSION_AT = 3  # its lower byte
CORRELATION_ID_AT = 4
KEY_START = 8  # behind API key, version and correlation id
NO_TAGS = b"\0\0\0"  # of partition, topic and request
TARGETS_MAX = 256  # partitions remembered for one connection
KEY_ENDS_MAX = 4  # lengths of what stands before the records: one per length of a topic's name
LEARNED_MAX = 4096  # a connection whose requests do not repeat is not learned from for ever

_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")  # base offset, append time, log start offset: they stand together in the answer
_MARK = _OFFSETS.pack(0x1122334455667788, 0x2233445566778811, 0x3344556677881122)


class RepeatedTarget:
    """Where a remembered request goes, and what its answer looks like."""

    __slots__ = ("acks", "answer", "head", "offsets_at", "partition")

    def __init__(self, head: bytes, partition: Partition, acks: int, before: bytes, after: bytes) -> None:
        self.head = head
        self.partition = partition
        self.acks = acks
        # Length, correlation id, the answer up to the offsets, the offsets, the rest.
        body = bytes(4) + before + _MARK + after
        self.answer = framed(body)
        self.offsets_at = 8 + len(before)


class RepeatedProduce:
    """What one connection's Produce requests have in common."""

    __slots__ = ("_learned_count", "_targets")

    api_key = PRODUCE_KEY

    def __init__(self) -> None:
        self._targets: dict[int, dict[bytes, RepeatedTarget]] = {}  # by where the common bytes end, then by those bytes
        self._learned_count = 0

    def repeat(self, frame: memoryview, now_ms: int) -> bytes | None:
        """The framed answer to a request that is known; None where it must go the general way."""
        located = _locate(frame, self._targets)
        if located is None:
            return None
        target, records = located
        partition = target.partition
        # Records of a transaction need its coordinator's word, which is asked for on the general way.
        if not partition.is_led_alone or len(records) < HEADER_BYTES or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
            return None
        try:
            first_offset, _, append_time_ms, _ = partition.append(records, acks=target.acks, now_ms=now_ms)
        except TakesLongError:
            return None  # not a byte was stamped: the general way has a thread look at it
        except ApiError as error:
            if error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                return None  # nor was one here: the general way remembers who will send it again
            return _refused(target, frame, records, error)
        return _fill(
            target.answer, target.offsets_at, frame, first_offset, append_time_ms, partition.log.log_start_offset
        )

    def learn(
        self, frame: memoryview, request: ProduceRequest, response: ProduceResponse, version: int, partition: Partition
    ) -> None:
        """Remembers a request that was answered without an error, if others like it can be answered from here."""
        if version < FIRST_VERSION or request.transactional_id is not None or request.acks == 0:
            return
        records = request.topic_data[0].partition_data[0].records
        assert records is not None, "it was appended"
        is_flexible = version >= FIRST_FLEXIBLE_VERSION
        size = encode_uvarint(len(records) + 1) if is_flexible else _INT32.pack(len(records))
        key_end = len(frame) - (len(NO_TAGS) if is_flexible else 0) - len(records) - len(size)
        if frame[key_end : key_end + len(size)] != size or (is_flexible and frame[-len(NO_TAGS) :] != NO_TAGS):
            return  # tags, or bytes behind the request: legal, and too rare to remember
        before, after = _answer_around_offsets(response, version)
        target = RepeatedTarget(bytes(frame[:4]), partition, request.acks, before, after)
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


def _refused(target: RepeatedTarget, frame: memoryview, records: memoryview, error: ApiError) -> bytes:
    """The framed answer that says why nothing was appended, as the general way would."""
    (correlation_id,) = _INT32.unpack_from(frame, CORRELATION_ID_AT)
    version = target.head[VERSION_AT]
    partition = target.partition
    answer = PartitionProduceResponse(index=partition.name.partition, base_offset=-1)
    refuse(answer, error, records, partition.log.log_start_offset)
    topic = TopicProduceResponse(name=partition.name.topic, topic_id=partition.topic_id, partition_responses=[answer])
    head = encode_response_header(correlation_id, PRODUCE_KEY, version)
    return framed(head, encode(ProduceResponse(responses=[topic]), version))


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
