"""The section of a batch: its records, decompressed. It is checked, decoded to lists, encoded from them, searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.records.layout import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Checked,
    Columns,
    Problem,
    RecordHeaders,
    RefusedRecord,
    refusal,
)
from ottla.records.reference.buffers import byte_view
from ottla.records.reference.record import offset_of, timestamp_of, walk, write_headers, write_nullable, write_varint

if TYPE_CHECKING:
    from typing_extensions import Buffer

Named = TypeVar("Named", bound=tuple[Any, ...])


def check_records(records: Buffer, header: BatchHeader, strict: bool) -> Checked:
    """Checks every record of a batch, given its header and its records, decompressed.

    The offset deltas of a producer's batch (`strict`) may be anything: what comes of it is for the caller to say.
    """
    max_timestamp = INT64_MIN
    offset_of_max_timestamp_delta = -1
    null_key_index = -1
    previous_delta = -1
    is_in_order = True
    is_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    with byte_view(records) as view:
        for index, record in enumerate(walk(view, header.record_count)):
            delta = record.offset_delta
            if delta != index:
                is_in_order = False
            if not strict and not previous_delta < delta <= header.last_offset_delta:
                raise refusal(Problem.OFFSET_DELTA, index)
            previous_delta = delta
            timestamp = timestamp_of(record, header.base_timestamp, index)
            if is_append_time:
                timestamp = header.max_timestamp
            if timestamp > max_timestamp or offset_of_max_timestamp_delta < 0:
                max_timestamp = timestamp
                offset_of_max_timestamp_delta = delta
            if null_key_index < 0 and record.key is None:
                null_key_index = index
    if offset_of_max_timestamp_delta < 0:
        return Checked(header, header.max_timestamp, header.last_offset_delta, -1, True)
    return Checked(header, max_timestamp, offset_of_max_timestamp_delta, null_key_index, is_in_order)


def refused_records(
    records: Buffer,
    header: BatchHeader,
    needs_keys: bool,
    timestamp_min: int,
    timestamp_max: int,
    records_max: int,
) -> list[RefusedRecord]:
    """The first `records_max` records without a key, where they need one, or with a time outside of the range.

    A record without a time (-1) has no bad one. Of a record that breaks both rules the key is reported.
    """
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    refused: list[RefusedRecord] = []
    with byte_view(records) as view:
        for index, record in enumerate(walk(view, header.record_count)):
            timestamp = timestamp_of(record, header.base_timestamp, index)
            if append_time is not None:
                timestamp = append_time
            lacks_key = needs_keys and record.key is None
            if len(refused) < records_max and (
                lacks_key or (timestamp != -1 and not timestamp_min <= timestamp <= timestamp_max)
            ):
                refused.append(RefusedRecord(index, timestamp, not lacks_key))
    return refused


def decode_records(
    records: Buffer, record_count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Columns:
    """The columns of a section; with `append_time`, that is the timestamp of every record."""
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[RecordHeaders] = []
    with byte_view(records) as view:
        for index, record in enumerate(walk(view, record_count)):
            timestamp = timestamp_of(record, base_timestamp, index)
            offsets.append(offset_of(record, base_offset, index))
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


def _owned(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def decode_named(
    records: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    start_offset: int,
    kind: type[Named],
    topic: str,
    partition: int,
    timestamp_type: int,
    leader_epoch: int,
) -> list[Named]:
    """The records of a section from `start_offset` on, each as a named tuple for a consumer.

    Its fields: topic, partition, offset, timestamp, its type, key, value, headers, leader epoch, and the sizes of key
    and value, which are -1 for null.
    """
    if not issubclass(kind, tuple):
        raise TypeError("records become named tuples")
    columns = decode_records(records, record_count, base_offset, base_timestamp, append_time)
    return [
        tuple.__new__(
            kind,
            (
                topic,
                partition,
                offset,
                timestamp,
                timestamp_type,
                key,
                value,
                headers,
                leader_epoch,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            ),
        )
        for offset, timestamp, key, value, headers in zip(*columns, strict=True)
        if offset >= start_offset
    ]


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
        write_varint(body, timestamp_delta)
        write_varint(body, offset_delta)
        write_nullable(body, None if keys is None else keys[index])
        write_nullable(body, values[index])
        write_headers(body, () if headers is None else headers[index])
        write_varint(out, len(body))
        out += body
        if len(out) > INT32_MAX:
            raise refusal(Problem.TOO_LARGE, index)
    return out


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
    with byte_view(records) as view:
        for index, record in enumerate(walk(view, record_count)):
            offset = offset_of(record, base_offset, index)
            found = timestamp_of(record, base_timestamp, index)
            if append_time is not None:
                found = append_time
            if found >= timestamp and offset >= start_offset:
                return offset, found
    return None
