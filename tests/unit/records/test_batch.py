"""Building, reading, stamping and rewriting batches."""

from typing import Any

import pytest

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch, codec
from ottla.records.layout import INT32_MAX, BatchHeader, Compression, Record

pytestmark = pytest.mark.usefixtures("core")
T = 1_700_000_000_000


def test_what_was_built_is_read_back():
    data = batch.build(
        [b"k", None, b""],
        [b"v", b"", None],
        [T, T - 5, T + 9],
        headers=[[("h", b"x"), ("h", None)], [], [("ü", b"")]],
        base_offset=100,
        leader_epoch=7,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=5,
        is_transactional=True,
    )
    header = batch.read_header(data)
    assert (header.base_offset, header.last_offset, header.end_offset, header.leader_epoch) == (100, 102, 103, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 5)
    assert (header.last_sequence, header.size_bytes) == (7, len(data))
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 9)
    assert header.is_transactional
    assert header.has_producer
    assert (header.is_control, header.is_log_append_time, header.has_delete_horizon) == (False, False, False)
    assert list(batch.iterate(data)) == [
        Record(100, T, b"k", b"v", (("h", b"x"), ("h", None))),
        Record(101, T - 5, None, b"", ()),
        Record(102, T + 9, b"", None, (("ü", b""),)),
    ]


@pytest.mark.parametrize(
    ("keys", "values"), [(None, [b"v"]), ([b"k"], [None]), ([b"k", None, b""], [b"v" * 200, b"", None])]
)
def test_a_plain_batch_is_the_one_that_is_built_without_options(keys, values):
    assert batch.build_plain(keys, values, T) == batch.build(keys, values, T)


def test_contiguous_offsets_are_a_range_and_others_a_list():
    assert batch.decode(batch.build(None, [b"a", b"b"], T, base_offset=5)).offsets == range(5, 7)
    gaps = batch.build(None, [b"a", b"b", b"c"], T, base_offset=5, offset_deltas=[0, 1, 9])
    assert batch.decode(gaps).offsets == [5, 6, 14]
    late = batch.build(None, [b"a", b"b"], T, base_offset=5, offset_deltas=[3, 4])
    assert batch.decode(late).offsets == range(8, 10)


def test_one_timestamp_serves_all_records():
    assert batch.decode(batch.build(None, [b"a", b"b"], T)).timestamps == [T, T]


def test_keys_values_and_headers_may_be_any_bytes_like_object():
    plain = batch.build([b"k"], [b"v"], T, headers=[[("h", b"x")]])
    assert batch.build([bytearray(b"k")], [memoryview(b"v")], T, headers=[[(b"h", bytearray(b"x"))]]) == plain
    assert batch.build((b"k",), (b"v",), (T,), headers=((("h", b"x"),),)) == plain


def test_a_header_key_that_is_not_text_survives():
    data = batch.build(None, [b"v"], T, headers=[[(b"\xff\xfe", b"x")]])
    columns = batch.decode(data)
    assert batch.build(None, columns.values, T, headers=columns.headers) == data


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 8190, 8191, 8192, 70_000, 1_100_000])
def test_values_around_the_edges_of_their_length_field(size):
    data = batch.build([bytes(size)], [b"x" * size], T)
    assert batch.decode(data).values == [b"x" * size]
    assert batch.check(data).header.record_count == 1


def test_records_that_outgrow_the_first_are_written_whole():
    values = [b"", *(bytes([size % 256]) * size for size in range(300))]
    assert batch.decode(batch.build(None, values, T)).values == values


@pytest.mark.parametrize("timestamp", [-1, 0, 2**62, -(2**62)])
def test_timestamps_far_apart(timestamp):
    assert batch.decode(batch.build(None, [b"a", b"b"], [T, timestamp])).timestamps == [T, timestamp]


@pytest.mark.parametrize("timestamps", [[2**63 - 1, -2], [0, 2**63], 2**63], ids=str)
def test_timestamps_that_do_not_fit_are_refused(timestamps):
    with pytest.raises(RecordsError):
        batch.build(None, [b"a", b"b"], timestamps)


@pytest.mark.parametrize("deltas", [[-1, 0], [0, 2**31], [0, 2**70]], ids=str)
def test_offset_deltas_that_do_not_fit_are_refused(deltas):
    with pytest.raises(RecordsError):
        batch.build(None, [b"a", b"b"], T, offset_deltas=deltas)


@pytest.mark.parametrize("column", ["keys", "timestamps", "headers", "offset_deltas"])
def test_columns_of_different_lengths_are_a_mistake(column):
    columns: dict[str, Any] = {"keys": [b"k", b"l"], "values": [b"v", b"w"], "timestamps": [1, 2]}
    columns[column] = [[]] * 3 if column == "headers" else [b""] * 3 if column == "keys" else [0, 1, 2]
    with pytest.raises(ValueError, match="columns of different lengths"):
        batch.build(**columns)


@pytest.mark.parametrize("value", ["text", 5, [1]])
def test_a_value_that_is_not_bytes_is_a_mistake(value):
    with pytest.raises(TypeError):
        batch.build(None, [value], T)


def test_a_batch_of_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="at least one record"):
        batch.build(None, [], T)


@pytest.mark.parametrize("compression", Compression)
def test_recompressing_keeps_everything_but_the_codec(compression):
    for source in Compression:
        data = batch.build(
            [b"k", None], [b"v" * 500, b"w"], [T, T + 1], compression=source, base_offset=9, leader_epoch=3
        )
        other = batch.recompress(data, compression)
        before, after = batch.read_header(data), batch.read_header(other)
        assert after.compression is compression
        batch.check(other, strict=False)
        changed = {"crc": 0, "batch_length": 0, "attributes": 0}
        assert before._replace(**changed) == after._replace(**changed)
        assert batch.decode(other) == batch.decode(data)


def test_stamping_an_offset_leaves_the_checksum_right():
    data = bytearray(5) + batch.build(None, [b"v"], T)
    batch.stamp(data, 1234, 9, 5)
    header = batch.check(data, 5, strict=False).header
    assert (header.base_offset, header.leader_epoch) == (1234, 9)


def test_append_time_is_stamped_with_a_new_checksum():
    data = bytearray(5) + batch.build(None, [b"v", b"w"], [T, T + 1]) + bytes(8)
    batch.stamp_append_time(data, T + 50, 5)
    header = batch.check(data, 5).header
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, T + 50, T)
    assert batch.decode(data, 5).timestamps == [T + 50, T + 50]


def test_a_wrong_max_timestamp_can_be_put_right():
    data = batch.build(None, [b"v"], T)
    batch.stamp_max_timestamp(data, T + 7)
    assert batch.check(data).header.max_timestamp == T + 7


def test_a_failed_append_time_leaves_the_batch_as_it_was():
    data = bytearray(30)
    with pytest.raises(RecordsError):
        batch.stamp_append_time(data, T)
    assert data == bytes(30)


def test_sequences_wrap_after_the_largest():
    header = batch.read_header(
        batch.build(None, [b""] * 3, T, producer_id=1, producer_epoch=0, base_sequence=INT32_MAX - 1)
    )
    assert header.last_sequence == 0
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_the_plain_section_is_a_view_and_not_a_copy():
    data = batch.build(None, [b"v"], T)
    with memoryview(batch.records_of(data)) as view:
        data[-1] = 0x42
        assert view[-1] == 0x42


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp():
    data = batch.build([b"k"], [None], [T], delete_horizon_ms=T + 1000)
    header = batch.read_header(data)
    assert (header.delete_horizon_ms, header.base_timestamp) == (T + 1000, T + 1000)
    assert batch.decode(data).timestamps == [T]
    assert batch.read_header(batch.build([b"k"], [None], [T])).delete_horizon_ms is None


def test_a_rebuilt_batch_keeps_its_place_and_its_producer():
    data = batch.build(
        None, [b"a", b"b", b"c"], [T, T + 1, T + 2], base_offset=50, leader_epoch=4, producer_id=7,
        producer_epoch=1, base_sequence=20, is_transactional=True, compression=Compression.GZIP,
    )  # fmt: skip
    header = batch.read_header(data)
    section = codec.encode_records(None, [b"b"], T + 1, None, [1], T, 0)
    rebuilt = batch.rebuild(header, section, record_count=1, max_timestamp=T + 1)
    found = batch.check(rebuilt, strict=False).header
    assert found._replace(crc=0, batch_length=0, record_count=3, max_timestamp=T + 2) == header._replace(
        crc=0, batch_length=0
    )
    assert batch.decode(rebuilt).offsets == range(51, 52)
    assert found.last_sequence == 22


@pytest.mark.parametrize("compression", Compression)
def test_the_first_record_at_or_after_a_time_is_found(compression):
    data = batch.build(None, [b""] * 4, [T, T + 10, T + 5, T + 20], base_offset=30, compression=compression)
    assert batch.first_at_or_after(data, T - 1) == (30, T)
    assert batch.first_at_or_after(data, T + 5) == (31, T + 10)
    assert batch.first_at_or_after(data, T + 5, start_offset=32) == (32, T + 5)
    assert batch.first_at_or_after(data, T + 11) == (33, T + 20)
    assert batch.first_at_or_after(data, T + 21) is None
    assert batch.first_at_or_after(data, T, start_offset=34) is None


def test_append_time_counts_when_looking_by_time():
    data = batch.build(None, [b"", b""], T, base_offset=30)
    batch.stamp_append_time(data, T + 100)
    assert batch.first_at_or_after(data, T + 100) == (30, T + 100)
    assert batch.first_at_or_after(data, T + 100, start_offset=31) == (31, T + 100)
    assert batch.first_at_or_after(data, T + 101) is None


def test_the_cap_holds_for_reading():
    data = batch.build(None, [bytes(5000)], T, compression=Compression.ZSTD)
    for read in (batch.decode, batch.records_of):
        with pytest.raises(RecordsError) as caught:
            read(data, limit=4999)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_header_is_read_field_by_field():
    data = batch.build(None, [b"v"], T)
    assert isinstance(batch.read_header(data), BatchHeader)
    assert batch.read_header(bytes(3) + data, 3) == batch.read_header(data)
