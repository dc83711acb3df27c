"""What a topic asks of a producer's batch before it is stored.

`records` knows whether a batch is sound; this knows whether the topic wants it: size, timestamps, keys, codec. It
decides over values and touches nothing but the batch itself, which it may re-stamp, recompress or convert. So it may
run in any thread, and must for the batches that take long: a few kilobytes can unfold to a hundred megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config import LONG_MAX, LogConfig
from ottla.errors import ApiError, ErrorCode, RecordsError
from ottla.ids import NO_TIMESTAMP
from ottla.records import batch, legacy
from ottla.records.compression import UnfoldsTooFarError
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Compression,
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

# What may be done at once, by somebody whom others wait for. Unfolding so much takes 1 to 7 ms, by codec.
UNFOLDED_AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
# Of batches that are compressed anew or looked at record by record, which takes ten times as long.
REWRITTEN_AT_ONCE_BYTES_MAX = 16 * 1024
# Each message of an old format becomes objects many times its size.
LEGACY_UNFOLDED_BYTES_MAX = 16 * 1024 * 1024
LEGACY_AT_ONCE_BYTES_MAX = 64 * 1024

_ONE_BATCH = "a produce request carries exactly one batch per partition"


class Admitted(NamedTuple):
    """A batch that may be appended: writable bytes that hold exactly one batch, and its header as it is now."""

    data: Buffer
    header: BatchHeader
    append_time_ms: int  # -1 where the records keep their producer's time


class TakesLongError(ApiError):
    """The batch may be fine, but to find out takes too long here and now: ask again where nobody waits."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, "the batch unfolds to more than is looked at at once")


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
        self.after_max_ms = config.message_timestamp_after_max_ms
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._looks_at_records = self._codec is not None or self._before_max_ms != LONG_MAX
        # A plain batch up to here has to keep two rules only, of times and keys; 0 where the topic asks for more.
        is_plain = not self._looks_at_records and not self._uses_append_time
        self.plain_bytes_max = min(config.max_message_bytes, config.segment_bytes) if is_plain else 0

    def admit(self, data: Buffer, now_ms: int, *, at_once: bool = False) -> Admitted:
        """Checks a producer's batch and brings it into the topic's form; RecordsError where it cannot be taken.

        With `at_once` it is TakesLongError where that would take more than some milliseconds.
        """
        view = data if type(data) is memoryview else memoryview(data)
        if view.readonly:
            view = memoryview(bytearray(view))
        size_bytes = len(view)
        if not size_bytes:
            raise RecordsError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
        if size_bytes > self._bytes_max:
            raise _too_large(size_bytes, self._config)
        if size_bytes > MAGIC_AT and view[MAGIC_AT] < MAGIC:
            # Made anew, so it is checked like any other: what an old client sent may still break a rule of the topic.
            view = _converted_up(view, at_once)
            size_bytes = len(view)
        if at_once:
            if self._looks_at_records and self._is_long_rewrite(view):
                raise TakesLongError
            try:
                checked = batch.check(view, decompressed_bytes_max=UNFOLDED_AT_ONCE_BYTES_MAX)
            except UnfoldsTooFarError:
                raise TakesLongError from None
        else:
            checked = batch.check(view)
        header, max_timestamp, offset_delta, null_key_index = checked
        if header.batch_length + batch.LENGTH_PREFIX != size_bytes:
            raise RecordsError(ErrorCode.INVALID_RECORD, _ONE_BATCH)
        if self.needs_keys and null_key_index >= 0:
            raise RecordsError(
                ErrorCode.INVALID_RECORD,
                f"record {null_key_index} has no key, which a compacted topic needs",
                null_key_index,
            )
        if header.attributes & LOG_APPEND_TIME_BIT:
            raise RecordsError(ErrorCode.INVALID_TIMESTAMP, "the batch claims log append time; only a broker sets it")
        if self._uses_append_time:
            view = self._in_wanted_codec(view, header)
            batch.stamp_append_time(view, now_ms)
            return Admitted(view, batch.read_header(view), now_ms)
        if max_timestamp > now_ms + self.after_max_ms:
            raise _bad_timestamp(max_timestamp, now_ms, offset_delta)
        if self._before_max_ms != LONG_MAX:
            self._check_age(view, now_ms)
        if self._codec is not None or max_timestamp != header.max_timestamp:
            view = self._in_wanted_codec(view, header)
            batch.stamp_max_timestamp(view, max_timestamp)
            header = batch.read_header(view)
        return Admitted(view, header, NO_TIMESTAMP)

    def _is_long_rewrite(self, view: memoryview) -> bool:
        """Whether the topic asks for more than a check of a batch, and the batch is large."""
        if len(view) <= REWRITTEN_AT_ONCE_BYTES_MAX:
            return False
        return self._before_max_ms != LONG_MAX or view[ATTRIBUTES_AT + 1] & COMPRESSION_MASK != self._codec

    def _in_wanted_codec(self, view: memoryview, header: BatchHeader) -> memoryview:
        """The batch under the codec that the topic asks for; as it is where it asks for none."""
        if self._codec is None or self._codec == header.compression:
            return view
        recompressed = memoryview(batch.recompress(view, self._codec, level=_level(self._codec, self._config)))
        if len(recompressed) > self._bytes_max:
            raise _too_large(len(recompressed), self._config)
        return recompressed

    def _check_age(self, data: Buffer, now_ms: int) -> None:
        """The only check that needs every timestamp; a topic that asks for it pays for it."""
        earliest = now_ms - self._before_max_ms
        for index, timestamp in enumerate(batch.decode(data).timestamps):
            if NO_TIMESTAMP != timestamp < earliest:
                raise _bad_timestamp(timestamp, now_ms, index)


def _converted_up(messages: memoryview, at_once: bool) -> memoryview:
    if not at_once:
        return memoryview(legacy.convert_up(messages, limit=LEGACY_UNFOLDED_BYTES_MAX))
    if len(messages) > LEGACY_AT_ONCE_BYTES_MAX:
        raise TakesLongError
    try:
        return memoryview(legacy.convert_up(messages, limit=LEGACY_AT_ONCE_BYTES_MAX))
    except UnfoldsTooFarError:
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


def _bad_timestamp(timestamp: int, now_ms: int, index: int) -> RecordsError:
    return RecordsError(
        ErrorCode.INVALID_TIMESTAMP,
        f"record {index} has timestamp {timestamp}, too far from the broker's clock {now_ms} "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
        index,
    )
