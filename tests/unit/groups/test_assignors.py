"""Assignors: everybody's partitions once, shared fairly, moved no more than needed."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.groups.assignors import ASSIGNORS, Assignment, MemberSpec, assign_ranges, assign_uniformly
from ottla.groups.partitions import each_partition

TOPICS = [UUID(int=number) for number in range(1, 5)]
A, B = TOPICS[:2]

sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
names = st.sets(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


def loads(assignment: Assignment) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assignment.items()}


def owners(assignment: Assignment) -> dict[tuple[UUID, int], str]:
    found: dict[tuple[UUID, int], str] = {}
    for member, partitions in assignment.items():
        for partition in each_partition(partitions):
            assert partition not in found, "two have one partition"
            found[partition] = member
    return found


def again(members: Mapping[str, MemberSpec], assignment: Assignment) -> dict[str, MemberSpec]:
    """The same members, with what they were assigned as what they have."""
    return {name: spec._replace(target=assignment.get(name, {})) for name, spec in members.items()}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@settings(max_examples=60)
@given(topics=sizes, members=st.dictionaries(st.sampled_from([f"m{number}" for number in range(8)]), subscriptions))
def test_every_partition_that_is_read_has_one_owner_who_reads_it(
    assign: object, topics: dict[UUID, int], members: dict[str, frozenset[UUID]]
) -> None:
    assignment = assign({name: MemberSpec(reads) for name, reads in members.items()}, topics)  # type: ignore[operator]
    found = owners(assignment)
    read = {topic for reads in members.values() for topic in reads}
    assert set(found) == {(topic, index) for topic, size in topics.items() if topic in read for index in range(size)}
    assert all(topic in members[member] for (topic, _), member in found.items())
    assert set(assignment) == set(members)


@settings(max_examples=60)
@given(topics=sizes, members=names)
def test_uniform_shares_differ_by_one_at_most(topics: dict[UUID, int], members: set[str]) -> None:
    spec = MemberSpec(frozenset(topics))
    found = loads(assign_uniformly(dict.fromkeys(members, spec), topics)).values()
    assert max(found) - min(found) <= 1


@settings(max_examples=60)
@given(topics=sizes, before=names, after=names)
def test_uniform_moves_no_more_than_it_must(topics: dict[UUID, int], before: set[str], after: set[str]) -> None:
    spec = MemberSpec(frozenset(topics))
    old = assign_uniformly(dict.fromkeys(before, spec), topics)
    new = assign_uniformly(again(dict.fromkeys(after, spec), old), topics)
    found = loads(new)
    assert max(found.values()) - min(found.values()) <= 1
    # Whoever stays keeps all it had, up to what it may have now.
    was, now = owners(old), owners(new)
    total = sum(topics.values())
    share, extras = divmod(total, len(after))
    held = sorted((loads(old)[member] for member in before & after), reverse=True)
    kept_at_most = sum(min(count, share + (position < extras)) for position, count in enumerate(held))
    assert sum(now[partition] == member for partition, member in was.items()) == kept_at_most


@settings(max_examples=60)
@given(
    topics=sizes,
    members=st.dictionaries(st.sampled_from([f"m{number}" for number in range(8)]), subscriptions, min_size=1),
)
def test_no_single_move_would_make_unlike_members_more_equal(
    topics: dict[UUID, int], members: dict[str, frozenset[UUID]]
) -> None:
    specs = {name: MemberSpec(reads) for name, reads in members.items()}
    assignment = assign_uniformly(specs, topics)
    load = loads(assignment)
    for (topic, _), member in owners(assignment).items():
        assert all(load[member] - load[other] <= 1 for other, reads in members.items() if topic in reads)
    assert assign_uniformly(again(specs, assignment), topics) == assignment, "nothing moves without a reason"


def test_partitions_and_topics_that_are_gone_are_given_up() -> None:
    spec = MemberSpec(frozenset({A, B}), {A: frozenset({0, 7}), B: frozenset({0})})
    other = MemberSpec(frozenset({A}))
    assert assign_uniformly({"m1": spec}, {A: 1}) == {"m1": {A: frozenset({0})}}
    assert loads(assign_uniformly({"m1": spec, "m2": other}, {A: 2})) == {"m1": 1, "m2": 1}


def test_uniform_without_members_assigns_nothing() -> None:
    assert assign_uniformly({}, {A: 3}) == {}


def test_ranges_are_stretches_and_the_first_have_one_more() -> None:
    spec = MemberSpec(frozenset({A}))
    assert assign_ranges({"m2": spec, "m1": spec, "m3": spec}, {A: 8}) == {
        "m1": {A: frozenset({0, 1, 2})},
        "m2": {A: frozenset({3, 4, 5})},
        "m3": {A: frozenset({6, 7})},
    }


def test_topics_that_are_alike_are_cut_alike() -> None:
    spec = MemberSpec(frozenset({A, B}))
    assignment = assign_ranges(dict.fromkeys(("m1", "m2", "m3"), spec), {A: 7, B: 7})
    assert all(partitions[A] == partitions[B] for partitions in assignment.values())


def test_static_members_keep_their_ranges_under_new_member_ids() -> None:
    def by_instance(assignment: Assignment, members: dict[str, MemberSpec]) -> dict[str | None, object]:
        return {spec.instance_id: assignment[name] for name, spec in members.items()}

    first = {"x": MemberSpec(frozenset({A}), instance_id="i1"), "y": MemberSpec(frozenset({A}), instance_id="i2")}
    second = {"z": MemberSpec(frozenset({A}), instance_id="i1"), "a": MemberSpec(frozenset({A}), instance_id="i2")}
    assert by_instance(assign_ranges(first, {A: 5}), first) == by_instance(assign_ranges(second, {A: 5}), second)


@pytest.mark.parametrize("count", [3, 4, 7])
def test_who_has_two_more_than_another_gives_one_up(count: int) -> None:
    """Whatever they read besides: a difference of one is left alone, because a move would only turn it around."""
    everything = {A: frozenset(range(count))}
    members = {"m1": MemberSpec(frozenset({A}), everything), "m2": MemberSpec(frozenset({A, B}), {B: frozenset({0})})}
    found = sorted(loads(assign_uniformly(members, {A: count, B: 1})).values())
    assert found == [(count + 1) // 2, (count + 2) // 2]
