"""Rows to partitions and to batches, on both record cores."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import RecordsError
from ottla.records import batch, reference
from ottla.records.layout import RECORD_OVERHEAD_BYTES, BinaryColumn

kafka_murmur2 = pytest.importorskip("kafka.partitioner.default").murmur2
pa = pytest.importorskip("pyarrow")
from ottla.records import arrow  # noqa: E402 (after pyarrow was found)

T = 1_700_000_000_000
# The Java client's own examples (its Utils tests), signed as Java has them.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
INT32_MAX = 2**31 - 1

keys_lists = st.lists(st.none() | st.binary(max_size=40), max_size=60)
cells = st.none() | st.binary(max_size=50)
headers_lists = st.none() | st.lists(
    st.tuples(st.sampled_from(["", "h", "ü"]), st.none() | st.binary(max_size=9)), max_size=3
)
records = st.lists(st.tuples(cells, cells, headers_lists), min_size=1, max_size=30)


def int32s(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}i", *numbers)


def numbers_of(buffer: Any) -> list[int]:
    data = bytes(buffer)
    return list(struct.unpack(f"={len(data) // 4}i", data))


def binary(values) -> BinaryColumn:
    return arrow.binary_buffers(pa.array(values, pa.binary()))


@pytest.mark.parametrize(("key", "java_hash"), JAVA_HASHES.items())
def test_a_key_goes_where_the_java_client_sends_it(core, key, java_hash):
    for count in (1, 2, 12, 1000, INT32_MAX):
        expected = [(java_hash & INT32_MAX) % count]
        assert numbers_of(core.partitions_of_keys([key], count, 0)) == expected
        assert numbers_of(core.partitions_of_column(1, binary([key]), count, 0)) == expected


@given(keys_lists, st.integers(1, 50), st.data())
def test_keys_go_where_kafka_python_sends_them(keys, count, data):
    native = pytest.importorskip("ottla.records._native")
    keyless = data.draw(st.integers(0, count))
    expected = [keyless if key is None else (kafka_murmur2(key) & INT32_MAX) % count for key in keys]
    start = data.draw(st.integers(0, len(keys)))
    part = arrow.binary_buffers(pa.array(keys, pa.binary()).slice(start))
    for each in (reference, native):
        assert numbers_of(each.partitions_of_keys(keys, count, keyless)) == expected
        assert numbers_of(each.partitions_of_column(len(keys) - start, part, count, keyless)) == expected[start:]


def test_keys_of_any_length_are_read_to_their_end_and_not_beyond(core):
    rng = random.Random(5)
    keys = [rng.randbytes(length) for length in range(70)]
    expected = [(kafka_murmur2(key) & INT32_MAX) % 997 for key in keys]
    assert numbers_of(core.partitions_of_keys(keys, 997, 0)) == expected
    assert numbers_of(core.partitions_of_column(len(keys), binary(keys), 997, 0)) == expected


def test_keys_may_be_anything_like_bytes(core):
    keys = [bytearray(b"abc"), memoryview(b"abc"), b"abc"]
    assert len(set(numbers_of(core.partitions_of_keys(tuple(keys), 100, 0)))) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_there_must_be_a_partition_to_go_to(core, count):
    with pytest.raises(ValueError, match=f"cannot go to {count} partitions"):
        core.partitions_of_keys([b"k"], count, 0)
    with pytest.raises(ValueError, match=f"cannot go to {count} partitions"):
        core.partitions_of_column(1, binary([b"k"]), count, 0)


@given(st.lists(st.integers(0, 6), max_size=80), st.integers(7, 20))
def test_rows_of_a_group_keep_their_order_and_none_is_lost(numbers, group_count):
    native = pytest.importorskip("ottla.records._native")
    expected = [
        (group, [row for row, number in enumerate(numbers) if number == group]) for group in sorted(set(numbers))
    ]
    for each in (reference, native):
        groups = each.group_rows(int32s(*numbers), group_count)
        assert [(number, numbers_of(rows)) for number, rows in groups] == expected


@pytest.mark.parametrize("number", [-1, 3, INT32_MAX, -(2**31)])
@pytest.mark.parametrize("group_count", [3, 0, -5])
def test_a_group_that_is_not_there_is_a_mistake(core, number, group_count):
    with pytest.raises(ValueError, match="none of"):
        core.group_rows(int32s(0, number), group_count)


def columns_of(rows):
    keys, values, headers = zip(*rows, strict=True)
    return (
        binary(keys),
        binary(values),
        arrow.headers_buffers(pa.array([None if each is None else list(each) for each in headers], arrow.HEADERS_TYPE)),
    )


@given(records, st.data())
def test_selected_rows_make_the_batch_that_their_list_makes(rows, data):
    native = pytest.importorskip("ottla.records._native")
    selected = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40))
    keys, values, headers = columns_of(rows)
    times = [T + row for row in range(len(rows))]
    expected = batch.build(
        [rows[row][0] for row in selected],
        [rows[row][1] for row in selected],
        [times[row] for row in selected],
        headers=[rows[row][2] or [] for row in selected],
    )
    stamps = struct.pack(f"={len(times)}q", *times)
    for each in (reference, native):
        encoded = each.encode_columns(len(rows), keys, values, stamps, headers, 61, int32s(*selected))
        assert encoded.records[61:] == expected[61:]
        assert (encoded.base_timestamp, encoded.max_timestamp) == (T + selected[0], T + max(selected))


@given(records, st.integers(0, 400), st.data())
def test_pieces_keep_the_limit_and_hold_as_much_as_they_may(rows, bytes_max, data):
    native = pytest.importorskip("ottla.records._native")
    selected = data.draw(st.none() | st.lists(st.integers(0, len(rows) - 1), max_size=40))
    numbers = range(len(rows)) if selected is None else selected
    keys, values, headers = columns_of(rows)
    has_headers = data.draw(st.booleans())

    def size(row: int) -> int:
        key, value, pairs = rows[row]
        alone = batch.build(None, [b""], 0, headers=[pairs or []]) if has_headers else b""
        without = batch.build(None, [b""], 0, headers=[[]]) if has_headers else b""
        return RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + len(alone) - len(without) + has_headers

    for each in (reference, native):
        buffer = None if selected is None else int32s(*selected)
        ends = each.split_columns(len(rows), keys, values, headers if has_headers else None, bytes_max, buffer)
        assert ends == sorted(set(ends))
        assert (ends or [0])[-1] == len(numbers)
        start = 0
        for end in ends:
            total = sum(size(row) for row in numbers[start:end])
            assert total <= bytes_max or end == start + 1
            assert end == len(numbers) or total + size(numbers[end]) > bytes_max
            start = end


def test_a_selection_of_rows_that_are_not_there_is_a_mistake_and_no_crash(core):
    column = binary([b"a", b"b"])
    for rows in ([2], [-1], [0, INT32_MAX]):
        with pytest.raises(ValueError, match="row is not there"):
            core.encode_columns(2, None, column, T, None, 0, int32s(*rows))
        with pytest.raises(ValueError, match="row is not there"):
            core.split_columns(2, None, column, None, 100, int32s(*rows))
    with pytest.raises(ValueError, match="at least one record"):
        core.encode_columns(2, None, column, T, None, 0, b"")


LYING_COLUMNS = {
    "offsets beyond the data": BinaryColumn(int32s(0, 1, 9), b"abc"),
    "falling offsets": BinaryColumn(int32s(0, 3, 1), b"abc"),
    "negative offsets": BinaryColumn(int32s(-1, 0, 1), b"abc"),
    "too few offsets": BinaryColumn(int32s(0, 1), b"abc"),
    "too few validity bits": BinaryColumn(int32s(0, 1, 2), b"abc", b"\xff", 7),
}


@pytest.mark.parametrize("column", LYING_COLUMNS.values(), ids=LYING_COLUMNS)
def test_columns_that_lie_about_their_buffers_are_a_mistake_and_no_crash(core, column):
    good = BinaryColumn(int32s(0, 1, 2), b"abc")
    with pytest.raises(ValueError, match="Arrow column"):
        core.partitions_of_column(2, column, 3, 0)
    for keys, values in ((column, good), (good, column)):
        with pytest.raises(ValueError, match="Arrow column"):
            core.split_columns(2, keys, values, None, 100)
        with pytest.raises(ValueError, match="Arrow column"):
            core.encode_columns(2, keys, values, T, None, 0, int32s(1, 0))


def test_a_header_without_a_key_is_refused_where_it_is_selected(core):
    headers = arrow.headers_buffers(pa.array([[(None, b"x")], [("k", b"x")]], arrow.HEADERS_TYPE))
    values = binary([b"a", b"b"])
    assert core.split_columns(2, None, values, headers, 1000, int32s(1)) == [1]
    with pytest.raises(RecordsError, match="header"):
        core.split_columns(2, None, values, headers, 1000, int32s(1, 0))
