"""The bytes of a follower's Fetch and of its leader's response, where nothing is out of the ordinary. Pure.

In a fetch session one request differs from the next in its correlation id, the epoch of the session and the partitions
that have moved. A `FetchTemplate` is made of one request that the codec has read or written; both sides use it, the
leader to read the next request and the follower to write it, without an object for anything that repeats. A response
without errors is written and read here too. Whatever else may stand in one (an error, a tag, a partition that is
forgotten) is left to the codec: reading returns None then.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.wire import encode_uvarint
from ottla.replication.fetch_requests import FetchPosition

FIRST_VERSION: Final = 13  # from here on topics are named by their ids
FIRST_REPLICA_STATE_VERSION: Final = 15
VERSION_AT: Final = 3
CORRELATION_ID_AT: Final = 4
CLIENT_ID_AT: Final = 8
UUID_BYTES: Final = 16
NO_TAGS: Final = b"\0"
NOTHING_FORGOTTEN: Final = b"\x01"
NO_RACK: Final = b"\x01"
NO_TRANSACTIONS: Final = 0  # no list of aborted ones: nobody asked for it
NO_REPLICA: Final = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">BBBiqB")  # one tag, its number, its size: the replica, its epoch, no tags in it
_ASKED = struct.Struct(">iiqiqiB")  # a partition of a request, and the number of its tags
_FETCHED = struct.Struct(">ihqqqBi")  # a partition of a response up to its records
_RESPONSE = struct.Struct(">iBihi")  # correlation id, tags, throttle time, error, session id


class AskedPartition(NamedTuple):
    """A partition that a follower names, and from where on it asks."""

    topic_id: bytes
    partition: int
    position: FetchPosition


class FetchedPartition(NamedTuple):
    """A partition of a response without errors."""

    topic_id: bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Any  # bytes or a view of some; or a range of a file, which has `size_bytes`

    @property
    def size_bytes(self) -> int:
        return len(self.records) if isinstance(self.records, bytes) else self.records.size_bytes


class FetchedPartitions(NamedTuple):
    """A response without errors."""

    session_id: int
    partitions: list[FetchedPartition]


class FetchTemplate(NamedTuple):
    """What all requests of a session have in common."""

    head: bytes  # API key and version
    start: bytes  # from the client id to the id of the session
    end: bytes  # behind the topics

    @property
    def version(self) -> int:
        return self.head[VERSION_AT]

    def read(self, frame: bytes) -> tuple[int, list[AskedPartition]] | None:
        """The epoch of the session and the partitions that a frame names; None where it is not such a request."""
        epoch_at = CLIENT_ID_AT + len(self.start)
        topics_end = len(frame) - len(self.end)
        if frame[:4] != self.head or not frame.startswith(self.start, CLIENT_ID_AT) or not frame.endswith(self.end):
            return None
        asked: list[AskedPartition] = []
        try:
            (session_epoch,) = _INT32.unpack_from(frame, epoch_at)
            topic_count, position = _read_uvarint(frame, epoch_at + 4)
            for _ in range(topic_count - 1):
                topic_id = frame[position : position + UUID_BYTES]
                partition_count, position = _read_uvarint(frame, position + UUID_BYTES)
                for _ in range(partition_count - 1):
                    partition, leader_epoch, offset, last_epoch, log_start, bytes_max, tag_count = _ASKED.unpack_from(
                        frame, position
                    )
                    position += _ASKED.size
                    if tag_count or position > topics_end:
                        return None
                    place = FetchPosition(offset, leader_epoch, last_epoch, log_start, bytes_max)
                    asked.append(AskedPartition(topic_id, partition, place))
                if frame[position]:
                    return None
                position += 1
        except (struct.error, IndexError):
            return None
        return (session_epoch, asked) if position == topics_end else None

    def write(self, correlation_id: int, session_epoch: int, asked: Sequence[AskedPartition]) -> bytes:
        """The frame of the next request, without its length."""
        written = bytearray(self.head)
        written += _INT32.pack(correlation_id)
        written += self.start
        written += _INT32.pack(session_epoch)
        topics = _by_topic(asked)
        written += encode_uvarint(len(topics) + 1)
        for of_topic in topics:
            written += of_topic[0].topic_id
            written += encode_uvarint(len(of_topic) + 1)
            for _, partition, (offset, leader_epoch, last_epoch, log_start, bytes_max) in of_topic:
                written += _ASKED.pack(partition, leader_epoch, offset, last_epoch, log_start, bytes_max, 0)
            written += NO_TAGS
        written += self.end
        return bytes(written)


def template_of(frame: bytes, request: FetchRequest) -> FetchTemplate | None:
    """What will repeat of a request that goes on with a session; None where it holds what a template does not know."""
    version = frame[VERSION_AT]
    if version < FIRST_VERSION:
        return None
    (client_id_bytes,) = _INT16.unpack_from(frame, CLIENT_ID_AT)
    body_at = CLIENT_ID_AT + 2 + max(0, client_id_bytes) + len(NO_TAGS)
    # Replica id in the older ones; longest wait, fewest and most bytes, isolation level, session id.
    epoch_at = body_at + (0 if version >= FIRST_REPLICA_STATE_VERSION else 4) + 4 + 4 + 4 + 1 + 4
    state, tags = request.replica_state, NO_TAGS
    if state is not None:
        tags = _REPLICA_STATE.pack(1, 1, _REPLICA_STATE.size - 3, state.replica_id, state.replica_epoch, 0)
    template = FetchTemplate(frame[:4], frame[CLIENT_ID_AT:epoch_at], NOTHING_FORGOTTEN + NO_RACK + tags)
    read = template.read(frame)
    has_tags = frame[body_at - len(NO_TAGS) : body_at] != NO_TAGS
    return None if has_tags or read is None or read[0] != request.session_epoch else template


def write_response(correlation_id: bytes, session_id: int, fetched: Sequence[FetchedPartition]) -> list[Any]:
    """The parts of a response, without its length: bytes, and between them the records that are in files."""
    parts: list[Any] = []
    written = bytearray(correlation_id)
    written += _RESPONSE.pack(0, 0, 0, 0, session_id)[4:]
    topics = _by_topic(fetched)
    written += encode_uvarint(len(topics) + 1)
    for of_topic in topics:
        written += of_topic[0].topic_id
        written += encode_uvarint(len(of_topic) + 1)
        for _, partition, high_watermark, last_stable_offset, log_start_offset, records in of_topic:
            written += _FETCHED.pack(
                partition, 0, high_watermark, last_stable_offset, log_start_offset, NO_TRANSACTIONS, NO_REPLICA
            )
            if type(records) is bytes:
                written += encode_uvarint(len(records) + 1)
                written += records
            else:
                written += encode_uvarint(records.size_bytes + 1)
                parts += (bytes(written), records)
                written.clear()
            written += NO_TAGS
        written += NO_TAGS
    written += NO_TAGS
    parts.append(bytes(written))
    return parts


def read_response(frame: memoryview) -> FetchedPartitions | None:
    """A response, whose records are views; None where anything else is in it."""
    fetched: list[FetchedPartition] = []
    try:
        _, tag_count, throttle_ms, error_code, session_id = _RESPONSE.unpack_from(frame)
        topic_count, position = _read_uvarint(frame, _RESPONSE.size)
        is_plain = not (tag_count or throttle_ms or error_code)
        for _ in range(topic_count - 1):
            topic_id = bytes(frame[position : position + UUID_BYTES])
            partition_count, position = _read_uvarint(frame, position + UUID_BYTES)
            for _ in range(partition_count - 1):
                partition, error_code, high_watermark, stable, log_start, transactions, replica = _FETCHED.unpack_from(
                    frame, position
                )
                is_plain = is_plain and not error_code and transactions == NO_TRANSACTIONS and replica == NO_REPLICA
                size, position = _read_uvarint(frame, position + _FETCHED.size)
                records = frame[position : position + size - 1]
                position += size
                if not is_plain or not size or frame[position - 1]:  # or null for records, or tags
                    return None
                fetched.append(FetchedPartition(topic_id, partition, high_watermark, stable, log_start, records))
            is_plain = is_plain and not frame[position]
            position += 1
        return FetchedPartitions(session_id, fetched) if is_plain and not frame[position] else None
    except (struct.error, IndexError):
        return None


def _by_topic(partitions: Sequence[Any]) -> list[list[Any]]:
    """Those of one topic that stand together."""
    if len(partitions) == 1:
        return [[partitions[0]]]
    topics: list[list[Any]] = []
    for one in partitions:
        if topics and topics[-1][0].topic_id == one.topic_id:
            topics[-1].append(one)
        else:
            topics.append([one])
    return topics


def _read_uvarint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise IndexError("a number of more than five bytes")
