"""What a topic asks of a producer's batch before it is stored.

`records` knows whether a batch is sound; this knows whether the topic wants it: size, timestamps, keys, codec. It
decides over values and touches nothing but the batch itself, which it may re-stamp, recompress or convert. So it may
run in any thread, and must for the batches that take long: a few kilobytes can decompress to a hundred megabytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import LONG_MAX, LogConfig
from ottla.errors import ApiError, ErrorCode, RecordsError
from ottla.ids import NO_TIMESTAMP
from ottla.records import batch, legacy
from ottla.records.compression import DecompressedTooLargeError
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    INT64_MAX,
    INT64_MIN,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Checked,
    Compression,
    Problem,
    RefusedRecord,
    refusal,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}

# What may be done at once, by somebody whom others wait for. Decompressing so much takes 1 to 7 ms, by codec.
DECOMPRESSED_AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
# Of batches that are recompressed or checked record by record, which takes ten times as long.
REWRITTEN_AT_ONCE_BYTES_MAX = 16 * 1024
# Each message of an old format becomes objects many times its size.
LEGACY_DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
LEGACY_AT_ONCE_BYTES_MAX = 64 * 1024

# A clock's time and this stay within 64 bits; the largest setting means no bound.
AFTER_MAX_MS_MAX = 2**62
# A refused batch names its bad records up to here: those of the largest batch that librdkafka makes by itself.
RECORD_ERRORS_MAX = 10_000

_LENGTH = struct.Struct(">i")
_ONE_BATCH = "a produce request carries exactly one batch per partition"


class Admitted(NamedTuple):
    """A batch that may be appended: writable bytes that hold exactly one batch, and its header as it is now."""

    data: Buffer
    header: BatchHeader
    append_time_ms: int  # -1 where the records keep their producer's time


class TakesLongError(ApiError):
    """The batch may be fine, but to find out takes too long here and now: ask again where nobody waits."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, "the batch decompresses to more than is looked at at once")


class Admission:
    """The rules of one topic, looked up once: every produced batch passes here."""

    __slots__ = (
        "_before_max_ms",
        "_bytes_max",
        "_codec",
        "_config",
        "_looks_at_records",
        "_uses_append_time",
        "after_max_ms",
        "needs_keys",
        "plain_bytes_max",
    )

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._bytes_max = config.max_message_bytes
        self.needs_keys = config.is_compacted
        self._codec = _CODECS.get(config.compression_type)
        self._uses_append_time = config.uses_append_time
        self.after_max_ms = min(config.message_timestamp_after_max_ms, AFTER_MAX_MS_MAX)
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._looks_at_records = self._codec is not None or self._before_max_ms != LONG_MAX
        # A plain batch up to here has to keep two rules only, of times and keys; 0 where the topic asks for more.
        is_plain = not self._looks_at_records and not self._uses_append_time
        self.plain_bytes_max = min(config.max_message_bytes, config.segment_bytes) if is_plain else 0

    def check_fits_segment(self, batch_bytes: int) -> None:
        """RecordsError for a batch that is larger than a segment."""
        bytes_max = self._config.segment_bytes
        if batch_bytes > bytes_max:
            raise RecordsError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {batch_bytes} bytes, a segment {bytes_max} (segment.bytes)",
            )

    def admit(self, data: Buffer, now_ms: int, *, at_once: bool = False) -> Admitted:
        """Checks a producer's batch and brings it into the topic's form; RecordsError where it cannot be taken.

        With `at_once` it is TakesLongError where that would take more than some milliseconds.
        """
        view = data if type(data) is memoryview else memoryview(data)
        if view.readonly:
            view = memoryview(bytearray(view))
        if not len(view):
            raise RecordsError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
        view = only_batch(view)
        if len(view) > self._bytes_max:
            raise _too_large(len(view), self._config)
        if len(view) > MAGIC_AT and view[MAGIC_AT] < MAGIC:
            # Rewritten, so it is checked like any other: what an old client sent may still break a rule of the topic.
            view = _converted_up(view, at_once)
        if at_once:
            if self._looks_at_records and self._is_long_rewrite(view):
                raise TakesLongError
            try:
                checked = batch.check(view, decompressed_bytes_max=DECOMPRESSED_AT_ONCE_BYTES_MAX)
            except DecompressedTooLargeError:
                raise TakesLongError from None
        else:
            checked = batch.check(view)
        self._check_records(view, checked, now_ms)
        if not checked.is_in_order or checked.header.is_log_append_time:
            view, checked = _put_right(view, checked.header, at_once)
        header, max_timestamp, *_ = checked
        if self._uses_append_time:
            view = self._in_wanted_codec(view, header)
            batch.stamp_append_time(view, now_ms)
            return Admitted(view, batch.read_header(view), now_ms)
        if self._codec is not None or max_timestamp != header.max_timestamp:
            view = self._in_wanted_codec(view, header)
            batch.stamp_max_timestamp(view, max_timestamp)
            header = batch.read_header(view)
        return Admitted(view, header, NO_TIMESTAMP)

    def _check_records(self, view: memoryview, checked: Checked, now_ms: int) -> None:
        """What the topic asks of every record: a key, a time near the clock. Reports all that break a rule."""
        header = checked.header
        if header.is_log_append_time and (self._uses_append_time or header.max_timestamp == NO_TIMESTAMP):
            count = min(header.record_count, RECORD_ERRORS_MAX)
            reason = "claims log append time, which only a broker sets"
            raise _refusal(ErrorCode.INVALID_TIMESTAMP, [(index, reason) for index in range(count)])
        timestamp_min, timestamp_max = now_ms - self._before_max_ms, now_ms + self.after_max_ms
        if self._uses_append_time:
            timestamp_min, timestamp_max = INT64_MIN, INT64_MAX
        lacks_keys = self.needs_keys and checked.null_key_index >= 0
        may_be_old = self._before_max_ms != LONG_MAX and not self._uses_append_time
        if not lacks_keys and not may_be_old and checked.max_timestamp <= timestamp_max:
            return
        refused = batch.refused_records(
            view,
            needs_keys=self.needs_keys,
            timestamp_min=timestamp_min,
            timestamp_max=timestamp_max,
            records_max=RECORD_ERRORS_MAX,
        )
        if refused:
            has_bad_times = any(record.has_bad_time for record in refused)
            code = ErrorCode.INVALID_TIMESTAMP if has_bad_times else ErrorCode.INVALID_RECORD
            raise _refusal(code, [(record.record_index, _reason(record, now_ms)) for record in refused])

    def _is_long_rewrite(self, view: memoryview) -> bool:
        """Whether the topic requires that a large batch is recompressed, or decompressed twice."""
        if len(view) <= REWRITTEN_AT_ONCE_BYTES_MAX:
            return False
        codec = view[ATTRIBUTES_AT + 1] & COMPRESSION_MASK
        is_decompressed_twice = self._before_max_ms != LONG_MAX and codec != Compression.NONE
        return is_decompressed_twice or (self._codec is not None and codec != self._codec)

    def _in_wanted_codec(self, view: memoryview, header: BatchHeader) -> memoryview:
        """The batch under the codec that the topic asks for; as it is where it asks for none."""
        if self._codec is None or self._codec == header.compression:
            return view
        recompressed = memoryview(batch.recompress(view, self._codec, level=_level(self._codec, self._config)))
        if len(recompressed) > self._bytes_max:
            raise _too_large(len(recompressed), self._config)
        return recompressed


def only_batch(view: memoryview) -> memoryview:
    """The batch of a request without the beginning of another behind it; a whole one is refused, and so is rubbish.

    Kafka sees a set of batches whose last one may be cut, and drops that one.
    """
    if len(view) <= MAGIC_AT or view[MAGIC_AT] < MAGIC:
        return view
    end = LENGTH_PREFIX + _LENGTH.unpack_from(view, LENGTH_AT)[0]
    rest_bytes = len(view) - end
    if rest_bytes <= 0 or end < HEADER_BYTES:
        return view  # whatever is wrong with it is for the check to say
    if rest_bytes >= LENGTH_PREFIX:
        (length,) = _LENGTH.unpack_from(view, end + LENGTH_AT)
        magic = view[end + MAGIC_AT] if rest_bytes > MAGIC_AT else MAGIC
        if length < LEGACY_LENGTH_MIN or magic > MAGIC:
            raise RecordsError(ErrorCode.CORRUPT_MESSAGE, "the bytes after the batch are not a batch")
        if rest_bytes >= LENGTH_PREFIX + length:
            raise RecordsError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
    return view[:end]


def _put_right(view: memoryview, header: BatchHeader, at_once: bool) -> tuple[memoryview, Checked]:
    """A batch whose producer was careless: it claims a broker's time, or numbers its records as it likes.

    Kafka stores such numbers as they are, which gives readers offsets twice or never; here they are made right. Under a
    codec it fails on them.
    """
    if at_once and len(view) > REWRITTEN_AT_ONCE_BYTES_MAX:
        raise TakesLongError
    if header.is_log_append_time:
        batch.stamp_create_time(view)
    checked = batch.check(view)
    if not checked.is_in_order:
        if header.compression is not Compression.NONE:
            raise refusal(Problem.OFFSET_DELTA)
        view = memoryview(batch.renumber(view))
        checked = batch.check(view)
    return view, checked


def _converted_up(messages: memoryview, at_once: bool) -> memoryview:
    if not at_once:
        return memoryview(legacy.convert_up(messages, limit=LEGACY_DECOMPRESSED_BYTES_MAX))
    if len(messages) > LEGACY_AT_ONCE_BYTES_MAX:
        raise TakesLongError
    try:
        return memoryview(legacy.convert_up(messages, limit=LEGACY_AT_ONCE_BYTES_MAX))
    except DecompressedTooLargeError:
        raise TakesLongError from None


def _too_large(size_bytes: int, config: LogConfig) -> RecordsError:
    return RecordsError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size_bytes} bytes, the topic takes {config.max_message_bytes} (max.message.bytes)",
    )


def _level(codec: Compression, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)


def _refusal(code: ErrorCode, bad_records: list[tuple[int, str]]) -> RecordsError:
    index, reason = bad_records[0]
    message = f"{len(bad_records)} records are refused, the first of them is record {index}: {reason}"
    return RecordsError(code, message, bad_records=bad_records)


def _reason(record: RefusedRecord, now_ms: int) -> str:
    if not record.has_bad_time:
        return "it has no key, which a compacted topic needs"
    return (
        f"its timestamp {record.timestamp} is too far from the broker's clock {now_ms} "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
    )
