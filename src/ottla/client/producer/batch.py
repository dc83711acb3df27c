"""A batch of records on its way to one partition.

Records are appended to plain lists and encoded when the batch is first sent, in one call of the compiled core: that is
cheaper than encoding them one by one, and a batch that is too large can be cut without decoding it. Afterwards its
bytes are the same at every try, unless it gets other numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.partitioning import RecordColumns, Records
from ottla.client.producer.deliveries import Callback, Delivery, RecordFuture
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
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
        "attempts",
        "created_at",
        "data",
        "deadline",
        "delivery",
        "has_headers",
        "has_keys",
        "headers",
        "is_in_log_perhaps",
        "is_split",
        "keys",
        "limit_bytes",
        "numbers",
        "partition",
        "reserved_bytes",
        "retry_after",
        "size_bytes",
        "tried_epoch",
        "values",
    )

    def __init__(
        self, partition: TopicPartition, limit_bytes: int, reserved_bytes: int, created_at: float, deadline: float
    ) -> None:
        self.partition = partition
        self.limit_bytes = limit_bytes  # of records before compression
        self.reserved_bytes = reserved_bytes  # of the pool
        self.created_at = created_at
        self.deadline = deadline
        self.size_bytes = HEADER_BYTES
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[RecordHeaders] = []
        self.has_keys = False
        self.has_headers = False
        self.delivery = Delivery(partition)
        self.numbers = NO_NUMBERS
        self.data: bytearray | None = None
        self.attempts = 0
        self.retry_after = 0.0
        self.tried_epoch = -1  # the leader epoch of the last try
        self.is_split = False
        self.is_in_log_perhaps = False  # a try was not answered
        self._columns: Records | None = None

    @classmethod
    def of_records(
        cls, partition: TopicPartition, records: Records, size_bytes: int, created_at: float, deadline: float
    ) -> ProducerBatch:
        """A batch that is full from the start. Its timestamps are known to whoever gave the records."""
        batch = cls(partition, 0, size_bytes, created_at, deadline)
        batch.size_bytes = size_bytes
        batch._columns = records
        return batch

    @property
    def record_count(self) -> int:
        return len(self.values) if self._columns is None else len(self._columns)

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
        size_bytes: int,
        callback: Callback | None,
    ) -> RecordFuture:
        index = len(self.values)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.delivery.timestamps.append(timestamp)
        if key is not None:
            self.has_keys = True
        if headers:
            self.has_headers = True
        self.size_bytes += size_bytes
        if callback is not None:
            self.delivery.add_callback(index, callback)
        return RecordFuture(self.delivery, index)

    @property
    def records(self) -> Records:
        if self._columns is not None:
            return self._columns
        return RecordColumns(
            self.values,
            self.delivery.timestamps,
            self.keys if self.has_keys else None,
            self.headers if self.has_headers else None,
        )

    def encode(self, compression: Compression, level: int | None, is_transactional: bool) -> bytearray:
        """The bytes of the batch under its numbers, made once."""
        if self.data is None:
            self.data = self.records.build(
                compression=compression,
                level=level,
                producer_id=self.numbers.producer_id,
                producer_epoch=self.numbers.epoch,
                base_sequence=self.numbers.base_sequence,
                is_transactional=is_transactional,
            )
            self.delivery.size_bytes = len(self.data)
        return self.data

    def renumber(self, numbers: Numbers) -> None:
        self.numbers = numbers
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
            batch.size_bytes = max(1, self.size_bytes * len(piece) // len(records))
            batch.is_split = True
            batch.attempts = self.attempts
            batch.delivery.timestamps = self.delivery.timestamps[start : start + len(piece)]
            if self.has_numbers:
                batch.numbers = self.numbers._replace(base_sequence=sequence)
                sequence = batch.next_sequence
            batches.append(batch)
            start += len(piece)
        batches[0].reserved_bytes += self.reserved_bytes - reserved_each * len(pieces)
        self.delivery.moved([(each.record_count, each.delivery, 0) for each in batches])
        return batches
