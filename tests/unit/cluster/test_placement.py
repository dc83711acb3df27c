"""Where partitions go: every broker gets its share, racks are not repeated, and chance only chooses the start."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.image import BrokerNode
from ottla.cluster.placement import assign, assign_from, assign_more
from ottla.errors import ApiError, ErrorCode


def brokers(count: int, racks: list[str] | None = None) -> dict[int, BrokerNode]:
    return {
        number: BrokerNode(number, {}, None if racks is None else racks[number % len(racks)]) for number in range(count)
    }


@given(st.integers(1, 12), st.integers(1, 60), st.data(), st.integers())
def test_replicas_differ_and_leaders_are_spread_evenly(
    count: int, partitions: int, data: st.DataObject, seed: int
) -> None:
    factor = data.draw(st.integers(1, count))
    assigned = assign(brokers(count), partitions, factor, random.Random(seed))
    assert len(assigned) == partitions
    assert all(len(set(replicas)) == factor for replicas in assigned)
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders[node] for node in range(count)) <= 1


@given(st.integers(1, 30), st.integers())
def test_the_followers_of_one_leader_are_spread_too(partitions: int, seed: int) -> None:
    assigned = assign(brokers(5), partitions * 20, 2, random.Random(seed))
    for leader in range(5):
        followers = Counter(replicas[1] for replicas in assigned if replicas[0] == leader)
        assert set(followers) == set(range(5)) - {leader}, "its load goes to all others if it dies"


@given(st.integers(1, 40), st.integers(1, 3), st.integers())
def test_replicas_are_on_different_racks_as_long_as_there_are_enough(partitions: int, factor: int, seed: int) -> None:
    nodes = brokers(6, ["a", "b", "c"])
    for replicas in assign(nodes, partitions, factor, random.Random(seed)):
        assert len({nodes[node].rack for node in replicas}) == factor


def test_more_replicas_than_racks_share_racks() -> None:
    nodes = brokers(4, ["a", "b"])
    for replicas in assign(nodes, 8, 3, random.Random(1)):
        assert len(set(replicas)) == 3
        assert {nodes[node].rack for node in replicas} == {"a", "b"}


def test_the_followers_of_a_leader_go_round_the_brokers_of_other_racks() -> None:
    """As Apache Kafka 3.9 places them from this start; `tests/interop/test_placement.py` compares many more."""
    nodes = {number: BrokerNode(number, {}, "aabbcc"[number]) for number in range(6)}
    assert assign_from(nodes, range(13), 2, start=0, shift=0) == [
        *[(0, 2), (2, 4), (4, 1), (1, 3), (3, 5), (5, 0)],
        *[(0, 3), (2, 5), (4, 0), (1, 2), (3, 4), (5, 1)],
        (0, 4),
    ]


def test_new_partitions_continue_the_round_of_the_first_one() -> None:
    """A topic that grows is spread as one that was created with as many partitions."""
    nodes = {number: BrokerNode(number, {}) for number in (1, 4, 7)}
    whole = assign_from(nodes, range(9), 2, start=1, shift=1)
    assert assign_more(nodes, range(3, 9), whole[0]) == whole[3:]
    assert assign_more(nodes, range(3, 4), (2, 9)) == whole[3:4], "broker 2 is gone: the next one has its place"
    assert assign_more(nodes, range(3, 4), (9, 1)) == assign_from(nodes, range(3, 4), 2, 0, 0)


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_a_factor_that_cannot_be_is_refused(factor: int) -> None:
    with pytest.raises(ApiError) as caught:
        assign(brokers(3), 1, factor, random.Random(1))
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_same_seed_gives_the_same_places() -> None:
    assert assign(brokers(5), 10, 3, random.Random(7)) == assign(brokers(5), 10, 3, random.Random(7))
