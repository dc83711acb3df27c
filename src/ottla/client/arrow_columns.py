"""Records in Arrow columns, for a producer: from the columns to batches without a Python object per record.

    records = arrow_columns(table["value"], timestamps=now_ms, keys=table["key"])
    appended = await producer.produce("orders", records)

Needs the extra `arrow`; nothing else in this package imports it. Splitting by partition and by size moves no data: what
is handed on is the same columns with the numbers of the rows that are meant.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from ottla.client.retrying import UnknownTopicError
from ottla.records import arrow, batch, codec
from ottla.records.layout import HEADER_BYTES, RECORD_OVERHEAD_BYTES, BinaryColumn, HeadersColumn

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer

Column = TypeVar("Column", BinaryColumn, HeadersColumn)

ROW_NUMBER_BYTES: Final = 4  # int32, as the offsets of a column
OFFSET_BYTES: Final = 4
HEADERS_GUESS_BYTES: Final = 64  # of a record that has some


def arrow_columns(
    values: Any,
    timestamps: Any,
    keys: Any = None,
    headers: Any = None,
    partitions: Any = None,
    *,
    hashes_keys: bool = True,
) -> ArrowColumns:
    """The columns of pyarrow arrays.

    Values and keys are binary or string, timestamps milliseconds or Arrow timestamps or one number for all, headers
    list<struct<key, value>>, partitions int32 with null where the key decides. `hashes_keys` False: it never does.
    """
    row_count = len(values)
    named = {"keys": keys, "headers": headers, "partitions": partitions, "timestamps": timestamps}
    for name, column in named.items():
        if column is not None and not isinstance(column, int) and len(column) != row_count:
            raise ValueError(f"{len(column)} {name} beside {row_count} values")
    return ArrowColumns(
        row_count=row_count,
        values=arrow.binary_buffers(values),
        timestamps=timestamps if isinstance(timestamps, int) else arrow.timestamp_buffer(timestamps),
        keys=None if keys is None else arrow.binary_buffers(keys),
        headers=None if headers is None else arrow.headers_buffers(headers),
        partitions=partitions.combine_chunks() if isinstance(partitions, pa.ChunkedArray) else partitions,
        hashes_keys=hashes_keys,
    )


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """The raw buffers of columns, and which of their rows are meant: the int32 numbers in `rows`, or all."""

    row_count: int
    values: BinaryColumn
    timestamps: Buffer | int
    keys: BinaryColumn | None = None
    headers: HeadersColumn | None = None
    partitions: Any = None  # of pyarrow; looked at before rows are selected
    hashes_keys: bool = True
    rows: memoryview | None = None

    def __len__(self) -> int:
        return self.row_count if self.rows is None else len(self.rows) // ROW_NUMBER_BYTES

    def slice(self, start: int, end: int) -> ArrowColumns:
        if (start, end) == (0, len(self)):
            return self
        if self.rows is not None:
            return replace(self, rows=self.rows[ROW_NUMBER_BYTES * start : ROW_NUMBER_BYTES * end])
        return replace(
            self,
            row_count=end - start,
            values=_from_row(self.values, start),
            timestamps=self.timestamps
            if isinstance(self.timestamps, int)
            else memoryview(self.timestamps)[8 * start :],
            keys=None if self.keys is None else _from_row(self.keys, start),
            headers=None if self.headers is None else _from_row(self.headers, start),
            partitions=None if self.partitions is None else self.partitions.slice(start, end - start),
        )

    def by_partition(self, partition_count: int) -> dict[int | None, ArrowColumns]:
        assert self.rows is None, "columns are split by partition once"
        hashed_keys = self.keys if self.hashes_keys else None
        if self.partitions is None and partition_count == 1:
            return {0: self}
        if self.partitions is None and hashed_keys is None:
            return {None: self}
        keyless = partition_count  # one more than there are
        if hashed_keys is None:
            by_key: Buffer = pa.repeat(pa.scalar(keyless, pa.int32()), self.row_count).buffers()[1]
        else:
            by_key = codec.partitions_of_column(self.row_count, hashed_keys, partition_count, keyless)
        numbers = by_key if self.partitions is None else self._with_chosen(by_key, partition_count)
        groups = codec.group_rows(numbers, partition_count + 1)
        return {
            None if number == keyless else number: self if len(groups) == 1 else replace(self, rows=rows)
            for number, rows in groups
        }

    def _with_chosen(self, by_key: Buffer, partition_count: int) -> Buffer:
        """The partitions that rows name, and for those that name none what their key says."""
        import pyarrow.compute as pc  # not at the top: it takes a tenth of a second, and few records need it

        chosen = self.partitions.cast(pa.int32())
        bounds = pc.min_max(chosen)
        for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
            if bound is not None and not 0 <= bound < partition_count:
                raise UnknownTopicError(f"there is no partition {bound}: there are {partition_count}, counted from 0")
        fallback = pa.Array.from_buffers(pa.int32(), self.row_count, [None, pa.py_buffer(by_key)])
        merged = pc.coalesce(chosen, fallback)
        start = ROW_NUMBER_BYTES * merged.offset
        return memoryview(merged.buffers()[1])[start : start + ROW_NUMBER_BYTES * self.row_count]

    def pieces(self, batch_bytes_max: int) -> list[ArrowColumns]:
        ends = codec.split_columns(
            self.row_count, self.keys, self.values, self.headers, batch_bytes_max, rows=self.rows
        )
        return [self.slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def size_bytes(self) -> int:
        """By the bytes of all rows, where some of them are selected: rows of one column are alike."""
        count = len(self)
        columns = [self.values, *(() if self.keys is None else (self.keys,))]
        data_bytes = sum(_data_bytes(column, self.row_count) for column in columns)
        if self.headers is not None:
            data_bytes += self.row_count * HEADERS_GUESS_BYTES
        return count * RECORD_OVERHEAD_BYTES + data_bytes * count // max(1, self.row_count)

    def build(self, **options: Unpack[batch.BatchOptions]) -> bytearray:
        encoded = codec.encode_columns(
            self.row_count, self.keys, self.values, self.timestamps, self.headers, HEADER_BYTES, self.rows
        )
        count = len(self)
        return batch.wrap(encoded.records, count, count - 1, encoded.base_timestamp, encoded.max_timestamp, **options)


def _data_bytes(column: BinaryColumn, row_count: int) -> int:
    with memoryview(column.offsets).cast("B") as offsets:
        first, last = (
            int.from_bytes(offsets[OFFSET_BYTES * row : OFFSET_BYTES * (row + 1)], sys.byteorder)
            for row in (0, row_count)
        )
    return last - first


def _from_row(column: Column, start: int) -> Column:
    offsets = memoryview(column.offsets)[OFFSET_BYTES * start :]
    return column._replace(offsets=offsets, first_bit=column.first_bit + start)
