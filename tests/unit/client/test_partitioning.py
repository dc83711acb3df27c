"""Which partition and which batch a record goes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import hashing
from ottla.client.partitioning import RecordColumns
from ottla.records import batch

keys_and_values = st.lists(st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=60)))


def columns(rows: list[tuple[bytes | None, bytes | None]]) -> RecordColumns:
    return RecordColumns(
        values=[value for _, value in rows],
        timestamps=list(range(len(rows))),
        keys=[key for key, _ in rows],
        headers=[[("n", b"%d" % number)] for number in range(len(rows))],
    )


def rows_of(part: RecordColumns) -> list[tuple[Any, ...]]:
    assert not isinstance(part.timestamps, int)
    assert part.keys is not None
    assert part.headers is not None
    return list(zip(part.timestamps, part.keys, part.values, part.headers, strict=True))


@given(keys_and_values, st.integers(2, 7))
def test_every_record_goes_to_its_partition_in_order_and_whole(rows, partition_count):
    records = columns(rows)
    parts = records.by_partition(partition_count)
    for partition, part in parts.items():
        assert rows_of(part) == [
            row
            for row in rows_of(records)
            if partition == (None if row[1] is None else hashing.partition_of_key(row[1], partition_count))
        ]
    assert sum(map(len, parts.values())) == len(rows)


@given(keys_and_values)
def test_in_the_only_partition_records_keep_their_order_whether_they_have_a_key_or_not(rows):
    records = columns(rows)
    assert records.by_partition(1) == {0: records}


def test_records_without_a_column_of_keys_choose_no_partition():
    records = RecordColumns([b"a", b"b"], 0)
    assert records.by_partition(3) == {None: records}


@given(keys_and_values, st.integers(1, 400))
def test_pieces_keep_the_order_and_the_limit(rows, batch_bytes_max):
    records = columns(rows)
    pieces = records.pieces(batch_bytes_max)
    assert [row for piece in pieces for row in rows_of(piece)] == rows_of(records)
    for piece in pieces:
        assert sum(piece.sizes()) <= batch_bytes_max or len(piece) == 1


@given(keys_and_values.filter(bool))
def test_a_batch_is_not_larger_than_was_reckoned(rows):
    records = columns(rows)
    built = records.build()
    assert len(built) - batch.HEADER_BYTES <= sum(records.sizes())


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 beside 1 values"):
        RecordColumns([b"v"], 0, keys=[b"a", b"b"])
