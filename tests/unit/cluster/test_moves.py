"""Moves of partitions as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster import moves
from ottla.cluster.image import PartitionState
from ottla.errors import ApiError, ErrorCode


def partition(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> PartitionState:
    return PartitionState(replicas, replicas[0], leader_epoch=1, isr=replicas if isr is None else isr)


def test_a_move_stands_in_the_assignment_with_what_comes_and_what_goes() -> None:
    moving = moves.begin(partition((1, 2)), (2, 3))
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 3, 1), (3,), (1,))
    assert moves.is_moving(moving)
    assert moves.target(moving) == (2, 3)
    assert set(moves.origin(moving)) == {1, 2}


def test_another_order_is_a_move_that_has_caught_up() -> None:
    moving = moves.begin(partition((1, 2)), (2, 1))
    assert not moves.is_moving(moving)
    assert moving.replicas == (2, 1)


def test_a_move_that_is_cancelled_keeps_the_order_of_the_move() -> None:
    cancelled = moves.cancel(moves.begin(partition((2, 3)), (3, 1)))
    assert (cancelled.replicas, cancelled.adding, cancelled.removing) == ((3, 2), (), ())


@pytest.mark.parametrize(("isr", "expected"), [((1, 2), False), ((1, 2, 3), True), ((2, 3), True), ((3,), False)])
def test_a_move_has_caught_up_when_the_whole_target_is_in_sync(isr: tuple[int, ...], expected: bool) -> None:
    moving = moves.begin(partition((1, 2), isr), (2, 3))
    assert moves.has_caught_up(moving) == expected


def test_a_finished_move_is_an_assignment_like_any_other() -> None:
    finished = moves.finish(moves.begin(partition((1, 2)), (2, 3)))
    assert (finished.replicas, finished.adding, finished.removing) == ((2, 3), (), ())


BROKERS = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)


@given(BROKERS, st.lists(BROKERS, min_size=1, max_size=4))
def test_a_move_may_change_its_way_any_number_of_times_and_be_cancelled(
    before: tuple[int, ...], targets: list[tuple[int, ...]]
) -> None:
    moving = partition(before)
    for wanted in targets:
        moving = moves.begin(moving, wanted)
        assert moves.target(moving) == wanted
        assert set(moves.origin(moving)) == set(before)
        assert not set(moving.adding) & set(before)
        assert len(set(moving.replicas)) == len(moving.replicas)
    assert set(moves.cancel(moving).replicas) == set(before)
    assert moves.finish(moving).replicas == targets[-1]


@pytest.mark.parametrize("replicas", [(), (1, 1), (-1,), (1, 9)])
def test_what_is_no_set_of_living_brokers_is_refused(replicas: tuple[int, ...]) -> None:
    moves.check_replicas((1, 2), known={1, 2, 3})
    with pytest.raises(ApiError) as caught:
        moves.check_replicas(replicas, known={1, 2, 3})
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
