"""Batches of producers that were refused on a connection for now, so that none behind them is taken in their place.

A log that knows nothing of a producer takes any sequence from it (KIP-360). A producer that has several requests in
flight could so get its second batch into a log whose first was refused a moment before: by a broker that did not lead
the partition yet, or while too few replicas were in sync, or with a leadership that ended before the batch was
committed. The first, sent again, would be out of order: librdkafka gives up for good then, others write it behind the
second. What is in flight together comes on one connection, and in order, so that is where the refusal is remembered:
until the batch comes again, or nothing that was sent with it can come.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.errors import ApiError, ErrorCode
from ottla.records.layout import HEADER_BYTES, MAGIC, MAGIC_AT, PRODUCER_AT
from ottla.storage.producer_state import ProducerStates, is_behind

if TYPE_CHECKING:
    from typing_extensions import Buffer

STARTS_MAX: Final = 1_000  # of one connection; the oldest are forgotten
REMEMBERED_MS: Final = 60_000  # longer than any request is in flight
# Why a batch is refused that could be taken a moment later.
FOR_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_PRODUCER = struct.Struct(">qhi")


class Place(NamedTuple):
    """A partition as a request names it."""

    topic: str
    topic_id: UUID
    partition: int


class BatchStart(NamedTuple):
    """Whose batch it is, and its first number."""

    producer_id: int
    epoch: int
    sequence: int


class _Start(NamedTuple):
    """The lowest sequence that was refused."""

    epoch: int
    sequence: int
    refused_ms: int


class RefusedStarts:
    """Those of one connection."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: dict[tuple[Place, int], _Start] = {}

    def is_empty(self, now_ms: int) -> bool:
        """Whether no batch is expected to come again; the oldest are forgotten."""
        while self._starts:
            oldest = next(iter(self._starts))
            if now_ms - self._starts[oldest].refused_ms <= REMEMBERED_MS:
                return False
            del self._starts[oldest]
        return True

    def note(self, place: Place, refused: BatchStart, now_ms: int) -> None:
        """A batch was refused, and its producer will send it again."""
        key = place, refused.producer_id
        start = self._starts.pop(key, None)
        sequence = refused.sequence
        if start is not None and start.epoch == refused.epoch and is_behind(sequence, start.sequence):
            sequence = start.sequence
        self._starts[key] = _Start(refused.epoch, sequence, now_ms)
        if len(self._starts) > STARTS_MAX:
            del self._starts[next(iter(self._starts))]

    def check(self, place: Place, producer: BatchStart | None, producers: ProducerStates, now_ms: int) -> None:
        """OUT_OF_ORDER_SEQUENCE_NUMBER where the log would take a batch only because it never saw the one before."""
        if producer is None:
            return
        start = self._starts.get((place, producer.producer_id))
        if start is None:
            return
        is_over = start.epoch != producer.epoch or now_ms - start.refused_ms > REMEMBERED_MS
        if is_over or producer.producer_id in producers.producers or not is_behind(producer.sequence, start.sequence):
            del self._starts[place, producer.producer_id]
            return
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} sent sequence {producer.sequence}, and {start.sequence} was refused",
        )


def start_of(records: Buffer | None) -> BatchStart | None:
    """Of the first batch of some records; None for one without sequences, or that is none."""
    view = memoryview(records or b"")
    if len(view) < HEADER_BYTES or view[MAGIC_AT] != MAGIC:
        return None
    producer = BatchStart(*_PRODUCER.unpack_from(view, PRODUCER_AT))
    return producer if producer.producer_id >= 0 and producer.sequence >= 0 else None
