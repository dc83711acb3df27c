"""Arrow columns make the batches that lists make, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.partitioning import RecordColumns
from ottla.client.retrying import UnknownTopicError

pa = pytest.importorskip("pyarrow")
from ottla.client.arrow_columns import arrow_columns  # noqa: E402 (after pyarrow was found)
from ottla.records import arrow  # noqa: E402

T = 1_700_000_000_000
cells = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.sampled_from(["", "h", "name"]), st.none() | st.binary(max_size=5)), max_size=2)
rows_of_records = st.lists(st.tuples(cells, cells, header_lists), max_size=40)


def both(rows, start=0):
    """The same records in Arrow columns, which are a slice of longer ones, and in lists."""
    keys, values, headers = zip(*rows, strict=True) if rows else ((), (), ())
    times = list(range(T, T + len(rows)))
    columns = arrow_columns(
        pa.array(values, pa.binary()).slice(start),
        pa.array(times, pa.int64()).slice(start),
        pa.array(keys, pa.binary()).slice(start),
        pa.array([list(each) for each in headers], arrow.HEADERS_TYPE).slice(start),
    )
    return columns, RecordColumns(values[start:], times[start:], keys[start:], headers[start:])


@given(rows_of_records, st.integers(1, 6), st.data())
def test_every_partition_has_the_same_batch(rows, partition_count, data):
    start = data.draw(st.integers(0, len(rows)))
    columns, lists = both(rows, start)
    parts, expected = columns.by_partition(partition_count), lists.by_partition(partition_count)
    assert list(parts) == list(expected)
    for number, part in parts.items():
        assert len(part) == len(expected[number])
        if len(part):
            assert part.build(base_sequence=7) == expected[number].build(base_sequence=7)


@given(rows_of_records.filter(bool), st.integers(1, 300), st.booleans())
def test_pieces_and_halves_are_the_records_in_order(rows, bytes_max, by_partition):
    columns, lists = both(rows)
    if by_partition:
        columns, lists = (next(iter(each.by_partition(3).values())) for each in (columns, lists))
    pieces = columns.pieces(bytes_max)
    start = 0
    for piece in pieces:
        assert piece.build() == lists.slice(start, start + len(piece)).build()
        middle = len(piece) // 2
        if middle:
            assert piece.slice(middle, len(piece)).build() == lists.slice(start + middle, start + len(piece)).build()
        start += len(piece)
    assert start == len(lists)


def test_columns_without_keys_choose_nothing_and_stay_together():
    columns = arrow_columns(pa.array([b"a", b"b"]), T)
    assert columns.by_partition(5) == {None: columns}


def test_keys_that_are_not_to_be_hashed_choose_nothing_but_are_in_the_records():
    keys, values = [b"k", b"l"], [b"a", b"b"]
    columns = arrow_columns(pa.array(values), T, pa.array(keys), hashes_keys=False)
    assert columns.by_partition(5) == {None: columns}
    assert columns.build() == RecordColumns(values, T, keys).build()


def test_a_partition_that_is_named_comes_before_the_key():
    keys = pa.array([b"21", b"21", None, None])
    columns = arrow_columns(
        pa.array([b"a", b"b", b"c", b"d"]), T, keys, partitions=pa.array([5, None, 6, None], pa.int32())
    )
    (by_key,) = RecordColumns([b"b"], T, [b"21"]).by_partition(12)
    parts = columns.by_partition(12)
    assert {number: len(part) for number, part in parts.items()} == {by_key: 1, None: 1, 5: 1, 6: 1}
    assert parts[6].build() == RecordColumns([b"c"], T, [None]).build()


def test_partitions_of_a_slice_and_of_chunks_are_those_of_its_rows():
    values = pa.array([b"%d" % number for number in range(6)])
    numbers = pa.array([9, 9, 0, 1, None, 1], pa.int32())
    for partitions in (numbers.slice(2), pa.chunked_array([numbers.slice(2, 2), numbers.slice(4)])):
        parts = arrow_columns(values.slice(2), T, partitions=partitions).by_partition(3)
        assert {number: part.build() for number, part in parts.items()} == {
            0: RecordColumns([b"2"], T).build(),
            1: RecordColumns([b"3", b"5"], T).build(),
            None: RecordColumns([b"4"], T).build(),
        }


@pytest.mark.parametrize("number", [-1, 3])
def test_a_partition_that_is_not_there_is_told(number):
    columns = arrow_columns(pa.array([b"a", b"b"]), T, partitions=pa.array([0, number], pa.int32()))
    with pytest.raises(UnknownTopicError, match=f"no partition {number}: there are 3"):
        columns.by_partition(3)


def test_columns_of_different_lengths_are_a_mistake():
    with pytest.raises(ValueError, match="1 keys beside 2 values"):
        arrow_columns(pa.array([b"a", b"b"]), T, pa.array([b"k"]))
