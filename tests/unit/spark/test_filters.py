"""Filters of a query as places in logs."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.ids import TopicPartition
from ottla.spark.filters import EVERYTHING, Selection, narrowed
from ottla.spark.offsets import OffsetRange

T = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # 1_700_000_000_000 ms


def of(*filters: Filter) -> Selection:
    selection, left = narrowed(EVERYTHING, filters)
    assert left == []
    return selection


def test_topics_and_partitions_are_chosen() -> None:
    assert of(EqualTo(("topic",), "a")).topics == {"a"}
    assert of(In(("topic",), ("a", "b")), EqualTo(("topic",), "b")).topics == {"b"}
    assert of(In(("partition",), (1, 2))).partitions == {1, 2}
    assert of(EqualTo(("topic",), "a"), EqualTo(("topic",), "b")).topics == frozenset()


def test_offsets_are_bounded_from_both_sides() -> None:
    assert of(GreaterThan(("offset",), 5), LessThan(("offset",), 9)) == Selection(start_offset=6, end_offset=9)
    assert of(GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)) == Selection(
        start_offset=5, end_offset=10
    )
    assert of(EqualTo(("offset",), 7), GreaterThan(("offset",), 2)) == Selection(start_offset=7, end_offset=8)


def test_columns_that_are_never_null_need_no_filter_for_it() -> None:
    assert of(IsNotNull(("topic",)), IsNotNull(("offset",))) == EVERYTHING
    assert narrowed(EVERYTHING, [IsNotNull(("key",))])[1] == [IsNotNull(("key",))]


def test_a_time_gives_a_first_offset_and_is_looked_at_again_by_spark() -> None:
    late = GreaterThanOrEqual(("timestamp",), T)
    selection, left = narrowed(EVERYTHING, [late, LessThan(("timestamp",), T)])
    assert selection == Selection(since_ms=1_699_999_999_999)
    assert left == [late, LessThan(("timestamp",), T)]


def test_a_time_without_a_zone_says_nothing() -> None:
    early = GreaterThan(("timestamp",), T.replace(tzinfo=None))
    assert narrowed(EVERYTHING, [early]) == (EVERYTHING, [early])


def test_other_filters_are_left_to_spark() -> None:
    others = [
        EqualTo(("value",), b"x"),
        Not(EqualTo(("topic",), "a")),
        In(("offset",), (1, 2)),
        EqualTo(("headers", "key"), "x"),
    ]
    assert narrowed(EVERYTHING, others) == (EVERYTHING, others)


def test_what_is_left_of_ranges() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    ranges = [OffsetRange(a, 0, 10), OffsetRange(b, 5, 20)]
    assert EVERYTHING.ranges(ranges) == ranges
    assert Selection(topics=frozenset({"b"})).ranges(ranges) == [ranges[1]]
    assert Selection(partitions=frozenset({0})).ranges(ranges) == [ranges[0]]
    assert Selection(start_offset=7, end_offset=12).ranges(ranges) == [OffsetRange(a, 7, 10), OffsetRange(b, 7, 12)]
    assert Selection(start_offset=10).ranges(ranges) == [OffsetRange(b, 10, 20)]
