"""Arrow columns, as the buffers that Arrow keeps them in: records from them, and back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ottla.records.layout import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    RECORD_BYTES_MIN,
    BinaryColumn,
    DecodedColumns,
    EncodedColumns,
    HeadersColumn,
    Problem,
    RecordHeaders,
    refusal,
)
from ottla.records.reference.buffers import byte_view
from ottla.records.reference.sections import decode_records, encode_records

if TYPE_CHECKING:
    from typing_extensions import Buffer


def cells_of(column: BinaryColumn, row_count: int) -> list[bytes | None]:
    with byte_view(column.offsets) as offsets_view, byte_view(column.data) as data:
        offsets = int32s(offsets_view, row_count + 1)
        if any(start > end for start, end in pairwise(offsets)) or offsets[0] < 0 or offsets[-1] > len(data):
            raise ValueError("the offsets of an Arrow column do not fit its data")
        valid = _valid_rows(column.validity, column.first_bit, row_count)
        return [bytes(data[offsets[row] : offsets[row + 1]]) if valid[row] else None for row in range(row_count)]


def int32s(view: memoryview, count: int) -> tuple[int, ...]:
    if len(view) < 4 * count:
        raise ValueError("the offsets of an Arrow column are fewer than its rows")
    return struct.unpack_from(f"={count}i", view)


def _valid_rows(validity: Buffer | None, first_bit: int, row_count: int) -> list[bool]:
    if validity is None:
        return [True] * row_count
    with byte_view(validity) as view:
        if first_bit < 0 or len(view) * 8 < first_bit + row_count:
            raise ValueError("the validity bits of an Arrow column are fewer than its rows")
        return [bool(view[bit >> 3] >> (bit & 7) & 1) for bit in range(first_bit, first_bit + row_count)]


def header_lists(
    column: HeadersColumn, row_count: int, rows: Sequence[int]
) -> list[list[tuple[str | bytes, bytes | None]]]:
    """The headers of the records that are in these rows."""
    with byte_view(column.offsets) as offsets_view:
        offsets = int32s(offsets_view, row_count + 1)
    if any(start > end for start, end in pairwise(offsets)) or offsets[0] < 0:
        raise ValueError("the offsets of an Arrow column do not fit its data")
    keys = cells_of(column.keys, offsets[-1])
    values = cells_of(column.values, offsets[-1])
    valid = _valid_rows(column.validity, column.first_bit, row_count)
    lists: list[list[tuple[str | bytes, bytes | None]]] = []
    for index, row in enumerate(rows):
        headers: list[tuple[str | bytes, bytes | None]] = []
        for at in range(offsets[row], offsets[row + 1]) if valid[row] else ():
            key = keys[at]
            if key is None:
                raise refusal(Problem.HEADER_KEY, index)
            headers.append((key, values[at]))
        lists.append(headers)
    return lists


def selected_rows(rows: Buffer | None, row_count: int) -> Sequence[int]:
    """Which rows are meant, in which order: those of a buffer of int32, or all."""
    if rows is None:
        return range(row_count)
    with byte_view(rows) as view:
        numbers = int32s(view, len(view) // 4)
    if any(not 0 <= number < row_count for number in numbers):
        raise ValueError("a row is not there in the Arrow column")
    return numbers


def encode_columns(
    row_count: int,
    keys: BinaryColumn | None,
    values: BinaryColumn,
    timestamps: Buffer | int,
    headers: HeadersColumn | None,
    prefix_bytes: int,
    rows: Buffer | None = None,
) -> EncodedColumns:
    """The section of the records in these Arrow columns, behind `prefix_bytes` zero bytes for a header.

    `rows` are the numbers (int32) of the rows that are meant, in the order of the records; None means all.
    """
    selected = selected_rows(rows, row_count)
    if not selected:
        raise ValueError("a batch is built of at least one record")
    if isinstance(timestamps, int):
        times: Sequence[int] = (timestamps,) * len(selected)
    else:
        with byte_view(timestamps) as view:
            if len(view) < 8 * row_count:
                raise ValueError("there are fewer timestamps than rows")
            all_times = struct.unpack_from(f"={row_count}q", view)
        times = [all_times[row] for row in selected]
    records = encode_records(
        None if keys is None else selected_cells(keys, row_count, selected),
        selected_cells(values, row_count, selected),
        times,
        None if headers is None else header_lists(headers, row_count, selected),
        None,
        times[0],
        prefix_bytes,
    )
    return EncodedColumns(records, times[0], max(times))


def selected_cells(column: BinaryColumn, row_count: int, rows: Sequence[int]) -> list[bytes | None]:
    cells = cells_of(column, row_count)
    return [cells[row] for row in rows]


def _binary_column(cells: Sequence[bytes | None]) -> BinaryColumn:
    offsets = [0]
    validity = bytearray((len(cells) + 7) // 8)
    for row, cell in enumerate(cells):
        offsets.append(offsets[-1] + len(cell or b""))
        if cell is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return BinaryColumn(
        struct.pack(f"={len(offsets)}i", *offsets),
        b"".join(cell for cell in cells if cell),
        validity if None in cells else None,
    )


class ColumnsDecoder:
    """Records of any number of sections as Arrow's buffers, one set for all of them.

    Columns that nobody asked for are left out: keys and values become None, headers as if no record had any. Timestamps
    are in milliseconds, unless there are more ticks to one. After an error the decoder is of no more use.
    """

    def __init__(self, *, keys: bool = True, values: bool = True, headers: bool = True, ticks_per_ms: int = 1) -> None:
        self._wants_keys, self._wants_values, self._wants_headers = keys, values, headers
        self._ticks_per_ms = ticks_per_ms
        self._begin()

    def _begin(self) -> None:
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[RecordHeaders] = []

    @property
    def row_count(self) -> int:
        return len(self._offsets)

    @property
    def byte_count(self) -> int:
        """Of the columns of bytes so far."""
        cells = [*self._keys, *self._values]
        for headers in self._headers:
            for key, value in headers:
                cells += [key.encode("utf-8", "surrogateescape"), value]
        return sum(len(cell) for cell in cells if cell is not None)

    def add(
        self,
        records: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        start_offset: int = 0,
        end_offset: int = INT64_MAX,
    ) -> None:
        """Adds the records of a section whose offsets are in `[start_offset, end_offset)`."""
        with byte_view(records) as view:
            if not 0 <= record_count <= len(view) // RECORD_BYTES_MIN:
                raise refusal(Problem.COUNT)
            # The offsets of an Arrow column could not say so.
            if len(view) > INT32_MAX - sum(len(value) for value in self._values if value is not None):
                raise refusal(Problem.TOO_LARGE)
        columns = decode_records(records, record_count, base_offset, base_timestamp, append_time)
        for index, (offset, timestamp, key, value, headers) in enumerate(zip(*columns, strict=True)):
            if start_offset <= offset < end_offset:
                timestamp *= self._ticks_per_ms
                if not INT64_MIN <= timestamp <= INT64_MAX:
                    raise refusal(Problem.TIMESTAMP, index)
                self._offsets.append(offset)
                self._timestamps.append(timestamp)
                if self._wants_keys:
                    self._keys.append(key)
                if self._wants_values:
                    self._values.append(value)
                if self._wants_headers:
                    self._headers.append(headers)

    def finish(self) -> DecodedColumns:
        """What was added since the beginning, or since the last `finish`."""
        count = self.row_count
        headers = None
        if any(self._headers):
            flat = [header for of_record in self._headers for header in of_record]
            ends = accumulate((len(of_record) for of_record in self._headers), initial=0)
            headers = HeadersColumn(
                struct.pack(f"={count + 1}i", *ends),
                _binary_column([key.encode("utf-8", "surrogateescape") for key, _ in flat]),
                _binary_column([value for _, value in flat]),
            )
        decoded = DecodedColumns(
            count,
            struct.pack(f"={count}q", *self._offsets),
            struct.pack(f"={count}q", *self._timestamps),
            _binary_column(self._keys) if self._wants_keys else None,
            _binary_column(self._values) if self._wants_values else None,
            headers,
        )
        self._begin()
        return decoded


def decode_columns(
    records: Buffer, record_count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> DecodedColumns:
    """The records of a section as Arrow's buffers."""
    decoder = ColumnsDecoder()
    decoder.add(records, record_count, base_offset, base_timestamp, append_time)
    return decoder.finish()
