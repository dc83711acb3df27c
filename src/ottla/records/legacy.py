"""Messages of magic 0 and 1, as clients before Kafka 0.11 send them: read, and converted up to a batch.

A message set is a row of `offset, size, message`; a message is `crc, magic, attributes, [timestamp], key,
value` with int32 lengths. A compressed message wraps a whole message set in its value: inner offsets are
absolute in magic 0 and relative to the first in magic 1, whose wrapper carries the offset of the last. We
never write this format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from ottla.records.layout import (
    COMPRESSION_MASK,
    LEGACY_LENGTH_MIN,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    Compression,
    Problem,
    refusal,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_TIMESTAMP = -1

_ENTRY = struct.Struct(">qiIbb")  # offset, size, then the message: crc, magic, attributes
_CHECKSUMMED_AT = 4  # of a message: all but the checksum itself
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT = 0x08
_LZ4_DICTIONARY_BIT = 0x01


class LegacyMessage(NamedTuple):
    offset: int
    timestamp: int  # -1 in magic 0, which has none
    key: bytes | None
    value: bytes | None


class _Entry(NamedTuple):
    """A message as it lies in its set."""

    offset: int
    magic: int
    compression: Compression
    is_log_append_time: bool
    timestamp: int
    key: memoryview | None
    value: memoryview | None


def is_message(data: Buffer) -> bool:
    """Whether `data` starts with a whole and sound message, and not with something that only has its magic."""
    with memoryview(data) as view:
        try:
            next(_entries(view))
        except (RecordsError, StopIteration):
            return False
        return True


def read(data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> list[LegacyMessage]:
    """All messages of a set, unwrapped; at most `limit` bytes may come out of its wrappers together."""
    messages: list[LegacyMessage] = []
    with memoryview(data) as view:
        for entry in _entries(view):
            if entry.compression is Compression.NONE:
                messages.append(_message(entry, entry.offset, entry.timestamp))
            else:
                inner = _unwrap(entry, limit)
                limit -= len(inner)
                with memoryview(inner) as inner_view:
                    messages += _inner_messages(entry, inner_view)
    return messages


def convert_up(
    data: Buffer, *, compression: Compression | None = None, limit: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """One batch of magic 2 with the messages of a set, from offset 0 on, as if a producer of today had sent
    it.

    Keys, values and create times stay; magic 0 has no times, which become -1. The codec stays that of the
    first message, unless another is named.
    """
    messages = read(data, limit=limit)
    if not messages:
        raise RecordsError(ErrorCode.INVALID_RECORD, "the message set is empty")
    if compression is None:
        with memoryview(data) as view:
            compression = next(_entries(view)).compression
    _, timestamps, keys, values = zip(*messages, strict=True)
    return batch.build(list(keys), list(values), list(timestamps), compression=compression)


def _entries(view: memoryview) -> Iterator[_Entry]:
    position = 0
    while position < len(view):
        if len(view) - position < LENGTH_PREFIX + LEGACY_LENGTH_MIN:
            raise refusal(Problem.SHORT)
        offset, size, crc, magic, attributes = _ENTRY.unpack_from(view, position)
        if size < LEGACY_LENGTH_MIN:
            raise refusal(Problem.LENGTH)
        start = position + LENGTH_PREFIX
        end = start + size
        if end > len(view):
            raise refusal(Problem.SHORT)
        if magic not in (0, 1):
            raise refusal(Problem.MAGIC)
        if zlib.crc32(view[start + _CHECKSUMMED_AT : end]) != crc:
            raise refusal(Problem.CRC)
        codec_id = attributes & COMPRESSION_MASK
        if codec_id >= Compression.ZSTD:  # zstd came with magic 2 only
            raise refusal(Problem.CODEC)
        at = position + _ENTRY.size
        timestamp = NO_TIMESTAMP
        if magic == 1:
            if end - at < _INT64.size:
                raise refusal(Problem.LENGTH)
            (timestamp,) = _INT64.unpack_from(view, at)
            at += _INT64.size
        key, at = _nullable(view, at, end, Problem.KEY_LENGTH)
        value, at = _nullable(view, at, end, Problem.VALUE_LENGTH)
        if at != end:
            raise refusal(Problem.LENGTH)
        is_log_append_time = magic == 1 and bool(attributes & LOG_APPEND_TIME_BIT)
        yield _Entry(offset, magic, Compression(codec_id), is_log_append_time, timestamp, key, value)
        position = end


def _nullable(view: memoryview, at: int, end: int, problem: Problem) -> tuple[memoryview | None, int]:
    if end - at < _INT32.size:
        raise refusal(problem)
    (length,) = _INT32.unpack_from(view, at)
    at += _INT32.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise refusal(problem)
    return view[at : at + length], at + length


def _message(entry: _Entry, offset: int, timestamp: int) -> LegacyMessage:
    return LegacyMessage(
        offset,
        timestamp,
        None if entry.key is None else bytes(entry.key),
        None if entry.value is None else bytes(entry.value),
    )


def _unwrap(wrapper: _Entry, limit: int) -> bytes:
    if wrapper.value is None:
        raise RecordsError(ErrorCode.INVALID_RECORD, "a compressed message has no value")
    data: Buffer = wrapper.value
    if wrapper.compression is Compression.LZ4:
        data = _with_right_lz4_checksum(wrapper.value)
    return bytes(decompress(wrapper.compression, data, limit))


def _inner_messages(wrapper: _Entry, inner_view: memoryview) -> list[LegacyMessage]:
    inner = list(_entries(inner_view))
    if not inner:
        raise RecordsError(ErrorCode.INVALID_RECORD, "a compressed message wraps nothing")
    for entry in inner:
        if entry.compression is not Compression.NONE:
            raise RecordsError(ErrorCode.INVALID_RECORD, "a compressed message wraps another one")
        if entry.magic != wrapper.magic:
            raise RecordsError(ErrorCode.INVALID_RECORD, "a compressed message wraps messages of another magic")
    # The wrapper of magic 1 has the absolute offset of the last message; a producer leaves it 0.
    base_offset = max(wrapper.offset - inner[-1].offset, 0) if wrapper.magic == 1 else 0
    return [
        _message(
            entry,
            base_offset + entry.offset,
            wrapper.timestamp if wrapper.is_log_append_time else entry.timestamp,
        )
        for entry in inner
    ]


def _with_right_lz4_checksum(frame: memoryview) -> Buffer:
    """Mends the header checksum of an lz4 frame as old clients wrote it: over the magic number too (KAFKA-3160)."""
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC or frame[4] & _LZ4_DICTIONARY_BIT:
        return frame
    checksum_at = 14 if frame[4] & _LZ4_CONTENT_SIZE_BIT else 6
    if len(frame) <= checksum_at or frame[checksum_at] != _lz4_header_checksum(frame[:checksum_at]):
        return frame
    mended = bytearray(frame)
    mended[checksum_at] = _lz4_header_checksum(frame[4:checksum_at])
    return mended


def _lz4_header_checksum(descriptor: memoryview) -> int:
    """The second byte of xxHash-32; the descriptor is shorter than the 16 bytes that xxHash takes at a time."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = prime_5 + len(descriptor)
    words = len(descriptor) // 4 * 4
    for (word,) in struct.iter_unpack("<I", descriptor[:words]):
        value = _rotated(value + word * prime_3, 17) * prime_4
    for byte in descriptor[words:]:
        value = _rotated(value + byte * prime_5, 11) * prime_1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * prime_2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * prime_3 & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF
