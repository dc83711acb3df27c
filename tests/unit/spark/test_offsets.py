"""Offsets in checkpoints, ranges, splits and limits."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ids import TopicPartition
from ottla.spark.offsets import (
    LATEST,
    OffsetRange,
    Plan,
    count_between,
    gathered,
    limited,
    offsets_from_json,
    offsets_to_json,
    plan,
    split,
)

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_checkpoint_has_topics_and_partitions_in_one_order() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    assert json.dumps(offsets_to_json(offsets)) == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}}'
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


def test_a_checkpoint_of_sparks_own_source_is_read() -> None:
    assert offsets_from_json(json.loads('{"orders":{"2":7,"0":9223372036854775807}}')) == {
        TopicPartition("orders", 2): 7,
        TopicPartition("orders", 0): 2**63 - 1,
    }


@pytest.mark.parametrize("nested", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a": {"-1": 0}}])
def test_what_is_no_checkpoint_is_refused(nested: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a "):
        offsets_from_json(nested)


def test_a_plan_has_what_lies_between() -> None:
    assert plan({A: 3, B: 5}, {B: 9, A: 4}) == Plan((OffsetRange(A, 3, 4), OffsetRange(B, 5, 9)))
    assert plan({A: 3}, {A: 3}) == Plan(())


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert plan({A: 3}, {A: 3, C: 2}) == Plan((OffsetRange(C, 0, 2),))


def test_the_batch_in_which_a_stream_begins_at_the_latest_reads_nothing_of_it() -> None:
    assert plan({A: LATEST, B: 4}, {A: 100, B: 6}) == Plan((OffsetRange(B, 4, 6),))


def test_a_partition_that_went_or_went_back_is_a_loss() -> None:
    planned = plan({A: 10, C: 5}, {A: 4})
    assert planned.ranges == ()
    assert planned.losses == (
        "a-0 went back from offset 10 to 4; it may have been recreated",
        "b-0 no longer exists; it was read up to 5",
    )


sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=8)


@given(sizes, st.none() | st.integers(1, 50), st.none() | st.integers(1, 3000))
def test_splits_cover_every_offset_once_and_keep_to_their_limits(
    ranges: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [OffsetRange(TopicPartition("t", number), 7, 7 + size) for number, size in enumerate(ranges)]
    parts = split(whole, min_partitions, max_records)
    for each in whole:
        edge = each.start_offset
        for part in parts:
            if part.partition == each.partition:
                assert part.start_offset == edge < part.end_offset
                edge = part.end_offset
        assert edge == each.end_offset
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)
    if min_partitions is not None:
        assert len(parts) >= min(min_partitions, sum(ranges))


def test_large_ranges_are_cut_first() -> None:
    parts = split([OffsetRange(A, 0, 900), OffsetRange(B, 0, 100)], min_partitions=4)
    assert [(part.partition, part.size) for part in parts] == [(A, 300), (A, 300), (A, 300), (B, 100)]


def test_without_a_minimum_of_tasks_a_partition_is_a_task() -> None:
    assert split([OffsetRange(A, 0, 5), OffsetRange(B, 2, 2)]) == [OffsetRange(A, 0, 5)]


@given(sizes, st.integers(0, 3000))
def test_small_parts_share_a_task_in_their_order(ranges: list[int], together_max: int) -> None:
    parts = [OffsetRange(TopicPartition("t", number), 0, size) for number, size in enumerate(ranges)]
    tasks = gathered(parts, together_max)
    assert [part for task in tasks for part in task] == parts
    for task in tasks:
        assert len(task) == 1 or sum(part.size for part in task) <= together_max
    for task, following in pairwise(tasks):
        room = together_max - sum(part.size for part in task)
        assert following[0].size > room, "it would have had room"


def test_a_limit_is_shared_out_by_what_each_partition_has() -> None:
    assert limited({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}
    assert limited({A: 0}, {A: 50}, 100) == {A: 50}


def test_a_small_partition_is_not_left_behind_for_ever() -> None:
    assert limited({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}


def test_a_limit_leaves_alone_where_a_stream_begins_and_what_went_back() -> None:
    assert limited({A: LATEST, B: 0, C: 9}, {A: 50, B: 100, C: 3}, 10) == {A: 50, B: 10, C: 3}


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1),
    st.integers(1, 500),
)
def test_a_limited_end_lies_between_start_and_end_and_moves_on(
    bounds: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {partition: first for partition, (first, _) in bounds.items()}
    end = {partition: first + size for partition, (first, size) in bounds.items()}
    found = limited(start, end, limit)
    assert found.keys() == end.keys()
    assert all(start[each] <= found[each] <= end[each] for each in end)
    assert count_between(start, found) <= limit + len(bounds)
    assert (found == start) == (end == start)
