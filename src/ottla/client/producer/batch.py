"""A batch of records on its way to one partition.

Records are encoded when they are appended, by the writer of the record core, so that a batch holds bytes and no objects
of the user's; its header is put before them when it is first sent. Afterwards its bytes are the same at every try,
unless it gets other numbers. A batch that is too large is decoded to be cut: that is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.partitioning import RecordColumns, Records
from ottla.client.producer.deliveries import Callback, Delivery, RecordFuture
from ottla.errors import OttlaError
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ottla.records import batch as batches
from ottla.records import codec
from ottla.records.layout import HEADER_BYTES, INT32_MAX, Compression

if TYPE_CHECKING:
    from ottla.client.values import RecordHeaders


class Numbers(NamedTuple):
    """By which a broker knows a batch again."""

    producer_id: int
    epoch: int
    base_sequence: int


NO_NUMBERS = Numbers(NO_PRODUCER_ID, -1, NO_SEQUENCE)


class ProducerBatch:
    """Open for records until it is full or drained."""

    __slots__ = (
        "_columns",
        "_columns_bytes",
        "_written",
        "attempts",
        "created_at",
        "data",
        "deadline",
        "delivery",
        "is_in_log_perhaps",
        "is_split",
        "limit_bytes",
        "numbers",
        "partition",
        "reserved_bytes",
        "retry_after",
        "tried_epoch",
        "trouble",
        "writer",
    )

    def __init__(
        self, partition: TopicPartition, limit_bytes: int, reserved_bytes: int, created_at: float, deadline: float
    ) -> None:
        self.partition = partition
        self.limit_bytes = limit_bytes  # of records before compression
        self.reserved_bytes = reserved_bytes  # of the pool
        self.created_at = created_at
        self.deadline = deadline
        self.delivery = Delivery(partition)
        self.writer = codec.BatchWriter(limit_bytes, RecordFuture, self.delivery, self.delivery.callbacks)
        self.numbers = NO_NUMBERS
        self.data: bytearray | None = None
        self.attempts = 0
        self.retry_after = 0.0
        self.tried_epoch = -1  # the leader epoch of the last try
        self.is_split = False
        self.is_in_log_perhaps = False  # a try was not answered
        self.trouble: OttlaError | None = None  # what was wrong with the last try
        self._columns: Records | None = None  # in place of what the writer has
        self._columns_bytes = 0
        self._written: bytearray | None = None  # by the writer, since it was encoded

    @classmethod
    def of_records(
        cls, partition: TopicPartition, records: Records, size_bytes: int, created_at: float, deadline: float
    ) -> ProducerBatch:
        """A batch that is full from the start. Its timestamps are known to whoever gave the records."""
        batch = cls(partition, 0, size_bytes, created_at, deadline)
        batch._columns_bytes = size_bytes
        batch._columns = records
        return batch

    @property
    def size_bytes(self) -> int:
        """Before compression: of columns an estimate, never less than it is."""
        return self.writer.size_bytes if self._columns is None else self._columns_bytes

    @property
    def record_count(self) -> int:
        return self.writer.record_count if self._columns is None else len(self._columns)

    @property
    def is_full(self) -> bool:
        return self._columns is not None or self.size_bytes >= self.limit_bytes

    @property
    def has_numbers(self) -> bool:
        return self.numbers.base_sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return (self.numbers.base_sequence + self.record_count) & INT32_MAX

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: RecordHeaders,
        callback: Callback | None,
    ) -> RecordFuture | None:
        """The record's future; None where there is no room for it any more."""
        future: RecordFuture | None = self.writer.append(key, value, timestamp, headers, callback)
        return future

    def close(self) -> None:
        """Takes no more records."""
        if self._columns is None:
            self.writer.close()
            self.delivery.timestamps = self.writer.timestamps

    @property
    def records(self) -> Records:
        if self._columns is not None:
            return self._columns
        written = self.writer.finish()
        with memoryview(written.records) as view:
            columns = codec.decode_records(
                view[HEADER_BYTES:], self.record_count, 0, written.base_timestamp, append_time=None
            )
        return RecordColumns(columns.values, columns.timestamps, columns.keys, columns.headers)

    def encode(self, compression: Compression, level: int | None, is_transactional: bool) -> bytearray:
        """The bytes of the batch under its numbers, made once."""
        if self.data is None:
            options: batches.BatchOptions = {
                "compression": compression,
                "level": level,
                "producer_id": self.numbers.producer_id,
                "producer_epoch": self.numbers.epoch,
                "base_sequence": self.numbers.base_sequence,
                "is_transactional": is_transactional,
            }
            if self._columns is not None:
                self.data = self._columns.build(**options)
            else:
                written, count = self.writer.finish(), self.writer.record_count
                self._written = self._written or written.records
                self.data = batches.wrap(
                    self._written, count, count - 1, written.base_timestamp, written.max_timestamp, **options
                )
            self.delivery.size_bytes = len(self.data)
        return self.data

    def renumber(self, numbers: Numbers) -> None:
        self.numbers = numbers
        if self.data is not None and self.data is self._written:
            self._written = bytearray(self._written)  # those of the last try may still be in a connection's buffer
        self.data = None

    def split(self, batch_bytes_max: int) -> list[ProducerBatch]:
        """The same records in smaller batches, numbered on from this one's, each with its own future from here on.

        The time that they have is still that of the whole; the room that it took is shared out among them.
        """
        records = self.records
        limit = batch_bytes_max if not self.is_split else max(1, self.size_bytes // 2)
        pieces = records.pieces(limit)
        if len(pieces) == 1:
            middle = len(records) // 2
            pieces = [records.slice(0, middle), records.slice(middle, len(records))]
        batches: list[ProducerBatch] = []
        sequence, start = self.numbers.base_sequence, 0
        reserved_each = self.reserved_bytes // len(pieces)
        for piece in pieces:
            batch = ProducerBatch.of_records(self.partition, piece, reserved_each, self.created_at, self.deadline)
            batch._columns_bytes = max(1, self.size_bytes * len(piece) // len(records))
            batch.is_split = True
            batch.attempts = self.attempts
            batch.trouble = self.trouble
            batch.delivery.timestamps = self.delivery.timestamps[start : start + len(piece)]
            if self.has_numbers:
                batch.numbers = self.numbers._replace(base_sequence=sequence)
                sequence = batch.next_sequence
            batches.append(batch)
            start += len(piece)
        batches[0].reserved_bytes += self.reserved_bytes - reserved_each * len(pieces)
        self.delivery.moved([(each.record_count, each.delivery, 0) for each in batches])
        return batches
