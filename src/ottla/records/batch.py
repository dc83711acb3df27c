"""Record batches of magic 2: check, read, build, stamp and rewrite them.

Works on bytes in memory and owns no state. The walk over bytes is the core's (`codec` picks it); what is here
adds the codecs, the header and the shape that the storage engine and the clients want. Whatever is wrong with
a batch is a `RecordsError` whose code may go to the peer as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from ottla.records import codec
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    INT32_MAX,
    LEADER_EPOCH_AT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Checked,
    Columns,
    Compression,
    Problem,
    Record,
    RecordHeaders,
    RefusedRecord,
    Scan,
    ScanEnd,
    refusal,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_UINT32 = struct.Struct(">I")

read_header = codec.read_header
stamp_plain = codec.stamp_plain
walk_run = codec.walk_run


# --- check --------------------------------------------------------------------------------------------------


def check(
    data: Buffer,
    position: int = 0,
    *,
    strict: bool = True,
    deep: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Checked:
    """Checks the batch at `position` as a broker must before it stores it; returns what an append needs to
    know.

    Always: length, magic, checksum, codec, offsets and count. `deep`: every record, decompressed if need be,
    with its lengths, numbers and offset deltas. `strict` is for a producer's batch: base offset 0, at least one
    record, as many offsets as records, no control batch, a sequence with a producer id; whether its offset deltas
    are 0..n-1 is reported. Without it, as from disk or from a leader, a batch has its place, and compaction may have
    left gaps or nothing at all.
    """
    checked = codec.check_batch(data, position, strict, deep)
    header = checked.header
    if not deep or not header.attributes & COMPRESSION_MASK:
        return checked
    return codec.check_records(_section(data, position, header, decompressed_bytes_max), header, strict)


def refused_records(
    data: Buffer, *, needs_keys: bool, timestamp_min: int, timestamp_max: int, records_max: int
) -> list[RefusedRecord]:
    """The first `records_max` records of a batch that lack a key they need, or whose time is outside of the range."""
    header = read_header(data)
    section = _section(data, 0, header, DECOMPRESSED_BYTES_MAX)
    return codec.refused_records(section, header, needs_keys, timestamp_min, timestamp_max, records_max)


def scan(
    data: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    batches_max: int = INT32_MAX,
) -> Scan:
    """Walks the batches in `data[position:end]` and stops before the first that is not whole and sound.

    What ended it is in `Scan.ended`: a batch that is cut wants more data, a bad one never was or no longer is
    a batch, and a message of an old magic is told apart, so that recovery refuses a log it cannot read
    instead of cutting it off.
    """
    if end is None:
        with memoryview(data) as view:
            end = view.nbytes
    return codec.scan(data, position, end, check_crc, batches_max)


# --- stamp --------------------------------------------------------------------------------------------------


def stamp(data: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Gives a batch its place in the log. Both fields stand before the part that the checksum covers."""
    _INT64.pack_into(data, position, base_offset)
    _INT32.pack_into(data, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(data: Buffer, now_ms: int, position: int = 0) -> None:
    """Makes `now_ms` the timestamp of every record of the batch (`message.timestamp.type=LogAppendTime`)."""
    header = read_header(data, position)
    _INT16.pack_into(data, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    stamp_max_timestamp(data, now_ms, position)


def stamp_create_time(data: Buffer, position: int = 0) -> None:
    """Takes back the claim that a broker stamped the records of the batch: each has its own time again."""
    header = read_header(data, position)
    _INT16.pack_into(data, position + ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME_BIT)
    with memoryview(data) as view:
        _seal(view[position : position + header.size_bytes])


def stamp_max_timestamp(data: Buffer, max_timestamp: int, position: int = 0) -> None:
    """Corrects the max timestamp where the producer's was wrong, and the checksum with it."""
    _INT64.pack_into(data, position + MAX_TIMESTAMP_AT, max_timestamp)
    with memoryview(data) as view:
        _seal(view[position : position + read_header(view, position).size_bytes])


def _seal(batch: Buffer) -> None:
    with memoryview(batch) as view:
        _UINT32.pack_into(view, CRC_AT, codec.crc32c(view[ATTRIBUTES_AT:]))


# --- read ---------------------------------------------------------------------------------------------------


def _section(data: Buffer, position: int, header: BatchHeader, limit: int) -> Buffer:
    with memoryview(data) as view:
        end = position + header.size_bytes
        if end > len(view):
            raise refusal(Problem.SHORT)
        compression = header.compression
        section = view[position + HEADER_BYTES : end]
        # A batch that compaction emptied names its codec still, but there is nothing to decompress.
        if compression is Compression.NONE or not len(section):
            return section
        with section:
            return decompress(compression, section, limit)


def records_of(
    data: Buffer, position: int = 0, *, header: BatchHeader | None = None, limit: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The records of the batch at `position`: a view of `data`, or the up to `limit` bytes they decompress to.

    `header`: that of the batch, where the caller has read it already.
    """
    return _section(data, position, read_header(data, position) if header is None else header, limit)


def decode(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Columns:
    """All records of the batch at `position`, column by column."""
    header = read_header(data, position)
    return codec.decode_records(
        _section(data, position, header, limit),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def iterate(data: Buffer, position: int = 0) -> Iterator[Record]:
    """The records of the batch at `position`, one by one: for convenience, not for speed."""
    return map(Record._make, zip(*decode(data, position), strict=True))


def first_at_or_after(
    data: Buffer,
    timestamp: int,
    position: int = 0,
    start_offset: int = 0,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of this batch, from `start_offset`, not before `timestamp`."""
    header = read_header(data, position)
    return codec.first_at_or_after(
        _section(data, position, header, decompressed_bytes_max),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        timestamp,
        start_offset,
    )


# --- build --------------------------------------------------------------------------------------------------


class BatchOptions(TypedDict, total=False):
    """What the header of a new batch says besides its records; see `wrap` for the defaults."""

    compression: Compression
    level: int | None
    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    log_append_time: bool
    delete_horizon_ms: int | None


def build(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: int | Sequence[int],
    *,
    headers: Sequence[Sequence[tuple[str | bytes, Buffer | None]]] | None = None,
    offset_deltas: Sequence[int] | None = None,
    **options: Unpack[BatchOptions],
) -> bytearray:
    """A batch of these records. `keys` None: no record has one; a single timestamp: all have it."""
    count = len(values)
    if not count:
        raise ValueError("a batch is built of at least one record; `rebuild` makes an empty one")
    first_timestamp, max_timestamp = _timestamp_range(timestamps)
    delete_horizon_ms = options.get("delete_horizon_ms")
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    records = codec.encode_records(keys, values, timestamps, headers, offset_deltas, base_timestamp, HEADER_BYTES)
    last_offset_delta = count - 1 if offset_deltas is None else offset_deltas[-1]
    return wrap(records, count, last_offset_delta, base_timestamp, max_timestamp, **options)


def build_plain(keys: Sequence[Buffer | None] | None, values: Sequence[Buffer | None], timestamp: int) -> bytearray:
    """`build` without options: one time, no codec, no producer.

    So are most batches of a broker's own, and of those of one record half the cost was to pass the options on.
    """
    assert values, "a batch is built of at least one record"
    batch = codec.encode_records(keys, values, timestamp, None, None, timestamp, HEADER_BYTES)
    count = len(values)
    length = len(batch) - LENGTH_PREFIX
    if length > INT32_MAX:
        raise refusal(Problem.TOO_LARGE)
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, 0, count - 1, timestamp, timestamp, -1, -1, -1, count)
    _seal(batch)
    return batch


def wrap(
    batch: bytearray,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Makes a batch of the encoded records in `batch`, which leave room for the header in front of them."""
    attributes = (
        (LOG_APPEND_TIME_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    return _finish(
        batch,
        compression,
        level,
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def _timestamp_range(timestamps: int | Sequence[int]) -> tuple[int, int]:
    """The first and the largest."""
    if isinstance(timestamps, int):
        return timestamps, timestamps
    return timestamps[0], max(timestamps)


def _finish(
    batch: bytearray,
    compression: Compression,
    level: int | None,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    *fields: int,
) -> bytearray:
    """Puts a header in front of the encoded records behind its place in `batch`, compressed if asked.

    `fields`: those behind the attributes, in their order; the count of records is the last. As values and not as a
    header, which takes longer to make than all the rest.
    """
    if compression is not Compression.NONE and fields[-1]:
        with memoryview(batch) as view:
            compressed = compress(compression, view[HEADER_BYTES:], level)
        batch = bytearray(HEADER_BYTES)
        batch += compressed
    if len(batch) - LENGTH_PREFIX > INT32_MAX:
        raise refusal(Problem.TOO_LARGE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_PREFIX,
        leader_epoch,
        MAGIC,
        0,  # the checksum, which is made of the rest
        attributes & ~COMPRESSION_MASK | compression,
        *fields,
    )
    _seal(batch)
    return batch


def rebuild(
    header: BatchHeader,
    records: Buffer,
    *,
    record_count: int,
    max_timestamp: int,
    delete_horizon_ms: int | None = None,
    compression: Compression | None = None,
    level: int | None = None,
) -> bytearray:
    """A batch around records that are encoded already, as compaction leaves them.

    Base offset, last offset delta, producer and sequence stay those of `header`: offsets never move, and the
    last sequence of a producer must be found again. `delete_horizon_ms` takes the place of the base
    timestamp: the caller has shifted the timestamp deltas to it. The codec stays, unless another is named.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    batch = bytearray(HEADER_BYTES)
    batch += records
    return _finish(
        batch,
        header.compression if compression is None else compression,
        level,
        header.base_offset,
        header.leader_epoch,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )


def renumber(data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> bytearray:
    """The same batch with the offset deltas 0, 1, 2, … that a producer should have given its records."""
    header = read_header(data)
    columns = codec.decode_records(
        _section(data, 0, header, limit), header.record_count, 0, header.base_timestamp, append_time=None
    )
    records = codec.encode_records(
        columns.keys, columns.values, columns.timestamps, columns.headers, None, header.base_timestamp, 0
    )
    return rebuild(header, records, record_count=header.record_count, max_timestamp=header.max_timestamp)


def recompress(
    data: Buffer,
    compression: Compression,
    position: int = 0,
    *,
    level: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same batch under another codec, for a topic whose `compression.type` is not the producer's."""
    header = read_header(data, position)
    return rebuild(
        header,
        _section(data, position, header, limit),
        record_count=header.record_count,
        max_timestamp=header.max_timestamp,
        compression=compression,
        level=level,
    )


__all__ = [
    "HEADER_BYTES",
    "LENGTH_PREFIX",
    "MAGIC",
    "BatchHeader",
    "BatchOptions",
    "Checked",
    "Columns",
    "Compression",
    "Record",
    "RecordHeaders",
    "Scan",
    "ScanEnd",
    "build",
    "build_plain",
    "check",
    "decode",
    "first_at_or_after",
    "iterate",
    "read_header",
    "rebuild",
    "recompress",
    "records_of",
    "refused_records",
    "renumber",
    "scan",
    "stamp",
    "stamp_append_time",
    "stamp_create_time",
    "stamp_max_timestamp",
    "wrap",
]
