"""Who leads, as tables of cases: each row is a state, who can be had, and what comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.image import NO_LEADER, PartitionState
from ottla.cluster.leadership import (
    elect_first,
    elect_of_any,
    elect_of_in_sync,
    elect_of_target,
    elect_preferred,
    elect_without,
    remove_replica,
    repair,
)


def state(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    return PartitionState(replicas, leader, leader_epoch=4, isr=isr, version=9)


def seen(result: PartitionState | None) -> tuple[int, tuple[int, ...]] | None:
    """Leader and ISR; the epochs are checked here for every case."""
    if result is None:
        return None
    assert (result.leader_epoch, result.version) == (5, 10)
    return result.leader, result.isr


@pytest.mark.parametrize(
    ("online", "expected"),
    [((1, 2, 3), (1, (1, 2, 3))), ((3, 2), (2, (2, 3))), ((4,), (NO_LEADER, ()))],
)
def test_a_new_partition_is_led_by_its_first_replica_that_is_there(
    online: tuple[int, ...], expected: tuple[int, tuple[int, ...]]
) -> None:
    first = elect_first((1, 2, 3), online)
    assert (first.leader, first.isr) == expected
    assert (first.leader_epoch, first.version) == (0, 0)


@pytest.mark.parametrize(
    ("isr", "online", "clean", "unclean"),
    [
        ((1, 2, 3), (2, 3), (2, (2, 3)), (2, (2, 3))),
        ((3, 2, 1), (3, 2), (2, (3, 2)), (2, (3, 2))),  # the order of the assignment decides, not that of the ISR
        ((1, 3), (2, 3), (3, (3,)), (3, (3,))),
        ((1,), (2, 3), None, (2, (2,))),
        ((1, 2), (3,), None, (3, (3,))),
        ((1,), (), None, None),
    ],
)
def test_after_a_leader_is_lost(isr: tuple[int, ...], online: tuple[int, ...], clean: object, unclean: object) -> None:
    before = state(1, isr)
    assert seen(elect_of_in_sync(before, online)) == clean
    found = elect_of_any(before, online)
    assert seen(found) == unclean
    if found is not None:
        assert found.is_recovering == (clean is None)


@pytest.mark.parametrize(
    ("leader", "isr", "online", "expected"),
    [
        (2, (1, 2, 3), (1, 2, 3), (1, (1, 2, 3))),
        (1, (1, 2, 3), (1, 2, 3), None),  # it leads already
        (2, (2, 3), (1, 2, 3), None),  # it is not in sync
        (2, (1, 2, 3), (2, 3), None),  # it cannot be had
    ],
)
def test_the_preferred_leader(leader: int, isr: tuple[int, ...], online: tuple[int, ...], expected: object) -> None:
    assert seen(elect_preferred(state(leader, isr), online)) == expected


@pytest.mark.parametrize(
    ("isr", "leaving", "online", "expected"),
    [
        ((1, 2, 3), (1,), (1, 2, 3), (2, (2, 3))),
        ((1, 2, 3), (1, 2), (1, 2, 3), (3, (3,))),
        ((1, 2, 3), (1,), (1, 3), (3, (2, 3))),  # 2 is away, and still in sync as far as anybody knows
        ((1,), (1,), (1, 2, 3), None),
        ((1, 2), (1,), (1, 3), None),
    ],
)
def test_before_brokers_shut_down(
    isr: tuple[int, ...], leaving: tuple[int, ...], online: tuple[int, ...], expected: object
) -> None:
    assert seen(elect_without(state(1, isr), leaving, online)) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "target", "online", "expected"),
    [
        (1, (1, 2, 3, 4), (4, 1), (1, 2, 3, 4), (1, (1, 2, 3, 4))),  # it stays
        (1, (1, 2, 3, 4), (4, 2), (1, 2, 3, 4), (4, (1, 2, 3, 4))),
        (1, (1, 2, 3), (4, 2), (1, 2, 3, 4), (2, (1, 2, 3))),  # 4 is not in sync
        (1, (1, 2, 3, 4), (1, 4), (2, 3, 4), (4, (1, 2, 3, 4))),  # the leader cannot be had
        (1, (1, 2, 3), (4,), (1, 2, 3, 4), None),
    ],
)
def test_when_a_move_has_caught_up(
    leader: int, isr: tuple[int, ...], target: tuple[int, ...], online: tuple[int, ...], expected: object
) -> None:
    assert seen(elect_of_target(state(leader, isr, (1, 2, 3, 4)), target, online)) == expected


@pytest.mark.parametrize(
    ("isr", "node", "expected"),
    [
        ((1, 2, 3), 2, (1, (1, 3))),
        ((1, 2, 3), 1, (NO_LEADER, (2, 3))),
        ((1,), 1, (NO_LEADER, (1,))),  # the last one in sync stays so
        ((1, 2), 3, None),
    ],
)
def test_a_replica_that_is_about_to_stop(isr: tuple[int, ...], node: int, expected: object) -> None:
    assert seen(remove_replica(state(1, isr), node)) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "online", "clean", "unclean"),
    [
        (1, (1, 2, 3), (1, 2, 3), None, None),
        (1, (1, 2, 3), (1, 3), (1, (1, 3)), (1, (1, 3))),
        (1, (1, 2, 3), (3,), (3, (3,)), (3, (3,))),
        (1, (1, 2), (3,), (NO_LEADER, (1, 2)), (3, (3,))),  # both had everything: whoever returns first may lead
        (1, (1, 2), (), (NO_LEADER, (1, 2)), (NO_LEADER, (1, 2))),
        (NO_LEADER, (1, 2), (3,), None, (3, (3,))),
        (NO_LEADER, (1, 2), (2, 3), (2, (2,)), (2, (2,))),
        (1, (1,), (1, 2), None, None),
    ],
)
def test_after_replicas_were_lost(
    leader: int, isr: tuple[int, ...], online: tuple[int, ...], clean: object, unclean: object
) -> None:
    assert seen(repair(state(leader, isr), online, unclean=False)) == clean
    assert seen(repair(state(leader, isr), online, unclean=True)) == unclean


NODES = st.sets(st.sampled_from([1, 2, 3, 4]))


@given(
    st.sampled_from([NO_LEADER, 1, 2, 3, 4]),
    st.permutations([1, 2, 3, 4]),
    st.sets(st.sampled_from([1, 2, 3, 4]), min_size=1),
    NODES,
    NODES,
)
def test_only_a_replica_in_sync_that_can_be_had_is_ever_elected_unless_asked_for(
    leader: int, replicas: list[int], in_sync: set[int], online: set[int], leaving: set[int]
) -> None:
    before = PartitionState(tuple(replicas), leader, 4, tuple(sorted(in_sync)), version=9)
    target = replicas[:2]
    for after in (
        elect_of_in_sync(before, online),
        elect_preferred(before, online),
        elect_without(before, leaving, online),
        elect_of_target(before, target, online),
    ):
        if after is not None:
            assert after.leader in online
            assert after.leader in before.isr or after.leader == before.leader
            assert after.leader in after.isr or after.leader == before.leader
            assert set(after.isr) <= set(before.isr)
            assert after.isr
    unclean = elect_of_any(before, online)
    assert (unclean is None) == (not online)
