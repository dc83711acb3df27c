import gzip
import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import LONG_MAX, LogConfig
from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.records.codec import crc32c
from ottla.records.control import EndTransactionMarker, build_marker
from ottla.records.layout import CRC_AT, HEADER_BYTES, MAX_TIMESTAMP_AT
from ottla.storage.admission import (
    DECOMPRESSED_AT_ONCE_BYTES_MAX,
    LEGACY_AT_ONCE_BYTES_MAX,
    LEGACY_DECOMPRESSED_BYTES_MAX,
    RECORD_ERRORS_MAX,
    REWRITTEN_AT_ONCE_BYTES_MAX,
    Admission,
    Admitted,
    TakesLongError,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
TIMES = [-1, 0, NOW - HOUR - 1, NOW - HOUR, NOW, NOW + HOUR, NOW + HOUR + 1]
LOG_APPEND_TIME = {"message_timestamp_type": "LogAppendTime"}


def admit(data: Any, **settings: Any) -> Admitted:
    return Admission(LogConfig(**settings)).admit(data, NOW)


def refusal(data: Any, **settings: Any) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        admit(data, **settings)
    return caught.value


def bad_indexes(error: RecordsError) -> list[int]:
    return [index for index, _ in error.bad_records]


def of(*values: bytes | None, at: int | list[int] = NOW, keys: Any = None, **options: Any) -> bytearray:
    return batch.build(keys, values, at, **options)


def with_max_timestamp(data: bytearray, max_timestamp: int) -> bytearray:
    """The batch with another claim about its largest timestamp, and a checksum that fits it."""
    struct.pack_into(">q", data, MAX_TIMESTAMP_AT, max_timestamp)
    struct.pack_into(">I", data, CRC_AT, crc32c(data[CRC_AT + 4 :]))
    return data


# -- as it is ----------------------------------------------------------------------------------------------------------


def test_a_sound_batch_is_taken_as_it_is() -> None:
    data = of(b"a", b"b")
    before = bytes(data)
    admitted = admit(data)
    assert bytes(admitted.data) == before
    assert admitted.header == batch.read_header(before)
    assert admitted.append_time_ms == -1


def test_writable_bytes_are_used_in_place_and_others_are_copied() -> None:
    writable = of(b"a")
    admit(writable, **LOG_APPEND_TIME)
    assert batch.read_header(writable).is_log_append_time
    read_only = bytes(of(b"a"))
    assert batch.read_header(admit(read_only, **LOG_APPEND_TIME).data).is_log_append_time
    assert not batch.read_header(read_only).is_log_append_time


# -- what is not one sound batch of a producer -------------------------------------------------------------------------


def test_more_than_one_batch_is_refused() -> None:
    assert refusal(of(b"a") + of(b"b")).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, -1])
def test_the_beginning_of_another_batch_is_dropped(cut: int) -> None:
    one = of(b"a")
    assert bytes(admit(one + of(b"b")[:cut], max_message_bytes=len(one)).data) == one


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (of(b"b"), ErrorCode.INVALID_RECORD),
        (of(b"b") + b"x", ErrorCode.INVALID_RECORD),
        (bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + b"\0\0\1\0" + b"\xff" * 5, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["a batch", "more than a batch", "no length", "no magic"],
)
def test_more_than_a_beginning_behind_the_batch_is_refused(tail: bytes, code: ErrorCode) -> None:
    assert refusal(of(b"a") + tail).code is code


def test_no_bytes_at_all_are_refused_for_good() -> None:
    error = refusal(b"")
    assert error.code is ErrorCode.INVALID_RECORD
    assert not error.code.retriable


@pytest.mark.parametrize("size", [1, 16, 17, HEADER_BYTES - 1, HEADER_BYTES])
def test_a_cut_batch_is_corrupt(size: int) -> None:
    assert refusal(of(b"a")[:size]).code is ErrorCode.CORRUPT_MESSAGE


def test_a_flipped_bit_is_corrupt() -> None:
    data = of(b"abc")
    data[-2] ^= 1
    assert refusal(data).code is ErrorCode.CORRUPT_MESSAGE


def test_a_magic_of_the_future_is_corrupt() -> None:
    data = of(b"a")
    data[16] = 3
    assert refusal(data).code is ErrorCode.CORRUPT_MESSAGE


def test_a_control_batch_of_a_client_is_refused() -> None:
    marker = build_marker(7, 0, EndTransactionMarker(commit=True, coordinator_epoch=0), NOW)
    assert refusal(marker).code is ErrorCode.INVALID_RECORD


def test_a_batch_that_claims_a_place_in_the_log_is_refused_and_left_as_it_is() -> None:
    for options in ({}, LOG_APPEND_TIME):
        data = of(b"a", base_offset=3)
        before = bytes(data)
        error = refusal(data, **options)
        assert (error.code, error.record_index) == (ErrorCode.INVALID_RECORD, None)
        assert data == before


def test_a_batch_with_a_producer_and_no_sequence_is_refused() -> None:
    assert refusal(of(b"a", producer_id=7, producer_epoch=0)).code is ErrorCode.INVALID_RECORD


def test_offsets_with_gaps_are_refused() -> None:
    assert refusal(of(b"a", b"b", offset_deltas=[0, 2])).code is ErrorCode.INVALID_RECORD


# -- size --------------------------------------------------------------------------------------------------------------


def test_a_batch_may_be_as_large_as_the_topic_takes_and_no_larger() -> None:
    data = of(b"x" * 100)
    admit(data, max_message_bytes=len(data))
    error = refusal(data, max_message_bytes=len(data) - 1)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(data)) in str(error)


def test_a_batch_that_grows_too_large_by_recompression_is_refused() -> None:
    data = of(b"x" * 10_000, compression=Compression.GZIP)
    admit(data, max_message_bytes=1000)
    assert refusal(data, max_message_bytes=1000, compression_type="uncompressed").code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_is_too_large_as_it_comes_is_refused_though_it_would_shrink() -> None:
    assert refusal(of(b"x" * 10_000), max_message_bytes=1000, compression_type="gzip").code is (
        ErrorCode.MESSAGE_TOO_LARGE
    )


# -- codec -------------------------------------------------------------------------------------------------------------

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("sent", [Compression.NONE, Compression.LZ4])
def test_a_topic_with_a_codec_stores_every_batch_in_it(name: str, sent: Compression) -> None:
    records = [b"x" * 500, b"y" * 500]
    data = of(
        *records, keys=[b"k", None], at=[NOW, NOW - 5], compression=sent, producer_id=7, producer_epoch=1,
        base_sequence=3, is_transactional=True, headers=[[("h", b"1")], []],
    )  # fmt: skip
    admitted = admit(data, compression_type=name)
    header = admitted.header
    assert header.compression is CODECS[name]
    assert header == batch.check(admitted.data).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert header.is_transactional
    assert batch.decode(admitted.data) == batch.decode(data)


def test_the_producers_codec_is_kept_by_default() -> None:
    data = of(b"x" * 500, compression=Compression.ZSTD)
    assert bytes(admit(data).data) == bytes(data)


def test_the_same_codec_is_not_applied_again() -> None:
    data = of(b"x" * 500, compression=Compression.ZSTD, level=1)
    before = bytes(data)
    assert bytes(admit(data, compression_type="zstd", compression_zstd_level=19).data) == before


def test_the_level_is_the_topics() -> None:
    words = b" ".join(b"%d" % (number * number % 9973) for number in range(5000))
    fast = admit(of(words), compression_type="gzip", compression_gzip_level=1)
    small = admit(of(words), compression_type="gzip", compression_gzip_level=9)
    assert small.header.size_bytes < fast.header.size_bytes


# -- timestamps --------------------------------------------------------------------------------------------------------


def test_log_append_time_stamps_the_batch_with_the_brokers_clock() -> None:
    admitted = admit(of(b"a", b"b", at=[5, 6]), **LOG_APPEND_TIME)
    header = batch.check(admitted.data).header  # the checksum fits the new bytes
    assert header == admitted.header
    assert header.is_log_append_time
    assert header.attributes == 0x08
    assert header.max_timestamp == NOW
    assert admitted.append_time_ms == NOW
    assert batch.decode(admitted.data).timestamps == [NOW, NOW]


def test_log_append_time_asks_for_no_window() -> None:
    admit(of(b"a", at=NOW + 10 * HOUR), message_timestamp_before_max_ms=1, **LOG_APPEND_TIME)


def test_log_append_time_and_a_codec_go_together() -> None:
    admitted = admit(of(b"x" * 500), compression_type="lz4", **LOG_APPEND_TIME)
    header = batch.check(admitted.data).header
    assert (header.compression, header.is_log_append_time, header.max_timestamp) == (Compression.LZ4, True, NOW)


@pytest.mark.parametrize("settings", [{}, LOG_APPEND_TIME])
def test_a_producer_must_not_claim_log_append_time(settings: dict[str, Any]) -> None:
    error = refusal(of(b"a", b"b", at=-1, log_append_time=True), **settings)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert bad_indexes(error) == [0, 1]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_claim_of_log_append_time_is_judged_by_its_time_and_taken_back(compression: Compression) -> None:
    data = of(b"a", b"b", at=[NOW - 5, NOW - 9], log_append_time=True, compression=compression)
    admitted = admit(with_max_timestamp(bytearray(data), NOW))
    assert not admitted.header.is_log_append_time
    assert admitted.header.max_timestamp == NOW - 5
    assert batch.check(admitted.data).header == admitted.header
    assert batch.decode(admitted.data).timestamps == [NOW - 5, NOW - 9]
    late = refusal(with_max_timestamp(data, NOW + 2 * HOUR))
    assert (late.code, bad_indexes(late)) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])
    assert refusal(data, **LOG_APPEND_TIME).code is ErrorCode.INVALID_TIMESTAMP


def test_offset_deltas_out_of_order_are_put_right_in_a_plain_batch() -> None:
    header = batch.read_header(of(b"a", b"b", b"c"))
    disordered = of(b"a", b"b", b"c", at=[NOW, NOW - 1, NOW], keys=[b"k", None, b"l"], offset_deltas=[7, 0, 7])
    data = batch.rebuild(header, disordered[HEADER_BYTES:], record_count=3, max_timestamp=NOW)
    admitted = admit(data)
    assert bytes(admitted.data) == of(b"a", b"b", b"c", at=[NOW, NOW - 1, NOW], keys=[b"k", None, b"l"])
    compressed = batch.recompress(data, Compression.GZIP)
    assert refusal(compressed).code is ErrorCode.INVALID_RECORD


def test_a_timestamp_may_be_an_hour_ahead_and_not_more() -> None:
    admit(of(b"a", at=NOW + HOUR))
    error = refusal(of(b"a", b"b", b"c", at=[NOW, NOW + HOUR + 1, NOW]))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert bad_indexes(error) == [1]


THREE = bytes(of(b"some", b"thing", b"", keys=[b"key", None, b""]))


@given(st.integers(0, len(THREE) - 1), st.integers(0, 255))
def test_what_is_taken_the_short_way_is_taken_the_long_way_as_it_is(position: int, byte: int) -> None:
    data = bytearray(THREE)
    data[position] = byte
    if position >= CRC_AT:
        struct.pack_into(">I", data, CRC_AT, crc32c(data[CRC_AT + 4 :]))
    rules = Admission(LogConfig())
    short = bytearray(data)
    if batch.stamp_plain(short, 0, -1, rules.plain_bytes_max, NOW + rules.after_max_ms, rules.needs_keys):
        assert bytes(rules.admit(bytes(short), NOW).data) == short


def test_no_bound_ahead_is_a_bound_that_can_be_reckoned_with() -> None:
    admit(of(b"a", at=LONG_MAX // 2), message_timestamp_after_max_ms=LONG_MAX)
    rules = Admission(LogConfig(message_timestamp_after_max_ms=LONG_MAX))
    assert batch.stamp_plain(of(b"a"), 0, 0, rules.plain_bytes_max, NOW + rules.after_max_ms, rules.needs_keys)


def test_by_default_a_timestamp_may_be_as_old_as_it_likes() -> None:
    admit(of(b"a", at=0))
    assert LogConfig().message_timestamp_before_max_ms == LONG_MAX


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_topic_may_refuse_records_that_are_too_old(compression: Compression) -> None:
    admit(of(b"a", at=NOW - HOUR, compression=compression), message_timestamp_before_max_ms=HOUR)
    error = refusal(
        of(b"a", b"b", at=[NOW, NOW - HOUR - 1], compression=compression), message_timestamp_before_max_ms=HOUR
    )
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert bad_indexes(error) == [1]


def test_a_record_without_a_timestamp_is_in_every_window() -> None:
    admit(of(b"a", at=-1), message_timestamp_before_max_ms=1, message_timestamp_after_max_ms=1)


def test_a_wrong_max_timestamp_is_put_right() -> None:
    data = with_max_timestamp(of(b"a", b"b", at=[NOW - 9, NOW - 7]), NOW + 10 * HOUR)
    admitted = admit(data)
    assert admitted.header.max_timestamp == NOW - 7
    assert batch.check(admitted.data).header == admitted.header


def test_a_wrong_max_timestamp_is_put_right_in_a_recompressed_batch_too() -> None:
    data = with_max_timestamp(of(b"a" * 100, at=NOW - 9), 1)
    admitted = admit(data, compression_type="snappy")
    assert admitted.header.max_timestamp == NOW - 9
    assert batch.check(admitted.data).header == admitted.header


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_compacted_topic_needs_keys_and_names_the_record_without(compression: Compression) -> None:
    data = of(b"a", b"b", b"c", keys=[b"k", None, None], compression=compression)
    admit(bytes(data))
    error = refusal(data, cleanup_policy=("compact",))
    assert error.code is ErrorCode.INVALID_RECORD
    assert bad_indexes(error) == [1, 2]


@given(st.data())
def test_every_record_that_breaks_a_rule_is_told(data: st.DataObject) -> None:
    """Against a judge that looks at one record after the other, as Kafka's validator does."""
    records = data.draw(st.lists(st.tuples(st.sampled_from([None, b"k"]), st.sampled_from(TIMES)), min_size=1))
    is_compacted, before, after = data.draw(st.tuples(st.booleans(), *[st.sampled_from([0, HOUR, LONG_MAX])] * 2))
    expected: list[tuple[int, ErrorCode]] = []
    for index, (key, timestamp) in enumerate(records):
        if is_compacted and key is None:
            expected.append((index, ErrorCode.INVALID_RECORD))
        elif timestamp != -1 and (NOW - timestamp > before or timestamp - NOW > after):
            expected.append((index, ErrorCode.INVALID_TIMESTAMP))
    built = of(
        *[b"v"] * len(records),
        keys=[key for key, _ in records],
        at=[timestamp for _, timestamp in records],
        compression=data.draw(st.sampled_from([Compression.NONE, Compression.LZ4])),
    )
    rules = Admission(
        LogConfig(
            cleanup_policy=("compact",) if is_compacted else ("delete",),
            message_timestamp_before_max_ms=before,
            message_timestamp_after_max_ms=after,
        )
    )
    if not expected:
        rules.admit(built, NOW)
        return
    with pytest.raises(RecordsError) as caught:
        rules.admit(built, NOW)
    assert bad_indexes(caught.value) == [index for index, _ in expected]
    codes = {code for _, code in expected}
    assert caught.value.code == (
        ErrorCode.INVALID_TIMESTAMP if ErrorCode.INVALID_TIMESTAMP in codes else ErrorCode.INVALID_RECORD
    )


def test_bad_records_are_told_up_to_a_limit() -> None:
    error = refusal(of(*[b""] * (RECORD_ERRORS_MAX + 5)), cleanup_policy=("compact",))
    assert bad_indexes(error) == list(range(RECORD_ERRORS_MAX))


def test_an_empty_key_is_a_key() -> None:
    admit(of(b"a", keys=[b""]), cleanup_policy=("compact", "delete"))


# -- old formats -------------------------------------------------------------------------------------------------------


def message(
    magic: int, key: bytes | None, value: bytes | None, timestamp: int = NOW, offset: int = 0, codec: int = 0
) -> bytes:
    """A message of magic 0 or 1 in its set."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", timestamp) if magic else b"")
    for cell in (key, value):
        body += struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(checked)) + checked


def test_messages_of_magic_1_become_one_batch() -> None:
    admitted = admit(message(1, b"k", b"v") + message(1, None, b"w", NOW + 5, offset=1))
    assert admitted.header.magic == 2
    columns = batch.decode(admitted.data)
    assert (columns.keys, columns.values, columns.timestamps) == ([b"k", None], [b"v", b"w"], [NOW, NOW + 5])
    assert admitted.header.max_timestamp == NOW + 5


def test_messages_of_magic_0_have_no_timestamps() -> None:
    admitted = admit(message(0, b"k", b"v"))
    assert batch.decode(admitted.data).timestamps == [-1]
    assert admitted.header.max_timestamp == -1


def test_old_messages_keep_to_the_rules_of_the_topic() -> None:
    error = refusal(message(1, b"k", b"v") + message(1, None, b"w", offset=1), cleanup_policy=("compact",))
    assert (error.code, bad_indexes(error)) == (ErrorCode.INVALID_RECORD, [1])
    assert refusal(message(1, None, b"v", NOW + 2 * HOUR)).code is ErrorCode.INVALID_TIMESTAMP
    assert admit(message(1, None, b"v", 5), **LOG_APPEND_TIME).header.max_timestamp == NOW


def test_an_old_message_with_a_wrong_checksum_is_corrupt() -> None:
    data = bytearray(message(1, b"k", b"v"))
    data[-1] ^= 1
    assert refusal(data).code is ErrorCode.CORRUPT_MESSAGE


# -- at once -----------------------------------------------------------------------------------------------------------

COMPRESSING = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def takes_long(data: Any, **settings: Any) -> bool:
    """Whether a batch is not looked at at once; it must be fine otherwise."""
    admission = Admission(LogConfig(**settings))
    try:
        admission.admit(bytearray(data), NOW, at_once=True)
    except TakesLongError:
        admission.admit(data, NOW)
        return True
    return False


@pytest.mark.parametrize("codec", COMPRESSING)
def test_at_once_a_batch_is_decompressed_so_far_and_no_further(codec: Compression) -> None:
    around = (
        2 * DECOMPRESSED_AT_ONCE_BYTES_MAX
        - memoryview(batch.records_of(of(bytes(DECOMPRESSED_AT_ONCE_BYTES_MAX)))).nbytes
    )
    assert not takes_long(of(bytes(around), compression=codec))
    assert takes_long(of(bytes(around + 1), compression=codec))


def test_an_uncompressed_batch_is_looked_at_at_once_however_large() -> None:
    size = 2 * DECOMPRESSED_AT_ONCE_BYTES_MAX
    assert not takes_long(of(bytes(size)), max_message_bytes=2 * size)


def test_a_large_batch_is_recompressed_where_nobody_waits() -> None:
    large = of(bytes(REWRITTEN_AT_ONCE_BYTES_MAX))
    assert takes_long(large, compression_type="gzip")
    assert not takes_long(large, compression_type="uncompressed")
    assert not takes_long(of(bytes(100)), compression_type="gzip")


def test_the_times_of_a_large_compressed_batch_are_looked_at_where_nobody_waits() -> None:
    incompressible = random.Random(1).randbytes(REWRITTEN_AT_ONCE_BYTES_MAX)
    rules = {"message_timestamp_before_max_ms": HOUR}
    assert takes_long(of(incompressible, compression=Compression.LZ4), **rules)
    assert not takes_long(of(incompressible), **rules)
    assert not takes_long(of(bytes(100), compression=Compression.LZ4), **rules)


def test_a_large_careless_batch_is_put_right_where_nobody_waits() -> None:
    assert takes_long(of(bytes(REWRITTEN_AT_ONCE_BYTES_MAX), log_append_time=True))
    assert not takes_long(of(bytes(100), log_append_time=True))


def wrapped(size_bytes: int) -> bytes:
    """A compressed message around others, so many bytes of them together."""
    one = message(1, None, bytes(1000))
    inner = one * (size_bytes // len(one) - 1)
    inner += message(1, None, bytes(1000 + size_bytes - len(inner) - len(one)))
    return message(1, None, gzip.compress(inner), codec=Compression.GZIP)


def test_old_messages_are_converted_at_once_only_where_they_are_few() -> None:
    assert not takes_long(wrapped(LEGACY_AT_ONCE_BYTES_MAX))
    assert takes_long(wrapped(LEGACY_AT_ONCE_BYTES_MAX + 1))
    assert takes_long(message(1, None, bytes(LEGACY_AT_ONCE_BYTES_MAX)))


def test_old_messages_that_decompress_to_megabytes_of_objects_are_refused() -> None:
    assert refusal(wrapped(LEGACY_DECOMPRESSED_BYTES_MAX + 1)).code == ErrorCode.MESSAGE_TOO_LARGE
