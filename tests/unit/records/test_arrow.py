from typing import Any

import pytest

from ottla.errors import RecordsError
from ottla.records import batch
from ottla.records.layout import BinaryColumn, Compression

pa = pytest.importorskip("pyarrow")
from ottla.records import arrow  # noqa: E402 (after pyarrow was found)

pytestmark = pytest.mark.usefixtures("core")
T = 1_700_000_000_000
KEYS = [b"k", None, b"", b"key" * 30]
VALUES = [b"v", b"", None, b"value" * 100]
TIMES = [T, T - 1, T + 1000, T]
HEADERS: list[Any] = [[("a", b"1"), ("b", None)], [], [("ü", b"")], [("c", b"3")]]


def times(values):
    return pa.array(values, pa.int64())


def header_array(lists):
    return pa.array(lists, arrow.HEADERS_TYPE)


def test_columns_become_the_same_bytes_as_lists():
    data = arrow.build(
        pa.array(KEYS, pa.binary()), pa.array(VALUES, pa.binary()), times(TIMES), headers=header_array(HEADERS)
    )
    assert data == batch.build(KEYS, VALUES, TIMES, headers=HEADERS)
    batch.check(data)


@pytest.mark.parametrize("compression", Compression)
def test_what_was_built_is_read_back(compression):
    options = {"compression": compression, "base_offset": 40, "producer_id": 5, "producer_epoch": 1, "base_sequence": 9}
    data = arrow.build(
        pa.array(KEYS, pa.binary()),
        pa.array(VALUES, pa.binary()),
        times(TIMES),
        headers=header_array(HEADERS),
        **options,
    )
    assert batch.read_header(data).base_sequence == 9
    rows = arrow.decode(data)
    rows.validate(full=True)
    assert rows.schema == arrow.SCHEMA
    assert rows["key"].to_pylist() == KEYS
    assert rows["value"].to_pylist() == VALUES
    assert rows["offset"].to_pylist() == [40, 41, 42, 43]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == TIMES
    found = [[(entry["key"], entry["value"]) for entry in entries] for entries in rows["headers"].to_pylist()]
    assert found == HEADERS


@pytest.mark.parametrize("start", range(11))
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_slice_of_longer_arrays_is_taken_alone(start, length):
    keys = [None if index % 3 == 0 else b"k%d" % index for index in range(20)]
    values = [None if index % 7 == 0 else b"v%d" % index for index in range(20)]
    headers = [None if index % 5 == 0 else [(f"h{index}", None)] * (index % 4) for index in range(20)]
    part = slice(start, start + length)
    data = arrow.build(
        pa.array(keys, pa.binary()).slice(start, length),
        pa.array(values, pa.binary()).slice(start, length),
        times(range(20)).slice(start, length),
        headers=header_array(headers).slice(start, length),
    )
    expected = batch.build(
        keys[part], values[part], list(range(20))[part], headers=[entries or [] for entries in headers[part]]
    )
    assert data == expected


@pytest.mark.parametrize("kind", ["string", "large_string", "large_binary", "binary_view", "chunked"])
def test_other_kinds_of_arrays_are_taken(kind):
    if kind == "chunked":
        values = pa.chunked_array([[b"a"], [b"bc", None]], pa.binary())
    elif "string" in kind:
        values = pa.array(["a", "bc", None], getattr(pa, kind)())
    else:
        values = pa.array([b"a", b"bc", None], getattr(pa, kind)())
    assert batch.decode(arrow.build(None, values, T)).values == [b"a", b"bc", None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_become_milliseconds(unit):
    stamps = pa.array([1_700_000_000], pa.timestamp("s", tz="UTC")).cast(pa.timestamp(unit, tz="UTC"))
    assert batch.decode(arrow.build(None, pa.array([b"v"]), stamps)).timestamps == [T]


def test_one_timestamp_serves_all_rows():
    assert arrow.build(None, pa.array([b"a", b"b"]), T) == batch.build(None, [b"a", b"b"], T)


def test_batches_without_keys_or_headers_are_read():
    rows = arrow.decode(batch.build(None, [b"a", b"b"], T))
    rows.validate(full=True)
    assert rows["key"].to_pylist() == [None, None]
    assert rows["headers"].to_pylist() == [[], []]
    assert rows["value"].null_count == 0


def test_an_empty_batch_has_no_rows():
    header = batch.read_header(batch.build(None, [b"a"], T))
    rows = arrow.decode(batch.rebuild(header, b"", record_count=0, max_timestamp=T))
    rows.validate(full=True)
    assert rows.num_rows == 0


def test_gaps_and_append_time_are_seen():
    data = batch.build(None, [b"a", b"b"], T, offset_deltas=[0, 9], base_offset=5)
    batch.stamp_append_time(data, T + 3)
    rows = arrow.decode(data)
    assert rows["offset"].to_pylist() == [5, 14]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [T + 3, T + 3]


def test_many_rows_make_the_buffers_grow():
    keys = [b"k" * (index % 300) for index in range(2000)]
    headers = [[("h" * (index % 200), b"x" * (index % 500))] for index in range(2000)]
    data = batch.build(keys, keys, T, headers=headers)
    rows = arrow.decode(data)
    rows.validate(full=True)
    assert rows["key"].to_pylist() == keys
    assert arrow.build(rows["key"], rows["value"], T, headers=rows["headers"]) == data


def test_a_header_key_that_is_not_text_is_still_read():
    rows = arrow.decode(batch.build(None, [b"v"], T, headers=[[(b"\xff", b"x")]]))
    rows.validate(full=True)
    assert rows["headers"].to_pylist() == [[{"key": "\ufffd", "value": b"x"}]]


def add_batch(decoder, data, *bounds):
    header = batch.read_header(data)
    decoder.add(
        batch.records_of(data, header=header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        None,
        *bounds,
    )


def test_batches_come_together_in_one_set_of_columns(core):
    decoder = core.ColumnsDecoder()
    for base_offset in (0, 4, 20):
        data = batch.build(KEYS, VALUES, TIMES, headers=HEADERS, base_offset=base_offset, compression=Compression.LZ4)
        add_batch(decoder, data)
    assert decoder.row_count == 12
    assert decoder.byte_count == 3 * (sum(map(len, filter(None, KEYS + VALUES))) + len("a1büc3".encode()))
    arrays = arrow.arrays_of(decoder.finish())
    assert arrays["key"].to_pylist() == KEYS * 3
    assert arrays["value"].to_pylist() == VALUES * 3
    assert arrays["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23]
    assert arrays["timestamp"].cast(pa.int64()).to_pylist() == TIMES * 3
    found = [[(entry["key"], entry["value"]) for entry in entries] for entries in arrays["headers"].to_pylist()]
    assert found == HEADERS * 3
    for array in arrays.values():
        array.validate(full=True)


def test_a_decoder_begins_anew_after_it_was_finished(core):
    decoder = core.ColumnsDecoder()
    assert arrow.arrays_of(decoder.finish())["value"].to_pylist() == []
    for value in (b"first", b"second"):
        add_batch(decoder, batch.build(None, [value], T))
        assert arrow.arrays_of(decoder.finish())["value"].to_pylist() == [value]
    assert decoder.row_count == decoder.byte_count == 0


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 99, [5, 8, 9]), (6, 9, [8]), (9, 99, [9]), (6, 8, []), (0, 5, [])]
)
def test_only_the_records_between_the_bounds_are_taken(core, start, end, expected):
    headers: list[Any] = [[("h", b"5")], [], [("h", b"9"), ("i", None)]]
    data = batch.build(None, [b"5", b"8", b"9"], T, headers=headers, offset_deltas=[0, 3, 4], base_offset=5)
    decoder = core.ColumnsDecoder()
    add_batch(decoder, data, start, end)
    arrays = arrow.arrays_of(decoder.finish())
    assert arrays["offset"].to_pylist() == expected
    assert arrays["value"].to_pylist() == [b"%d" % offset for offset in expected]
    with_headers = {
        5: [{"key": "h", "value": b"5"}],
        8: [],
        9: [{"key": "h", "value": b"9"}, {"key": "i", "value": None}],
    }
    assert arrays["headers"].to_pylist() == [with_headers[offset] for offset in expected]


def test_columns_that_nobody_asked_for_are_not_made(core):
    decoder = core.ColumnsDecoder(keys=False, values=False, headers=False)
    add_batch(decoder, batch.build(KEYS, VALUES, TIMES, headers=HEADERS))
    assert decoder.byte_count == 0
    decoded = decoder.finish()
    assert (decoded.record_count, decoded.keys, decoded.values, decoded.headers) == (4, None, None, None)
    assert set(arrow.arrays_of(decoded)) == {"offset", "timestamp", "headers"}


def test_timestamps_come_in_the_ticks_that_were_asked_for(core):
    decoder = core.ColumnsDecoder(ticks_per_ms=1000)
    add_batch(decoder, batch.build(None, [b"a", b"b"], [T, -1]))
    microseconds = arrow.arrays_of(decoder.finish(), pa.timestamp("us", tz="UTC"))["timestamp"]
    assert microseconds.cast(pa.int64()).to_pylist() == [T * 1000, -1000]
    with pytest.raises(RecordsError, match="record 0: a record's timestamp does not fit 64 bits"):
        add_batch(decoder, batch.build(None, [b"a"], 2**62))


def test_nulls_where_none_may_be_are_a_mistake():
    values = pa.array([b"a", b"b"])
    with pytest.raises(ValueError, match="timestamp"):
        arrow.build(None, values, times([1, None]))
    with pytest.raises(ValueError, match="header"):
        arrow.build(None, values, T, headers=header_array([[None], []]))
    with pytest.raises(RecordsError):
        arrow.build(None, values, T, headers=header_array([[(None, b"x")], []]))
    with pytest.raises(ValueError, match="at least one record"):
        arrow.build(None, pa.array([], pa.binary()), T)
    with pytest.raises(ValueError, match="3 keys beside 2 values"):
        arrow.build(pa.array([b"a"] * 3), values, T)


def int32s(*numbers):
    return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)


LYING_COLUMNS = {
    "offsets beyond the data": BinaryColumn(int32s(0, 1, 9), b"abc"),
    "falling offsets": BinaryColumn(int32s(0, 3, 1), b"abc"),
    "negative offsets": BinaryColumn(int32s(-1, 0, 1), b"abc"),
    "too few offsets": BinaryColumn(int32s(0, 1), b"abc"),
    "too few validity bits": BinaryColumn(int32s(0, 1, 2), b"abc", b"\xff", 7),
    "negative validity bits": BinaryColumn(int32s(0, 1, 2), b"abc", b"\xff", -8),
}


@pytest.mark.parametrize("column", LYING_COLUMNS.values(), ids=LYING_COLUMNS)
def test_columns_that_lie_about_their_buffers_are_a_mistake_and_no_crash(core, column):
    good = BinaryColumn(int32s(0, 1, 2), b"abc")
    for keys, values in ((column, good), (good, column)):
        with pytest.raises(ValueError, match="Arrow column"):
            core.encode_columns(2, keys, values, T, None, 0)
    with pytest.raises(ValueError, match="timestamps"):
        core.encode_columns(2, None, good, bytes(15), None, 0)
