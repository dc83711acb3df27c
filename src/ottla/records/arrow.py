"""Batches from and to Arrow arrays, through the raw buffers of pyarrow: no row ever becomes a Python object.

Needs the extra `arrow`; nothing else in this package imports it. The columns are those of Spark's Kafka rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.records import batch, codec
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.layout import HEADER_BYTES, BinaryColumn, DecodedColumns, HeadersColumn

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("headers", HEADERS_TYPE),
    ]
)


def build(
    keys: Any,
    values: Any,
    timestamps: Any,
    *,
    headers: Any = None,
    **options: Unpack[batch.BatchOptions],
) -> bytearray:
    """A batch of the rows of these arrays; the options are those of `batch.build`.

    Keys and values are binary or string arrays, keys None means that no row has one. Timestamps are int64
    milliseconds or Arrow timestamps, or one number for all. Headers are a list<struct<key, value>>.
    """
    row_count = len(values)
    for name, column in (("keys", keys), ("timestamps", timestamps), ("headers", headers)):
        if column is not None and not isinstance(column, int) and len(column) != row_count:
            raise ValueError(f"{len(column)} {name} beside {row_count} values")
    encoded = codec.encode_columns(
        row_count,
        None if keys is None else binary_buffers(keys),
        binary_buffers(values),
        timestamps if isinstance(timestamps, int) else timestamp_buffer(timestamps),
        None if headers is None else headers_buffers(headers),
        HEADER_BYTES,
    )
    return batch.wrap(
        encoded.records, row_count, row_count - 1, encoded.base_timestamp, encoded.max_timestamp, **options
    )


def decode(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Any:
    """The records of the batch at `position` as a `pyarrow.RecordBatch` of `SCHEMA`."""
    header = batch.read_header(data, position)
    decoded = codec.decode_columns(
        batch.records_of(data, position, limit=limit),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )
    arrays = arrays_of(decoded)
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def arrays_of(decoded: DecodedColumns, timestamp_type: Any = TIMESTAMP_TYPE) -> dict[str, Any]:
    """The columns of `SCHEMA` that were decoded, as arrays over the same memory.

    `timestamp_type`: for a decoder whose ticks are not milliseconds.
    """
    count = decoded.record_count
    arrays = {
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(decoded.offsets)]),
        "timestamp": pa.Array.from_buffers(timestamp_type, count, [None, pa.py_buffer(decoded.timestamps)]),
        "headers": _headers_array(decoded.headers, count),
    }
    if decoded.keys is not None:
        arrays["key"] = _binary_array(decoded.keys, count)
    if decoded.values is not None:
        arrays["value"] = _binary_array(decoded.values, count)
    return arrays


def _one_array(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _as_binary(array: Any) -> Any:
    array = _one_array(array)
    if array.type in (pa.binary(), pa.string()):
        return array
    # Large, fixed-size and view types: Arrow itself makes the plain form of them.
    return array.cast(pa.binary())


def binary_buffers(array: Any) -> BinaryColumn:
    """The buffers of an array of binary, string or their like."""
    array = _as_binary(array)
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        _offsets_from(offsets, array),
        b"" if data is None else data,
        validity if array.null_count else None,
        array.offset,
    )


def _offsets_from(offsets: Any, array: Any) -> Buffer:
    """The offsets of an array that may be a slice of a longer one; none at all may stand for an empty one."""
    return bytes(4) if offsets is None or not offsets.size else memoryview(offsets)[4 * array.offset :]


def timestamp_buffer(array: Any) -> Buffer:
    """The milliseconds of an array of Arrow timestamps or of int64."""
    array = _one_array(array)
    if array.null_count:
        raise ValueError("a record has a timestamp: nulls have no place here")
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    array = array.cast(pa.int64())
    _, data = array.buffers()
    return b"" if data is None else memoryview(data)[8 * array.offset :]


def headers_buffers(array: Any) -> HeadersColumn:
    """The buffers of an array of list<struct<key, value>>."""
    array = _one_array(array)
    if not (pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type)):
        array = array.cast(HEADERS_TYPE)
    validity, offsets = array.buffers()[:2]
    entries = array.values
    if entries.null_count:
        raise ValueError("a header has a key: a null has no place in a list of headers")
    return HeadersColumn(
        _offsets_from(offsets, array),
        binary_buffers(entries.field("key")),
        binary_buffers(entries.field("value")),
        validity if array.null_count else None,
        array.offset,
    )


def _binary_array(column: BinaryColumn, row_count: int) -> Any:
    return pa.Array.from_buffers(
        pa.binary(),
        row_count,
        [
            None if column.validity is None else pa.py_buffer(column.validity),
            pa.py_buffer(column.offsets),
            pa.py_buffer(column.data),
        ],
    )


def _headers_array(column: HeadersColumn | None, row_count: int) -> Any:
    offsets_buffer = bytes(4 * (row_count + 1)) if column is None else column.offsets
    offsets = pa.Array.from_buffers(pa.int32(), row_count + 1, [None, pa.py_buffer(offsets_buffer)])
    if column is None:
        return pa.ListArray.from_arrays(offsets, pa.array([], HEADERS_TYPE.value_type), HEADERS_TYPE)
    header_count = offsets[-1].as_py()
    entries = pa.StructArray.from_arrays(
        [_text(_binary_array(column.keys, header_count)), _binary_array(column.values, header_count)],
        fields=list(HEADERS_TYPE.value_type),
    )
    return pa.ListArray.from_arrays(offsets, entries, HEADERS_TYPE)


def _text(array: Any) -> Any:
    """Header keys are text by agreement only: a batch with other bytes in one is still read, as Java reads it."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([str(key, "utf-8", "replace") for key in array.to_pylist()], pa.string())
