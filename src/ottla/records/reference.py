"""The record core in readable Python: what `_native.pyx` does fast, said plainly.

It is the specification that the compiled core is tested against, and what runs where there is no compiler.
Functions take any bytes-like object without copying it and raise `RecordsError`, nothing else, for any bytes
at all.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import RecordsError
from ottla.hashing import murmur2
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    KNOWN_ATTRIBUTES,
    LEADER_EPOCH_AT,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LENGTH_MIN,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    RECORD_BYTES_MIN,
    RECORD_HEADER_BYTES_MIN,
    RECORD_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BinaryColumn,
    Checked,
    Columns,
    Compression,
    DecodedColumns,
    EncodedColumns,
    HeadersColumn,
    Problem,
    RecordHeaders,
    Retained,
    Scan,
    ScanEnd,
    refusal,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LENGTH_FIELD = struct.Struct(">i")
_BASE_OFFSET_FIELD = struct.Struct(">q")
_LEADER_EPOCH_FIELD = struct.Struct(">i")
HASHES_KEPT = 100_000  # keys repeat; hashing one in Python costs more than all the rest of its record


def _view(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" else view.cast("B")


# --- checksum -----------------------------------------------------------------------------------------------

_CRC32C_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_CRC_CHUNK_BYTES = 16384


@cache
def _crc_by_byte() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


@cache
def _crc_by_pair() -> tuple[list[int], list[int]]:
    """Two tables over 16 bits: the first pair of a word, with two zero bytes behind it, and the last pair."""
    by_byte = _crc_by_byte()
    last = []
    for crc in range(65536):
        crc = (crc >> 8) ^ by_byte[crc & 0xFF]
        last.append((crc >> 8) ^ by_byte[crc & 0xFF])
    first = [(crc >> 16) ^ last[crc & 0xFFFF] for crc in last]
    return first, last


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C of `data`, going on from `value`. Four bytes a step: several times as fast as byte by byte."""
    by_byte = _crc_by_byte()
    first, last = _crc_by_pair()
    crc = value ^ 0xFFFFFFFF
    with _view(data) as view:
        whole = len(view) // 4 * 4
        for start in range(0, whole, _CRC_CHUNK_BYTES):
            chunk = view[start : min(start + _CRC_CHUNK_BYTES, whole)]
            for word in struct.unpack(f"<{len(chunk) // 4}I", chunk):
                crc ^= word
                crc = first[crc & 0xFFFF] ^ last[crc >> 16]
        for byte in view[whole:]:
            crc = (crc >> 8) ^ by_byte[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# --- batches ------------------------------------------------------------------------------------------------


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, if it is all there and its magic and length can be."""
    with _view(data) as view:
        return _read_header(view, position)


def _read_header(view: memoryview, position: int) -> BatchHeader:
    if position < 0 or len(view) - position <= MAGIC_AT:
        raise refusal(Problem.SHORT)
    magic = view[position + MAGIC_AT]
    if magic in (0, 1):
        raise refusal(Problem.LEGACY_MAGIC)
    if magic != MAGIC:
        raise refusal(Problem.MAGIC)
    if len(view) - position < HEADER_BYTES:
        raise refusal(Problem.SHORT)
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.batch_length < LENGTH_MIN:
        raise refusal(Problem.LENGTH)
    return header


def _header_problem(header: BatchHeader) -> Problem | None:
    """What no batch may claim, whoever wrote it."""
    if header.base_offset < 0 or not 0 <= header.last_offset_delta <= INT64_MAX - 1 - header.base_offset:
        return Problem.OFFSETS
    if header.record_count < 0:
        return Problem.COUNT
    return None


def _producer_problem(header: BatchHeader) -> Problem | None:
    """What a producer's batch may not claim besides."""
    if header.attributes & ~KNOWN_ATTRIBUTES:
        return Problem.ATTRIBUTES
    if header.attributes & CONTROL_BIT:
        return Problem.CONTROL
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return Problem.COUNT
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Problem.SEQUENCE
    return None


def check_batch(data: Buffer, position: int, strict: bool, deep: bool) -> Checked:
    """Checks the batch at `position`; `deep` walks its records too, if they are not compressed."""
    with _view(data) as view:
        header = _read_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            raise refusal(Problem.SHORT)
        if crc32c(view[position + ATTRIBUTES_AT : end]) != header.crc:
            raise refusal(Problem.CRC)
        problem = _header_problem(header)
        if problem is None and header.attributes & COMPRESSION_MASK > Compression.ZSTD:
            problem = Problem.CODEC
        if problem is None and strict:
            problem = _producer_problem(header)
        if problem is not None:
            raise refusal(problem)
        if deep and not header.attributes & COMPRESSION_MASK:
            return check_records(view[position + HEADER_BYTES : end], header, strict)
        return Checked(header, header.max_timestamp, header.last_offset_delta, -1)


def stamp_plain(
    data: Buffer, base_offset: int, leader_epoch: int, size_max: int, timestamp_max: int, needs_keys: bool
) -> tuple[int, int, BatchHeader | None] | None:
    """Gives a plain batch its place in the log; None, and nothing is changed, where `data` is not one.

    Plain is a producer's batch that is sound, alone in `data`, not larger than `size_max`, not compressed, outside of
    transactions, and whose timestamps are right and not above `timestamp_max`. Told are the number of its records,
    their largest timestamp and, where its producer numbers its batches, the stamped header. Why a batch is not plain
    is for `check_batch` to say.
    """
    with _view(data) as view:
        if view.readonly or len(view) > size_max:
            return None
        try:
            header, max_timestamp, _, null_key_index = check_batch(view, 0, True, True)
        except RecordsError:
            return None
        if (
            header.size_bytes != len(view)
            or header.attributes & (COMPRESSION_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT)
            or max_timestamp != header.max_timestamp
            or max_timestamp > timestamp_max
            or (needs_keys and null_key_index >= 0)
        ):
            return None
        _BASE_OFFSET_FIELD.pack_into(view, 0, base_offset)
        _LEADER_EPOCH_FIELD.pack_into(view, LEADER_EPOCH_AT, leader_epoch)
        header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    return header.record_count, max_timestamp, header if header.producer_id >= 0 else None


def check_records(records: Buffer, header: BatchHeader, strict: bool) -> Checked:
    """Checks every record of a batch, given its header and its records, decompressed."""
    max_timestamp = INT64_MIN
    offset_of_max_timestamp_delta = -1
    null_key_index = -1
    previous_delta = -1
    is_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    with _view(records) as view:
        for index, record in enumerate(_walk(view, header.record_count)):
            delta = record.offset_delta
            if strict:
                in_order = delta == index
            else:
                in_order = previous_delta < delta <= header.last_offset_delta
            if not in_order:
                raise refusal(Problem.OFFSET_DELTA, index)
            previous_delta = delta
            timestamp = _timestamp_of(record, header.base_timestamp, index)
            if is_append_time:
                timestamp = header.max_timestamp
            if timestamp > max_timestamp or offset_of_max_timestamp_delta < 0:
                max_timestamp = timestamp
                offset_of_max_timestamp_delta = delta
            if null_key_index < 0 and record.key is None:
                null_key_index = index
    if offset_of_max_timestamp_delta < 0:
        return Checked(header, header.max_timestamp, header.last_offset_delta, -1)
    return Checked(header, max_timestamp, offset_of_max_timestamp_delta, null_key_index)


def scan(data: Buffer, position: int, end: int, check_crc: bool, batches_max: int) -> Scan:
    """The headers of the batches in `data[position:end]`, up to the first that is cut, bad or legacy."""
    headers: list[BatchHeader] = []
    with _view(data) as view:
        if not 0 <= position <= end <= len(view):
            raise refusal(Problem.SHORT)
        while position < end:
            if len(headers) >= batches_max:
                return Scan(headers, position, ScanEnd.MORE, None)
            remaining = end - position
            if remaining < LENGTH_PREFIX:
                return Scan(headers, position, ScanEnd.CUT, None)
            (length,) = _LENGTH_FIELD.unpack_from(view, position + LENGTH_AT)
            if length < LEGACY_LENGTH_MIN:
                return _bad(headers, position, Problem.LENGTH)
            if remaining <= MAGIC_AT:
                return Scan(headers, position, ScanEnd.CUT, None)
            magic = view[position + MAGIC_AT]
            if magic in (0, 1):
                return Scan(headers, position, ScanEnd.LEGACY, Problem.LEGACY_MAGIC.text)
            if magic != MAGIC:
                return _bad(headers, position, Problem.MAGIC)
            if length < LENGTH_MIN:
                return _bad(headers, position, Problem.LENGTH)
            batch_end = position + LENGTH_PREFIX + length
            if batch_end > end:
                return Scan(headers, position, ScanEnd.CUT, None)
            header = BatchHeader._make(HEADER.unpack_from(view, position))
            problem = _header_problem(header)
            if problem is not None:
                return _bad(headers, position, problem)
            if check_crc and crc32c(view[position + ATTRIBUTES_AT : batch_end]) != header.crc:
                return _bad(headers, position, Problem.CRC)
            headers.append(header)
            position = batch_end
    return Scan(headers, position, ScanEnd.END, None)


def _bad(headers: list[BatchHeader], position: int, problem: Problem) -> Scan:
    return Scan(headers, position, ScanEnd.BAD, problem.text)


# --- records ------------------------------------------------------------------------------------------------


class _RawRecord(NamedTuple):
    """A record as it lies in its section, its key and value still views."""

    start: int  # of the length field
    body_start: int
    end: int
    attributes: int
    timestamp_delta: int
    after_timestamp: int
    offset_delta: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[memoryview, memoryview | None]]


def _varint(view: memoryview, position: int, end: int, bits: int, index: int) -> tuple[int, int]:
    """A zigzag number of at most `bits` bits, and the position behind it."""
    if position < end and (byte := view[position]) < 0x80:  # nearly all numbers have one byte
        return (byte >> 1) ^ -(byte & 1), position + 1
    result = 0
    shift = 0
    while True:
        if position >= end or shift >= bits:
            raise refusal(Problem.VARINT, index)
        byte = view[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if result >> bits:
        raise refusal(Problem.VARINT, index)
    return (result >> 1) ^ -(result & 1), position


def _nullable(view: memoryview, position: int, end: int, problem: Problem, index: int) -> tuple[memoryview | None, int]:
    """Bytes behind their length, None for a length of -1."""
    length, position = _varint(view, position, end, 32, index)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise refusal(problem, index)
    return view[position : position + length], position + length


def _read_record(view: memoryview, start: int, index: int) -> _RawRecord:
    length, position = _varint(view, start, len(view), 32, index)
    body_start = position
    # The body has everything but the length field itself.
    if length < RECORD_BYTES_MIN - 1 or length > len(view) - position:
        raise refusal(Problem.RECORD_LENGTH, index)
    end = position + length
    attributes = view[position]
    timestamp_delta, after_timestamp = _varint(view, position + 1, end, 64, index)
    offset_delta, position = _varint(view, after_timestamp, end, 32, index)
    key, position = _nullable(view, position, end, Problem.KEY_LENGTH, index)
    value, position = _nullable(view, position, end, Problem.VALUE_LENGTH, index)
    header_count, position = _varint(view, position, end, 32, index)
    if header_count < 0 or header_count > (end - position) // RECORD_HEADER_BYTES_MIN:
        raise refusal(Problem.HEADER_COUNT, index)
    headers = []
    for _ in range(header_count):
        header_key, position = _nullable(view, position, end, Problem.HEADER_KEY, index)
        if header_key is None:
            raise refusal(Problem.HEADER_KEY, index)
        header_value, position = _nullable(view, position, end, Problem.HEADER_VALUE, index)
        headers.append((header_key, header_value))
    if position != end:
        raise refusal(Problem.RECORD_LENGTH, index)
    return _RawRecord(
        start,
        body_start,
        end,
        attributes,
        timestamp_delta,
        after_timestamp,
        offset_delta,
        key,
        value,
        headers,
    )


def _walk(view: memoryview, record_count: int) -> Iterator[_RawRecord]:
    """The records of a section: exactly `record_count` of them and not a byte more."""
    if not 0 <= record_count <= len(view) // RECORD_BYTES_MIN:
        raise refusal(Problem.COUNT)
    position = 0
    for index in range(record_count):
        record = _read_record(view, position, index)
        yield record
        position = record.end
    if position != len(view):
        raise refusal(Problem.TRAILING)


def _timestamp_of(record: _RawRecord, base_timestamp: int, index: int) -> int:
    timestamp = base_timestamp + record.timestamp_delta
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise refusal(Problem.TIMESTAMP, index)
    return timestamp


def _offset_of(record: _RawRecord, base_offset: int, index: int) -> int:
    offset = base_offset + record.offset_delta
    if record.offset_delta < 0 or not 0 <= base_offset <= offset < INT64_MAX:
        raise refusal(Problem.OFFSET_DELTA, index)
    return offset


def _owned(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def decode_records(
    records: Buffer, record_count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Columns:
    """The columns of a section; with `append_time`, that is the timestamp of every record."""
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[RecordHeaders] = []
    with _view(records) as view:
        for index, record in enumerate(_walk(view, record_count)):
            timestamp = _timestamp_of(record, base_timestamp, index)
            offsets.append(_offset_of(record, base_offset, index))
            timestamps.append(timestamp if append_time is None else append_time)
            keys.append(_owned(record.key))
            values.append(_owned(record.value))
            headers.append(
                tuple((str(key, "utf-8", "surrogateescape"), _owned(value)) for key, value in record.headers)
            )
    without_gaps = range(offsets[0], offsets[0] + len(offsets)) if offsets else range(0)
    if all(offset == expected for offset, expected in zip(offsets, without_gaps, strict=True)):
        return Columns(without_gaps, timestamps, keys, values, headers)
    return Columns(offsets, timestamps, keys, values, headers)


def _write_varint(out: bytearray, value: int) -> None:
    # Zigzag without a width: the number doubles, and a negative one lands on the odd places.
    value = value << 1 if value >= 0 else (~value << 1) | 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_nullable(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        _write_varint(out, -1)
    else:
        with _view(value) as view:
            _write_varint(out, len(view))
            out += view


def _write_headers(out: bytearray, headers: Sequence[tuple[str | bytes, Buffer | None]]) -> None:
    _write_varint(out, len(headers))
    for key, value in headers:
        _write_nullable(out, key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key)
        _write_nullable(out, value)


def encode_records(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: int | Sequence[int],
    headers: Sequence[Sequence[tuple[str | bytes, Buffer | None]]] | None,
    offset_deltas: Sequence[int] | None,
    base_timestamp: int,
    prefix_bytes: int,
) -> bytearray:
    """The section of these records, behind `prefix_bytes` zero bytes where the caller puts a header.

    `keys` None means that all keys are null, one timestamp that all records have it, `offset_deltas` None 0,
    1, 2, …
    """
    count = len(values)
    for column in (keys, headers, offset_deltas, timestamps):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ValueError(f"columns of different lengths: {len(column)} beside {count} values")
    out = bytearray(prefix_bytes)
    body = bytearray()
    for index in range(count):
        timestamp = timestamps if isinstance(timestamps, int) else timestamps[index]
        timestamp_delta = timestamp - base_timestamp
        if not (INT64_MIN <= timestamp <= INT64_MAX and INT64_MIN <= timestamp_delta <= INT64_MAX):
            raise refusal(Problem.TIMESTAMP, index)
        offset_delta = index if offset_deltas is None else offset_deltas[index]
        if not 0 <= offset_delta <= INT32_MAX:
            raise refusal(Problem.OFFSET_DELTA, index)
        body.clear()
        body.append(0)  # attributes: none are defined for a record
        _write_varint(body, timestamp_delta)
        _write_varint(body, offset_delta)
        _write_nullable(body, None if keys is None else keys[index])
        _write_nullable(body, values[index])
        _write_headers(body, () if headers is None else headers[index])
        _write_varint(out, len(body))
        out += body
        if len(out) > INT32_MAX:
            raise refusal(Problem.TOO_LARGE, index)
    return out


# --- Arrow columns ------------------------------------------------------------------------------------------


def _cells(column: BinaryColumn, row_count: int) -> list[bytes | None]:
    with _view(column.offsets) as offsets_view, _view(column.data) as data:
        offsets = _int32s(offsets_view, row_count + 1)
        if any(start > end for start, end in pairwise(offsets)) or offsets[0] < 0 or offsets[-1] > len(data):
            raise ValueError("the offsets of an Arrow column do not fit its data")
        valid = _valid_rows(column.validity, column.first_bit, row_count)
        return [bytes(data[offsets[row] : offsets[row + 1]]) if valid[row] else None for row in range(row_count)]


def _int32s(view: memoryview, count: int) -> tuple[int, ...]:
    if len(view) < 4 * count:
        raise ValueError("the offsets of an Arrow column are fewer than its rows")
    return struct.unpack_from(f"={count}i", view)


def _valid_rows(validity: Buffer | None, first_bit: int, row_count: int) -> list[bool]:
    if validity is None:
        return [True] * row_count
    with _view(validity) as view:
        if first_bit < 0 or len(view) * 8 < first_bit + row_count:
            raise ValueError("the validity bits of an Arrow column are fewer than its rows")
        return [bool(view[bit >> 3] >> (bit & 7) & 1) for bit in range(first_bit, first_bit + row_count)]


def _header_lists(
    column: HeadersColumn, row_count: int, rows: Sequence[int]
) -> list[list[tuple[str | bytes, bytes | None]]]:
    """The headers of the records that are in these rows."""
    with _view(column.offsets) as offsets_view:
        offsets = _int32s(offsets_view, row_count + 1)
    if any(start > end for start, end in pairwise(offsets)) or offsets[0] < 0:
        raise ValueError("the offsets of an Arrow column do not fit its data")
    keys = _cells(column.keys, offsets[-1])
    values = _cells(column.values, offsets[-1])
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


def _selected(rows: Buffer | None, row_count: int) -> Sequence[int]:
    """Which rows are meant, in which order: those of a buffer of int32, or all."""
    if rows is None:
        return range(row_count)
    with _view(rows) as view:
        numbers = _int32s(view, len(view) // 4)
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
    selected = _selected(rows, row_count)
    if not selected:
        raise ValueError("a batch is built of at least one record")
    if isinstance(timestamps, int):
        times: Sequence[int] = (timestamps,) * len(selected)
    else:
        with _view(timestamps) as view:
            if len(view) < 8 * row_count:
                raise ValueError("there are fewer timestamps than rows")
            all_times = struct.unpack_from(f"={row_count}q", view)
        times = [all_times[row] for row in selected]
    records = encode_records(
        None if keys is None else _selected_cells(keys, row_count, selected),
        _selected_cells(values, row_count, selected),
        times,
        None if headers is None else _header_lists(headers, row_count, selected),
        None,
        times[0],
        prefix_bytes,
    )
    return EncodedColumns(records, times[0], max(times))


def _selected_cells(column: BinaryColumn, row_count: int, rows: Sequence[int]) -> list[bytes | None]:
    cells = _cells(column, row_count)
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
        with _view(records) as view:
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


# --- rows to partitions and batches -------------------------------------------------------------------------

_hash_of_key = lru_cache(HASHES_KEPT)(murmur2)


def partitions_of_keys(keys: Sequence[bytes | None], partition_count: int, keyless: int) -> Buffer:
    """The partition of each key, as int32: Kafka's, and the number `keyless` for None."""
    if partition_count < 1:
        raise ValueError(f"keys cannot go to {partition_count} partitions")
    partitions = [keyless if key is None else (_hash_of_key(bytes(key)) & INT32_MAX) % partition_count for key in keys]
    return struct.pack(f"={len(partitions)}i", *partitions)


def partitions_of_column(row_count: int, keys: BinaryColumn, partition_count: int, keyless: int) -> Buffer:
    """The same for the keys of an Arrow column."""
    return partitions_of_keys(_cells(keys, row_count), partition_count, keyless)


def group_rows(numbers: Buffer, group_count: int) -> list[tuple[int, memoryview]]:
    """The rows of each group that has any, by the group's number. `numbers` says the group of each row; rows keep
    their order in it. All of these are int32."""
    groups: dict[int, list[int]] = {}
    with _view(numbers) as view:
        for row, number in enumerate(_int32s(view, len(view) // 4)):
            if not 0 <= number < group_count:
                raise ValueError(f"a row belongs to a group that is none of {group_count}")
            groups.setdefault(number, []).append(row)
    return [(number, memoryview(struct.pack(f"={len(rows)}i", *rows))) for number, rows in sorted(groups.items())]


def split_columns(
    row_count: int,
    keys: BinaryColumn | None,
    values: BinaryColumn,
    headers: HeadersColumn | None,
    bytes_max: int,
    rows: Buffer | None = None,
) -> list[int]:
    """Where the records of these Arrow columns, or of the selected `rows`, are to be cut so that no piece takes more
    than `bytes_max` in a batch: the end of each. A record that is larger alone stands alone."""
    selected = _selected(rows, row_count)
    sizes = [RECORD_OVERHEAD_BYTES + len(value or b"") for value in _selected_cells(values, row_count, selected)]
    if keys is not None:
        for index, key in enumerate(_selected_cells(keys, row_count, selected)):
            sizes[index] += len(key or b"")
    if headers is not None:
        for index, of_record in enumerate(_header_lists(headers, row_count, selected)):
            encoded = bytearray()
            _write_headers(encoded, of_record)
            sizes[index] += len(encoded)
    ends: list[int] = []
    total = 0
    for index, size in enumerate(sizes):
        if total and total + size > bytes_max:
            ends.append(index)
            total = 0
        total += size
    return [*ends, len(sizes)] if sizes else []


# --- compaction ---------------------------------------------------------------------------------------------

KEY_MAP_SLOT_BYTES = 24
KEY_MAP_LOAD_FACTOR = 0.9


class KeyOffsetMap:
    """The latest offset of each key in bounded memory, for compaction.

    Keys are known by a 128-bit hash under a secret of this map. The width makes an accidental collision
    (which would lose a record) as unlikely as a broken disk; the secret makes one that a producer prepares
    just as unlikely.
    """

    def __init__(self, memory_bytes: int, secret: bytes | None = None) -> None:
        self.capacity = int(memory_bytes // KEY_MAP_SLOT_BYTES * KEY_MAP_LOAD_FACTOR)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key: at least {2 * KEY_MAP_SLOT_BYTES} are needed")
        self.is_full = False  # a record did not fit: the last `note` stopped before it
        self._secret = secrets.token_bytes(16) if secret is None else secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def _digest(self, key: Buffer) -> bytes:
        return hashlib.blake2b(key, digest_size=16, key=self._secret).digest()

    def note(self, records: Buffer, record_count: int, base_offset: int, start_offset: int) -> int:
        """Notes the keys from `start_offset` on; returns the offset one past the last record that was looked
        at.

        Stops before a record whose key no longer fits, says so by `is_full` and returns that record's offset.
        Null keys are passed over.
        """
        end_offset = start_offset
        with _view(records) as view:
            for index, record in enumerate(_walk(view, record_count)):
                offset = _offset_of(record, base_offset, index)
                if offset < start_offset:
                    continue
                if record.key is not None:
                    digest = self._digest(record.key)
                    known = self._offsets.get(digest)
                    if known is None and len(self._offsets) >= self.capacity:
                        self.is_full = True
                        return offset
                    self._offsets[digest] = offset if known is None else max(known, offset)
                end_offset = offset + 1
        return end_offset

    def latest(self, key: Buffer) -> int:
        """The latest noted offset of `key`, -1 if it was never noted."""
        return self._offsets.get(self._digest(key), -1)


def retain(
    records: Buffer,
    record_count: int,
    base_offset: int,
    key_map: KeyOffsetMap,
    drop_tombstones: bool,
    timestamp_shift: int = 0,
) -> Retained:
    """What compaction keeps of a section: the latest record of each key, unless it is a tombstone to drop.

    Records without a key have no place in a compacted log and go. `timestamp_shift` is added to each
    timestamp delta, because a delete horizon takes the place of the base timestamp.
    """
    kept = bytearray()
    kept_count = 0
    max_timestamp_delta = INT64_MIN
    has_tombstones = False
    with _view(records) as view:
        for index, record in enumerate(_walk(view, record_count)):
            offset = _offset_of(record, base_offset, index)
            if record.key is None or offset < key_map.latest(record.key):
                continue
            if record.value is None:
                if drop_tombstones:
                    continue
                has_tombstones = True
            timestamp_delta = record.timestamp_delta + timestamp_shift
            if not INT64_MIN <= timestamp_delta <= INT64_MAX:
                raise refusal(Problem.TIMESTAMP, index)
            if timestamp_shift:
                body = bytearray([record.attributes])
                _write_varint(body, timestamp_delta)
                body += view[record.after_timestamp : record.end]
                _write_varint(kept, len(body))
                kept += body
            else:
                kept += view[record.start : record.end]
            kept_count += 1
            max_timestamp_delta = max(max_timestamp_delta, timestamp_delta)
    if not kept_count:
        max_timestamp_delta = 0
    return Retained(kept, kept_count, max_timestamp_delta, has_tombstones, kept_count < record_count)


def first_at_or_after(
    records: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    timestamp: int,
    start_offset: int,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record from `start_offset` on that is not older than `timestamp`."""
    with _view(records) as view:
        for index, record in enumerate(_walk(view, record_count)):
            offset = _offset_of(record, base_offset, index)
            found = _timestamp_of(record, base_timestamp, index)
            if append_time is not None:
                found = append_time
            if found >= timestamp and offset >= start_offset:
                return offset, found
    return None
