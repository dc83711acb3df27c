"""The layout of a record batch (magic 2) and the values that the record core takes and hands out.

A batch is a header of 61 bytes and a section of records, which its codec may have compressed as a whole. Base
offset, length and leader epoch stand before the checksummed part, so a broker stamps them without touching
the checksum:

    0 base offset · 8 length of what follows · 12 leader epoch · 16 magic · 17 CRC-32C of all from byte 21 on
    21 attributes · 23 last offset delta · 27 base timestamp · 35 max timestamp
    43 producer id · 51 producer epoch · 53 base sequence · 57 record count · 61 records

Both cores, the readable reference and the compiled one, share what is written here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.errors import ErrorCode, RecordsError

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LENGTH_PREFIX = 12  # base offset and length: a batch is this much longer than its length field says
LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43  # id, epoch and base sequence stand together

MAGIC = 2
# The shortest message of magic 0: checksum, magic, attributes, null key, null value.
LEGACY_LENGTH_MIN = 14

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each at
# least.
RECORD_BYTES_MIN = 7
# A header of a record: key length and value length.
RECORD_HEADER_BYTES_MIN = 2
# What stands around key, value and headers of a record, at most, in a batch of about a megabyte: the number by which
# producers cut their records into batches.
RECORD_OVERHEAD_BYTES = 24

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

# A record's headers in order. A key is text; bytes that are not UTF-8 survive as surrogate escapes.
RecordHeaders = tuple[tuple[str, bytes | None], ...]


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, field by field, and what follows from them."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset; after 2^31-1 sequences start again at 0. -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def compression(self) -> Compression:
        codec_id = self.attributes & COMPRESSION_MASK
        if codec_id > Compression.ZSTD:
            raise refusal(Problem.CODEC)
        return Compression(codec_id)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of this batch may go: compaction puts it in place of the base timestamp."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0


class Checked(NamedTuple):
    """A batch that passed `check`, and what a leader's append learns in the same walk.

    A shallow check, and any check of an empty batch, repeats the header's claim: its max timestamp at its
    last offset.
    """

    header: BatchHeader
    max_timestamp: int
    offset_of_max_timestamp_delta: int  # of the first record that has the max timestamp
    null_key_index: int  # the first record without a key, -1 if there is none: a compacted topic refuses it
    is_in_order: bool  # whether the offset deltas are 0, 1, 2, …: those of a producer's batch need not be


class RefusedRecord(NamedTuple):
    """A record that a topic does not take: for its time, or because it has no key."""

    record_index: int
    timestamp: int
    has_bad_time: bool  # where False, it is the key that is missing


class ScanEnd(StrEnum):
    """Why a scan came to its end."""

    END = "end"  # the data ended with a whole batch
    CUT = "cut"  # the data ended inside a batch: more is needed
    BAD = "bad"  # what follows is not a batch
    LEGACY = "legacy"  # what follows is a message of magic 0 or 1: not ours to read, not ours to throw away
    MORE = "more"  # the caller's limit of batches was reached


class Scan(NamedTuple):
    """The whole batches in front of `end_position`; `problem` says what is wrong behind it, if anything."""

    headers: list[BatchHeader]
    end_position: int
    ended: ScanEnd
    problem: str | None

    @property
    def is_cut(self) -> bool:
        return self.ended is ScanEnd.CUT

    @property
    def is_legacy(self) -> bool:
        return self.ended is ScanEnd.LEGACY

    @property
    def positions(self) -> list[int]:
        """Where each batch starts, in step with `headers`."""
        positions = []
        position = self.end_position
        for header in reversed(self.headers):
            position -= header.size_bytes
            positions.append(position)
        positions.reverse()
        return positions


# Batches one behind the other that a log may take as they are, and what it has to know of them: see `walk_run`. Bare
# tuples, for a log unpacks one for every append of a follower, and with a named one that takes three times as long.
IndexedBatch: TypeAlias = tuple[int, int, int, int]
Run: TypeAlias = tuple[int, int, int, int, int, int, int, int, Sequence[IndexedBatch], Sequence["BatchHeader"]]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class Columns(NamedTuple):
    """The records of a batch, column by column. Offsets without gaps come as a `range`."""

    offsets: Sequence[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[RecordHeaders]


class BinaryColumn(NamedTuple):
    """An Arrow array of binary or string as its raw buffers: one more int32 offset than it has rows, and
    data.

    Row n is null if bit `first_bit + n` of `validity`, counted from the lowest of each byte, is not set.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None = None  # None: no row is null
    first_bit: int = 0


class HeadersColumn(NamedTuple):
    """An Arrow array of list<struct<key, value>>: int32 offsets into the columns of all headers."""

    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    first_bit: int = 0


class EncodedColumns(NamedTuple):
    records: bytearray
    base_timestamp: int
    max_timestamp: int


class DecodedColumns(NamedTuple):
    """Records as Arrow's buffers; offsets and timestamps are int64."""

    record_count: int
    offsets: Buffer
    timestamps: Buffer
    keys: BinaryColumn | None  # None: nobody asked for them
    values: BinaryColumn | None
    headers: HeadersColumn | None  # None: no record has any


class Retained(NamedTuple):
    """What compaction keeps of a section of records. Deltas are those of the new section, after the shift."""

    records: bytearray
    record_count: int
    max_timestamp_delta: int  # 0 when no record is left
    has_tombstones: bool  # some are kept: the batch needs a delete horizon
    has_dropped: bool


class Problem(IntEnum):
    """Everything that can be wrong with a batch: the error code for the peer and the words for the log.

    The numbers are known to the compiled core.
    """

    code: ErrorCode
    text: str

    def __new__(cls, number: int, code: ErrorCode, text: str) -> Problem:
        member = int.__new__(cls, number)
        member._value_ = number
        member.code = code
        member.text = text
        return member

    SHORT = 1, ErrorCode.CORRUPT_MESSAGE, "the batch is cut: its bytes end before its length does"
    LENGTH = 2, ErrorCode.CORRUPT_MESSAGE, "the batch length is below the smallest possible"
    LEGACY_MAGIC = (
        3,
        ErrorCode.INVALID_RECORD,
        "the message has the old magic 0 or 1 where only magic 2 is allowed",
    )
    MAGIC = 4, ErrorCode.CORRUPT_MESSAGE, "the magic byte is not 2"
    CRC = 5, ErrorCode.CORRUPT_MESSAGE, "the checksum does not fit the bytes of the batch"
    CODEC = 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "the batch names an unknown compression codec"
    OFFSETS = 8, ErrorCode.CORRUPT_MESSAGE, "the batch claims offsets that cannot be"
    COUNT = 9, ErrorCode.INVALID_RECORD, "the record count does not fit the batch"
    CONTROL = 10, ErrorCode.INVALID_RECORD, "clients are not allowed to write control batches"
    SEQUENCE = 11, ErrorCode.INVALID_RECORD, "the batch has a producer id but no sequence"
    BASE_OFFSET = 12, ErrorCode.INVALID_RECORD, "the base offset is not 0: a batch gets its place from the broker"
    VARINT = 20, ErrorCode.INVALID_RECORD, "a variable-length number runs past its record or its width"
    RECORD_LENGTH = 21, ErrorCode.INVALID_RECORD, "a record's length does not fit its fields or its batch"
    KEY_LENGTH = 22, ErrorCode.INVALID_RECORD, "a key length does not fit its record"
    VALUE_LENGTH = 23, ErrorCode.INVALID_RECORD, "a value length does not fit its record"
    HEADER_COUNT = 24, ErrorCode.INVALID_RECORD, "a header count does not fit its record"
    HEADER_KEY = 25, ErrorCode.INVALID_RECORD, "a header's key length does not fit its record"
    HEADER_VALUE = 26, ErrorCode.INVALID_RECORD, "a header's value length does not fit its record"
    OFFSET_DELTA = 27, ErrorCode.INVALID_RECORD, "a record's offset delta is out of order"
    TIMESTAMP = 28, ErrorCode.INVALID_RECORD, "a record's timestamp does not fit 64 bits"
    TRAILING = 29, ErrorCode.INVALID_RECORD, "bytes are left after the last record"
    TOO_LARGE = 30, ErrorCode.MESSAGE_TOO_LARGE, "the records do not fit the 2 GiB of a batch"


def refusal(problem: Problem, record_index: int = -1) -> RecordsError:
    """The exception for a problem, with the record where it was found (-1: not in a record)."""
    if record_index < 0:
        return RecordsError(problem.code, problem.text)
    return RecordsError(problem.code, f"record {record_index}: {problem.text}", record_index)
