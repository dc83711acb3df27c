"""One record: how it lies in the section of its batch, how it is read and written. `_record.h` is its compiled twin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.layout import INT64_MAX, INT64_MIN, RECORD_BYTES_MIN, RECORD_HEADER_BYTES_MIN, Problem, refusal
from ottla.records.reference.buffers import byte_view

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RawRecord(NamedTuple):
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
    """Bytes behind their length, None for a negative one: writers use -1, and Kafka reads any as null."""
    length, position = _varint(view, position, end, 32, index)
    if length < 0:
        return None, position
    if length > end - position:
        raise refusal(problem, index)
    return view[position : position + length], position + length


def _read_record(view: memoryview, start: int, index: int) -> RawRecord:
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
    return RawRecord(
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


def walk(view: memoryview, record_count: int) -> Iterator[RawRecord]:
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


def timestamp_of(record: RawRecord, base_timestamp: int, index: int) -> int:
    timestamp = base_timestamp + record.timestamp_delta
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise refusal(Problem.TIMESTAMP, index)
    return timestamp


def offset_of(record: RawRecord, base_offset: int, index: int) -> int:
    offset = base_offset + record.offset_delta
    if record.offset_delta < 0 or not 0 <= base_offset <= offset < INT64_MAX:
        raise refusal(Problem.OFFSET_DELTA, index)
    return offset


def write_varint(out: bytearray, value: int) -> None:
    # Zigzag without a width: the number doubles, and a negative one lands on the odd places.
    value = value << 1 if value >= 0 else (~value << 1) | 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_nullable(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        with byte_view(value) as view:
            write_varint(out, len(view))
            out += view


def write_headers(out: bytearray, headers: Sequence[tuple[str | bytes, Buffer | None]]) -> None:
    write_varint(out, len(headers))
    for key, value in headers:
        write_nullable(out, key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key)
        write_nullable(out, value)
