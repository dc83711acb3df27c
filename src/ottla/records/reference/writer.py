"""Batches that are being filled record by record: each record is encoded when it is appended.

In the compiled core an append is one step that nothing interrupts: any thread may append while another closes the
batch, and it happens wholly before the close or not at all. Here whoever has threads needs a lock around both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.records.layout import (
    HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    RECORD_OVERHEAD_BYTES,
    EncodedColumns,
    Problem,
    RecordHeaders,
    refusal,
)
from ottla.records.reference.record import write_headers, write_nullable, write_varint
from ottla.records.reference.rows import cached_partition_of_key

NS_PER_MS = 1_000_000


class RecordPlace:
    """Which record of which batch: the base of a record's future."""

    __slots__ = ("delivery", "index")

    def __init__(self, delivery: Any, index: int) -> None:
        self.delivery = delivery
        self.index = index


class BatchWriter:
    """A batch in the making: `size_bytes` with its header, at most `limit_bytes` unless it has but one record.

    What an append returns is of the type `kind`, with `delivery` and the record's number. A callback is put with that
    number into the list `callbacks`.
    """

    def __init__(
        self,
        limit_bytes: int,
        kind: type[RecordPlace],
        delivery: Any,
        callbacks: list[tuple[int, Callable[..., object]]],
    ) -> None:
        if not issubclass(kind, RecordPlace):
            raise TypeError("the places of records are RecordPlaces")
        self._limit_bytes = limit_bytes
        self._kind = kind
        self._delivery = delivery
        self._callbacks = callbacks
        self._out = bytearray(HEADER_BYTES)
        self._timestamps: list[int] = []
        self.is_closed = False

    @property
    def size_bytes(self) -> int:
        return len(self._out)

    @property
    def record_count(self) -> int:
        return len(self._timestamps)

    @property
    def timestamps(self) -> Sequence[int]:
        """Of all records. For a closed one."""
        return self._timestamps

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: RecordHeaders,
        callback: Callable[..., object] | None,
    ) -> Any:
        """The place of the record; None where there is no room for it, or the batch is closed."""
        return self._append(key, value, timestamp, headers, callback, self._limit_bytes)

    def append_below(self, key: bytes | None, value: bytes | None, timestamp: int, callback: Any) -> Any:
        """The same, and None also where the record would fill the batch or is its first."""
        if not self._timestamps:
            return None
        return self._append(key, value, timestamp, (), callback, self._limit_bytes - 1)

    def _append(self, key: Any, value: Any, timestamp: int, headers: Any, callback: Any, limit_bytes: int) -> Any:
        if self.is_closed:
            return None
        index = len(self._timestamps)
        delta = timestamp - self._timestamps[0] if self._timestamps else 0
        if not (INT64_MIN <= timestamp <= INT64_MAX and INT64_MIN <= delta <= INT64_MAX):
            raise refusal(Problem.TIMESTAMP, index)
        body = bytearray(1)  # attributes: none are defined for a record
        write_varint(body, delta)
        write_varint(body, index)
        write_nullable(body, key)
        write_nullable(body, value)
        write_headers(body, headers)
        record = bytearray()
        write_varint(record, len(body))
        record += body
        if index and len(self._out) + len(record) > limit_bytes:
            return None
        if len(self._out) + len(record) > INT32_MAX:
            raise refusal(Problem.TOO_LARGE, index)
        if callback is not None:
            self._callbacks.append((index, callback))
        self._out += record
        self._timestamps.append(timestamp)
        place = self._kind.__new__(self._kind)
        place.delivery, place.index = self._delivery, index
        return place

    def close(self) -> None:
        """Takes no more records."""
        self.is_closed = True

    def finish(self) -> EncodedColumns:
        """What was written, behind room for a header; it takes no more. The bytes are handed over, always the same."""
        self.close()
        times = self._timestamps
        return EncodedColumns(self._out, times[0] if times else 0, max(times, default=0))


class OpenBatches:
    """The batches of a topic that are open for records, by partition, and where records go: the short way of a send.

    Whatever is not plain is left to the caller's long way: a record that is not bytes, or for a partition without an
    open batch, or too large, or that would fill its batch. Keys go where murmur2 sends them; records without one go to
    the sticky partition until so many bytes went there. `now_ns` is the clock for those without a timestamp.
    """

    def __init__(self, record_bytes_max: int, now_ns: Callable[[], int]) -> None:
        self._record_bytes_max = record_bytes_max
        self._now_ns = now_ns
        self._writers: list[BatchWriter | None] = []
        self._sticky = -1
        self._sticky_bytes_left = 0
        self.sticky_bytes = 0  # that went to the sticky partition on the short way

    def resize(self, partition_count: int) -> None:
        """The topic has so many partitions."""
        if partition_count < 1:
            raise ValueError(f"keys cannot go to {partition_count} partitions")
        del self._writers[partition_count:]
        self._writers += [None] * (partition_count - len(self._writers))

    def open(self, partition: int, writer: BatchWriter) -> None:
        self._writers[partition] = writer

    def close(self, partition: int) -> None:
        if partition < len(self._writers):
            self._writers[partition] = None

    def stick_to(self, partition: int, bytes_max: int) -> None:
        """Where records without a key go for the next so many bytes. -1: nowhere on the short way."""
        self._sticky, self._sticky_bytes_left, self.sticky_bytes = partition, bytes_max, 0

    def append(
        self,
        key: Any,
        value: Any,
        partition: int | None,
        timestamp: int | None,
        callback: Callable[..., object] | None,
    ) -> Any:
        """The place of the record in an open batch; None where it has to go the long way."""
        if not (key is None or type(key) is bytes) or not (value is None or type(value) is bytes):
            return None
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if size > self._record_bytes_max or not self._writers:
            return None
        is_sticky = partition is None and key is None
        if is_sticky:
            if self._sticky_bytes_left <= 0:
                return None
            partition = self._sticky
        elif partition is None:
            partition = cached_partition_of_key(key, len(self._writers))
        if type(partition) is not int or not 0 <= partition < len(self._writers):
            return None
        writer = self._writers[partition]
        if timestamp is None:
            timestamp = self._now_ns() // NS_PER_MS
        if writer is None or type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX:
            return None
        place = writer.append_below(key, value, timestamp, callback)
        if place is not None and is_sticky:
            self._sticky_bytes_left -= size
            self.sticky_bytes += size
        return place
