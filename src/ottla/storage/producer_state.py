"""What a partition knows of its producers: sequences, epochs, open and ended transactions.

Pure state, owned by one `Log`: `check` looks and does not touch, `record` is the only writer, and replaying a log calls
the same `record`. Verifications are not in the log: they are the time between asking a transaction's coordinator about
its first batch here and writing that batch (KIP-890).

Snapshots are Kafka's bytes (version 1): one entry per producer with its last batch only, so after a restart a duplicate
of the last batch is still recognised and an older one is out of order, as in Kafka.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import ApiError, CorruptFileError, ErrorCode
from ottla.ids import NO_SEQUENCE, NO_TIMESTAMP
from ottla.records.batch import BatchHeader
from ottla.records.codec import crc32c
from ottla.records.control import EndTransactionMarker
from ottla.records.layout import TRANSACTIONAL_BIT

BATCHES_REMEMBERED = 5  # the most that a producer may have in flight on one connection
SEQUENCE_MAX = 2**31 - 1
NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class ProducedBatch(NamedTuple):
    """One remembered batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return sequence_before(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndedTransaction(NamedTuple):
    """A transaction whose marker stands at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True, eq=False)
class Verification:
    """The coordinator is being asked whether a transaction is open here.

    Each is an object of its own, known by its identity: a marker that comes meanwhile takes it away, and an answer of
    before is not mistaken for one of after.
    """

    epoch: int
    # A later batch of the producer that was answered sooner must not become the first one.
    lowest_sequence: int
    # Each transaction of version 2 has an epoch of its own, and an epoch starts with sequence 0.
    starts_at_zero: bool
    started_ms: int


@dataclass(slots=True)
class ProducerEntry:
    """What is known of one producer id."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of its last batch of records, -1 where none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """The remembered batch that `header` sends again, if it does."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        for produced in self.batches:
            if produced.last_sequence == last_sequence and produced.first_sequence == header.base_sequence:
                return produced
        return None


def sequence_before(sequence: int, steps: int) -> int:
    """Sequences run from 0 to 2^31-1 and begin again at 0."""
    earlier = sequence - steps
    return earlier if earlier >= 0 else earlier + SEQUENCE_MAX + 1


def is_behind(sequence: int, other: int) -> bool:
    """Whether it comes after the other one, of two that are less than half of all apart."""
    return 0 < (sequence - other) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


def follows(last_sequence: int, sequence: int) -> bool:
    return sequence == last_sequence + 1 or (sequence == 0 and last_sequence == SEQUENCE_MAX)


class ProducerStates:
    """All producers of one partition, up to `end_offset`."""

    __slots__ = ("_ended", "_ongoing", "_verifications", "end_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        # Open transactions, producer id by first offset. Offsets only rise, so the first key is the smallest.
        self._ongoing: dict[int, int] = {}
        # Ended ones that are not below the high watermark yet: still unstable for a read_committed reader.
        self._ended: deque[EndedTransaction] = deque()
        self._verifications: dict[int, Verification] = {}

    def clear(self) -> None:
        self.producers.clear()
        self._verifications.clear()
        self._ongoing.clear()
        self._ended.clear()

    # -- deciding ------------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """May this batch of a client be appended? The earlier batch if it is a duplicate; ApiError if it may not."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            # Unknown here: new, expired, or its records were deleted. Any sequence may start (KIP-360).
            return None
        if header.base_sequence == NO_SEQUENCE:  # a coordinator writes for a producer: there is nothing to count
            self._check_epoch(producer, header.producer_epoch)
            return None
        duplicate = producer.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        self._check_epoch(producer, header.producer_epoch)
        self._check_sequence(producer, header)
        if producer.transaction_first_offset is not None and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sent a batch outside of it",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """May this marker of a transaction coordinator be appended?"""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(producer, header.producer_epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of coordinator epoch {marker.coordinator_epoch}, already at {producer.coordinator_epoch}",
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """ApiError for an epoch older than the producer's, or than that of one that is not known here."""
        producer = self.producers.get(producer_id)
        if producer is not None:
            self._check_epoch(producer, epoch)
        elif epoch < NO_PRODUCER_EPOCH:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{epoch} is an epoch of no producer")

    def check_raised_epoch(self, producer_id: int, epoch: int) -> None:
        """The marker of a version 2 transaction has a later epoch than what it ends; else it is an earlier one's."""
        if self.has_open_transaction(producer_id, epoch):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the open transaction of producer {producer_id} is itself of epoch {epoch}, not of an earlier one",
            )

    @staticmethod
    def _check_epoch(producer: ProducerEntry, epoch: int) -> None:
        if epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer.producer_id} sent epoch {epoch}, already at {producer.epoch}",
            )

    @staticmethod
    def _check_sequence(producer: ProducerEntry, header: BatchHeader) -> None:
        if header.producer_epoch != producer.epoch:
            if header.base_sequence != 0 and producer.epoch != NO_PRODUCER_EPOCH:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence "
                    f"{header.base_sequence} instead of 0",
                )
        elif not follows(producer.last_sequence, header.base_sequence):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} after {producer.last_sequence}",
            )

    # -- verifying -----------------------------------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset is not None and producer.epoch == epoch

    def is_in_transaction(self, producer_id: int) -> bool:
        """The same, in whatever epoch."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset is not None

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, starts_at_zero: bool, now_ms: int
    ) -> Verification:
        """Somebody asks the coordinator about a batch that would open a transaction here.

        ApiError if the producer was replaced: whatever the coordinator would say of its id, that is known here.
        """
        producer = self.producers.get(producer_id)
        if producer is not None:
            self._check_epoch(producer, epoch)
        verification = self._verifications.get(producer_id)
        if verification is None or epoch > verification.epoch:
            verification = self._verifications[producer_id] = Verification(epoch, sequence, starts_at_zero, now_ms)
        elif epoch == verification.epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        return verification

    def check_verified(self, producer_id: int, epoch: int, sequence: int, verification: Verification | None) -> None:
        """May this batch open a transaction, or join the one that is open? Asked just before it is appended."""
        if self.has_open_transaction(producer_id, epoch):
            return
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"the batch of producer {producer_id} is not part of an open transaction"
            )
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return  # what `check` says about the epoch says more
        is_new = producer is None or not producer.batches
        if sequence > verification.lowest_sequence or (verification.starts_at_zero and is_new and sequence != 0):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts a transaction with sequence {sequence}; the first one is "
                f"{0 if verification.starts_at_zero and is_new else verification.lowest_sequence}",
            )

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(self, header: BatchHeader, timestamp: int) -> None:
        """A data batch of a producer stands in the log."""
        producer = self._producer(header)
        offset_delta = header.last_offset_delta
        producer.batches.append(
            ProducedBatch(header.last_sequence, header.base_offset + offset_delta, offset_delta, timestamp)
        )
        producer.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_first_offset is None:
            self._verifications.pop(header.producer_id, None)
            producer.transaction_first_offset = header.base_offset
            self._ongoing[header.base_offset] = producer.producer_id

    def record_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> EndedTransaction | None:
        """A transaction marker stands in the log; the transaction that it ended, if it had any data here."""
        producer = self._producer(header)
        self._verifications.pop(header.producer_id, None)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        first_offset = producer.transaction_first_offset
        if first_offset is None:
            return None
        producer.transaction_first_offset = None
        del self._ongoing[first_offset]
        ended = EndedTransaction(header.producer_id, first_offset, header.last_offset, not marker.commit)
        self._ended.append(ended)
        return ended

    def record_emptied_marker(self, header: BatchHeader) -> None:
        """A marker that compaction has emptied, because its records are gone, still says of which epoch it was."""
        self._producer(header).last_timestamp = header.max_timestamp
        self.close_transaction(header.producer_id)

    def close_transaction(self, producer_id: int) -> None:
        """The transaction of a producer has ended, however, and left nothing in the log."""
        producer = self.producers[producer_id]
        if producer.transaction_first_offset is not None:
            del self._ongoing[producer.transaction_first_offset]
            producer.transaction_first_offset = None

    def _producer(self, header: BatchHeader) -> ProducerEntry:
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        return producer

    def passed_high_watermark(self, high_watermark: int) -> None:
        """Ended transactions below the high watermark are stable now."""
        while self._ended and self._ended[0].last_offset < high_watermark:
            self._ended.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets the producers that have been silent for too long and have no open transaction; how many."""
        expired = [
            producer.producer_id
            for producer in self.producers.values()
            if producer.transaction_first_offset is None and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.started_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    # -- telling -------------------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or ended and not yet below the high watermark."""
        candidates = []
        if self._ongoing:
            candidates.append(next(iter(self._ongoing)))
        if self._ended:
            # Transactions may end in another order than they began.
            candidates.append(min(ended.first_offset for ended in self._ended))
        return min(candidates, default=None)

    def last_stable_offset_after(self, ended: EndedTransaction) -> int:
        """The last stable offset once `ended` is complete, for its entry in the transaction index."""
        return min(self._ongoing, default=ended.last_offset + 1)

    def ongoing_transactions(self) -> Iterable[tuple[int, int]]:
        """(first offset, producer id) of every open transaction, oldest first."""
        return self._ongoing.items()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        entries = [_SNAPSHOT_COUNT.pack(len(self.producers))]
        for producer in self.producers.values():
            last = producer.batches[-1] if producer.batches else ProducedBatch(NO_SEQUENCE, -1, 0, NO_TIMESTAMP)
            first_offset = producer.transaction_first_offset
            entries.append(
                _SNAPSHOT_ENTRY.pack(
                    producer.producer_id,
                    producer.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    -1 if first_offset is None else first_offset,
                )
            )
        body = b"".join(entries)
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def load(self, snapshot: bytes, end_offset: int, path: str) -> None:
        """Becomes what `snapshot` says the state was at `end_offset`; CorruptFileError if it does not hold."""
        self.clear()
        for producer in read_snapshot(snapshot, path):
            self.producers[producer.producer_id] = producer
        self._ongoing = dict(
            sorted(
                (producer.transaction_first_offset, producer.producer_id)
                for producer in self.producers.values()
                if producer.transaction_first_offset is not None
            )
        )
        self.end_offset = end_offset


def read_snapshot(data: bytes, path: str) -> Iterator[ProducerEntry]:
    """The producers of a snapshot file, after its checksum was found right."""
    head = _SNAPSHOT_HEADER.size
    if len(data) < head + _SNAPSHOT_COUNT.size:
        raise CorruptFileError(path, f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptFileError(path, f"producer snapshot of unknown version {version}")
    if crc32c(data[head:]) != crc:
        raise CorruptFileError(path, "the checksum of the producer snapshot is wrong")
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, head)
    body = memoryview(data)[head + _SNAPSHOT_COUNT.size :]
    if count * _SNAPSHOT_ENTRY.size != len(body):
        raise CorruptFileError(path, f"{count} producers announced in {len(body)} bytes")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(body):
        yield _producer_of_snapshot(*fields)


def _producer_of_snapshot(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    producer = ProducerEntry(
        producer_id,
        epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_first_offset=transaction_first_offset if transaction_first_offset >= 0 else None,
    )
    if last_offset >= 0:
        producer.batches.append(ProducedBatch(last_sequence, last_offset, offset_delta, timestamp))
    return producer
