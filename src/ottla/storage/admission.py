"""What a topic asks of a producer's batch before it is stored.

`records` knows whether a batch is sound; this knows whether the topic wants it: size, timestamps, keys, codec. It
decides over values and touches nothing but the batch itself, which it may re-stamp, recompress or convert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config import LONG_MAX, LogConfig
from ottla.errors import ErrorCode, RecordsError
from ottla.ids import NO_TIMESTAMP
from ottla.records import batch, legacy
from ottla.records.layout import BatchHeader, Checked, Compression

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Admitted(NamedTuple):
    """A batch that may be appended: writable bytes that hold exactly one batch, and its header as it is now."""

    data: Buffer
    header: BatchHeader
    append_time_ms: int  # -1 where the records keep their producer's time


def admit(data: Buffer, config: LogConfig, now_ms: int) -> Admitted:
    """Checks a producer's batch and brings it into the topic's form; RecordsError where it cannot be taken."""
    view = memoryview(data)
    if view.readonly or view.format != "B":
        view = memoryview(bytearray(view))
    size_bytes = view.nbytes
    if size_bytes > config.max_message_bytes:
        raise _too_large(size_bytes, config)
    if size_bytes > batch.HEADER_BYTES - 1 and view[16] == 2:  # the common case, asked without a call
        checked = batch.check(view)
    else:
        if legacy.magic_of(view) < 2:
            # Made anew, so it is checked like any other: what an old client sent may still break a rule of the topic.
            view = memoryview(legacy.convert_up(view))
        checked = batch.check(view)
    header = checked.header
    if header.size_bytes != view.nbytes:
        raise RecordsError(ErrorCode.INVALID_RECORD, "a produce request carries exactly one batch per partition")
    if config.is_compacted and checked.null_key_index >= 0:
        raise RecordsError(
            ErrorCode.INVALID_RECORD,
            f"record {checked.null_key_index} has no key, which a compacted topic needs",
            checked.null_key_index,
        )
    wanted = _CODECS.get(config.compression_type)
    if wanted is not None and wanted != header.compression:
        view = memoryview(batch.recompress(view, wanted, level=_level(wanted, config)))
        if view.nbytes > config.max_message_bytes:
            raise _too_large(view.nbytes, config)
        header = batch.read_header(view)
    if config.uses_append_time:
        batch.stamp_append_time(view, now_ms)
        return Admitted(view, batch.read_header(view), now_ms)
    _check_timestamps(view, checked, config, now_ms)
    if header.is_log_append_time:
        raise RecordsError(
            ErrorCode.INVALID_TIMESTAMP,
            "the batch claims log append time, and the topic keeps the producer's time",
        )
    if checked.max_timestamp != header.max_timestamp:
        batch.stamp_max_timestamp(view, checked.max_timestamp)
        header = batch.read_header(view)
    return Admitted(view, header, NO_TIMESTAMP)


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


def _check_timestamps(data: Buffer, checked: Checked, config: LogConfig, now_ms: int) -> None:
    latest = now_ms + config.message_timestamp_after_max_ms
    if checked.max_timestamp > latest:
        raise _bad_timestamp(checked.max_timestamp, now_ms, checked.offset_of_max_timestamp_delta)
    if config.message_timestamp_before_max_ms == LONG_MAX:
        return
    # The only check that needs every timestamp; a topic that asks for it pays for it.
    earliest = now_ms - config.message_timestamp_before_max_ms
    for index, timestamp in enumerate(batch.decode(data).timestamps):
        if NO_TIMESTAMP != timestamp < earliest:
            raise _bad_timestamp(timestamp, now_ms, index)


def _bad_timestamp(timestamp: int, now_ms: int, index: int) -> RecordsError:
    return RecordsError(
        ErrorCode.INVALID_TIMESTAMP,
        f"record {index} has timestamp {timestamp}, too far from the broker's clock {now_ms} "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
        index,
    )
