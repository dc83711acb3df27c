"""Plans that make brokers carry equally much, and move little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.balancing import balance, replicas_moved
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition


def partitions(*replicas: tuple[int, ...], topic: str = "t") -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def without_racks(*brokers: int) -> dict[int, None]:
    return dict.fromkeys(brokers)


def spread(load: Counter[int], brokers: Iterable[int]) -> int:
    counts = [load[node] for node in brokers]
    return max(counts) - min(counts)


def test_what_is_balanced_stays():
    current = partitions((1, 2), (2, 3), (3, 1))
    assert balance(current, without_racks(1, 2, 3)) == current


def test_a_new_broker_gets_its_share_and_nothing_else_moves():
    current = partitions((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    proposed = balance(current, without_racks(1, 2, 3))
    assert Counter(node for replicas in proposed.values() for node in replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in proposed.values()) == {1: 2, 2: 2, 3: 2}
    assert replicas_moved(current, proposed) == 4


def test_a_broker_that_is_to_go_is_emptied_and_only_its_replicas_move():
    current = partitions((1, 2), (2, 3), (3, 1))
    proposed = balance(current, without_racks(1, 2))
    assert [set(replicas) for replicas in proposed.values()] == [{1, 2}] * 3
    assert replicas_moved(current, proposed) == 2


def test_more_replicas_go_to_racks_that_have_none():
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    proposed = balance(partitions((1,), (2,)), racks, replication_factor=3)
    assert [set(replicas) for replicas in proposed.values()] == [{1, 3, 4}, {2, 3, 4}]


def test_fewer_replicas_keep_the_leader_and_as_many_racks_as_they_can():
    racks = {1: "a", 2: "a", 3: "b"}
    assert balance(partitions((1, 2, 3)), racks, replication_factor=2) == partitions((1, 3))


def test_replicas_on_one_rack_move_apart():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    proposed = balance(partitions((1, 2), (3, 4)), racks)
    for replicas in proposed.values():
        assert len({racks[node] for node in replicas}) == 2


def test_racks_count_only_where_every_broker_has_one():
    current = partitions((1, 2), (3, 1), (2, 3))
    assert balance(current, {1: "a", 2: "a", 3: None}) == current


def test_what_stays_elsewhere_counts_as_load():
    elsewhere = partitions((1,), (1,), (2,), (2,), topic="heavy")
    proposed = balance(partitions((1,), (2,)), without_racks(1, 2, 3), elsewhere=elsewhere)
    assert list(proposed.values()) == [(3,), (3,)]


def test_leaders_become_equal_through_brokers_between():
    # 1 leads all that it shares with 2 alone; 3 can only take from 2.
    current = partitions((1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (3, 2))
    proposed = balance(current, without_racks(1, 2, 3), elsewhere=partitions((3,), (1,), topic="other"))
    assert spread(Counter([*(replicas[0] for replicas in proposed.values()), 3, 1]), (1, 2, 3)) <= 1


def test_more_replicas_than_brokers_are_refused():
    with pytest.raises(ApiError, match="t-0 is to have 3 replicas, and 2 brokers may hold them") as caught:
        balance(partitions((1, 2)), without_racks(1, 2), replication_factor=3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int]:
    before = draw(st.integers(1, 6))
    factor = draw(st.integers(1, before))
    count = draw(st.integers(1, 12))
    order = st.permutations(range(before)).map(lambda nodes: tuple(nodes[:factor]))
    current = {TopicPartition("ab"[number % 2], number): draw(order) for number in range(count)}
    alive = draw(st.sets(st.integers(0, 7), min_size=factor, max_size=8))
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c")]))
    return current, {node: racks[node % len(racks)] for node in alive}, factor


@given(clusters())
def test_a_plan_is_whole_and_balanced_and_moves_no_more_than_it_must(cluster):
    current, racks, factor = cluster
    proposed = balance(current, racks)
    assert proposed.keys() == current.keys()
    for replicas in proposed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
        if None not in racks.values():
            assert len({racks[node] for node in replicas}) == min(factor, len(set(racks.values())))
    if None in racks.values():
        assert spread(Counter(node for replicas in proposed.values() for node in replicas), racks) <= 1
    assert balance(proposed, racks) == proposed
