"""Assignors of classic groups, against what Java's gave for the same members, and against their own promises."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.consumer.assignors import ASSIGNORS, Assignment, Member
from ottla.client.consumer.assignors.spec import NO_GENERATION
from ottla.client.consumer.assignors.sticky import claims_of
from ottla.client.consumer.assignors.wire import (
    decode_assignment,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_sticky,
    encode_subscription,
)
from ottla.errors import ProtocolError
from ottla.ids import TopicPartition

VECTORS = json.loads((Path(__file__).parents[1] / "client_vectors.json").read_text())
ROUNDS_MAX = 8
CASES = {case["case"]: case for case in VECTORS["assignors"]}


def partition(text: str) -> TopicPartition:
    topic, number = text.rsplit("-", 1)
    return TopicPartition(topic, int(number))


def partitions(texts: list[str]) -> list[TopicPartition]:
    return [partition(text) for text in texts]


def rackless(partition_counts: dict[str, int]) -> dict[str, list[frozenset[str]]]:
    """Topics whose replicas are in no rack."""
    return {topic: [frozenset()] * count for topic, count in partition_counts.items()}


def topics_of(case: dict[str, Any]) -> dict[str, list[frozenset[str]]]:
    if case["replica_racks"] is None:
        return rackless(case["topics"])
    assert re.search(r"r\(p mod 3\), r\(\(p\+1\) mod 3\)", case["replica_racks"])
    return {
        topic: [frozenset({f"r{number % 3}", f"r{(number + 1) % 3}"}) for number in range(count)]
        for topic, count in case["topics"].items()
    }


def members_of(case: dict[str, Any]) -> dict[str, Member]:
    """As each assignor gets them: what was owned is in the subscription and in the sticky assignor's user data."""
    found = {}
    for each in case["members"]:
        owned = partitions(each["owned"])
        found[each["id"]] = Member(
            topics=frozenset(each["topics"]),
            instance_id=each["instance"],
            owned=frozenset(owned),
            generation=each["generation"],
            rack=each["rack"],
            user_data=encode_sticky(owned, each["generation"]) if owned else None,
        )
    return found


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("name", CASES)
def test_an_assignor_gives_what_javas_gives(name: str, assignor: str) -> None:
    case = CASES[name]
    assigned = ASSIGNORS[assignor].assign(members_of(case), topics_of(case))
    expected = {member_id: sorted(partitions(texts)) for member_id, texts in case["assigned"][assignor].items()}
    assert {member_id: sorted(found) for member_id, found in assigned.items()} == expected


@pytest.mark.parametrize("vector", VECTORS["subscription_bytes"], ids=lambda each: f"version {each['version']}")
def test_a_subscription_has_javas_bytes(vector: dict[str, Any]) -> None:
    owned = partitions(vector["owned"])
    data = encode_subscription(
        vector["topics"], None, owned, vector["generation"], vector["rack"], version=vector["version"]
    )
    assert data.hex() == vector["hex"]
    found = decode_subscription(data, "instance")
    version = vector["version"]
    assert found == Member(
        topics=frozenset(vector["topics"]),
        instance_id="instance",
        owned=frozenset(owned if version >= 1 else ()),
        generation=vector["generation"] if version >= 2 else NO_GENERATION,
        rack=vector["rack"] if version >= 3 else None,
    )


def test_an_assignment_has_javas_bytes() -> None:
    (vector,) = VECTORS["assignment_bytes"]
    found = partitions(vector["partitions"])
    assert encode_assignment(found).hex() == vector["hex"]
    assert decode_assignment(bytes.fromhex(vector["hex"])) == found
    assert decode_assignment(memoryview(bytes.fromhex(vector["hex"]))) == found


def test_user_data_has_javas_bytes() -> None:
    vectors = VECTORS["user_data"]
    had = partitions(["a-0", "a-1"])
    sticky, cooperative = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]
    assert encode_sticky(had, 5).hex() == vectors["sticky_v1 a-0 a-1 generation 5"]
    assert sticky.user_data(had, 5) == encode_sticky(had, 5)
    assert sticky.user_data([], NO_GENERATION) is None
    assert encode_generation(5).hex() == vectors["cooperative-sticky generation 5"]
    assert cooperative.user_data(had, 5) == encode_generation(5)
    assert (cooperative.user_data([], NO_GENERATION) or encode_generation(-1)).hex() == vectors[
        "cooperative-sticky before first assignment"
    ]


def test_sticky_user_data_of_every_version_is_read_and_rubbish_says_nothing() -> None:
    had = partitions(["a-0", "b-1"])
    data = encode_sticky(had, 5)
    assert decode_sticky(data) == (frozenset(had), 5)
    assert decode_sticky(data[:-4]) == (frozenset(had), NO_GENERATION)
    for rubbish in (None, b"", b"\x7f\xff\xff\xff", b"abc"):
        assert decode_sticky(rubbish) == (frozenset(), NO_GENERATION)
    assert decode_generation(b"\0") == NO_GENERATION


def test_bytes_of_a_newer_version_are_read_as_far_as_they_are_known() -> None:
    data = encode_subscription(["t"], None, [], 3, None)
    newer = b"\x00\x09" + data[2:] + b"more"
    assert decode_subscription(newer) == decode_subscription(data)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0"])
def test_what_is_no_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_assignment(data)


def test_a_cooperative_member_of_an_old_version_has_its_generation_in_its_user_data() -> None:
    old = Member(frozenset({"t"}), owned=frozenset(partitions(["t-0"])), user_data=encode_generation(1))
    new = Member(frozenset({"t"}), owned=frozenset(partitions(["t-0", "t-1"])), generation=2)
    assigned = ASSIGNORS["cooperative-sticky"].assign({"a": old, "b": new}, rackless({"t": 2}))
    assert assigned == {"a": [], "b": partitions(["t-0"])}, "t-1 is b's until b has given it up"


def test_of_two_claims_the_later_generation_counts_and_of_equal_ones_none() -> None:
    claims = claims_of(
        {
            "a": Member(frozenset({"t"}), owned=frozenset(partitions(["t-0", "t-1", "t-2"])), generation=1),
            "b": Member(frozenset({"t"}), owned=frozenset(partitions(["t-0", "t-3"])), generation=2),
            "c": Member(frozenset({"t"}), owned=frozenset(partitions(["t-2"])), generation=1),
        }
    )
    assert claims.owners == {partition("t-0"): "b", partition("t-1"): "a", partition("t-3"): "b"}
    assert claims.earlier_owners == {partition("t-0"): "a"}
    assert claims.contested == {partition("t-2")}


names = st.sampled_from(["a", "b", "c", "d"])
groups = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.builds(
        Member,
        topics=st.frozensets(names),
        instance_id=st.one_of(st.none(), st.sampled_from(["i1", "i2"])),
        rack=st.sampled_from([None, "r0", "r1", "r2"]),
    ),
    min_size=1,
)
layouts = st.dictionaries(
    names, st.lists(st.frozensets(st.sampled_from(["r0", "r1", "r2"]), max_size=2), max_size=7), max_size=4
)


def check_promises(members: dict[str, Member], topics: dict[str, list[frozenset[str]]], found: Assignment) -> None:
    """Everybody subscribed to reads, nobody else does, and nothing is read twice."""
    assert found.keys() == members.keys()
    read = Counter(each for assigned in found.values() for each in assigned)
    assert all(count == 1 for count in read.values())
    for member_id, assigned in found.items():
        assert all(each.topic in members[member_id].topics for each in assigned)
    subscribed = frozenset().union(*(each.topics for each in members.values()))
    expected = {
        TopicPartition(topic, number) for topic in topics if topic in subscribed for number in range(len(topics[topic]))
    }
    assert set(read) == expected


@settings(max_examples=30)
@given(groups, layouts, st.sampled_from(["range", "roundrobin", "sticky"]))
def test_everything_is_read_by_exactly_one_subscriber(
    members: dict[str, Member], topics: dict[str, list[frozenset[str]]], assignor: str
) -> None:
    check_promises(members, topics, ASSIGNORS[assignor].assign(members, topics))


@settings(max_examples=30)
@given(groups, groups, layouts)
def test_cooperative_rounds_hand_over_nothing_that_is_still_owned_and_end(
    members: dict[str, Member], others: dict[str, Member], topics: dict[str, list[frozenset[str]]]
) -> None:
    """One group becomes another: every round only gives what nobody holds, and after a few everything is given."""
    assignor = ASSIGNORS["cooperative-sticky"]
    held = assignor.assign(members, topics)
    group = others
    for generation in range(1, ROUNDS_MAX):
        group = {
            member_id: member._replace(
                owned=frozenset(held.get(member_id, ())), generation=generation if member_id in held else NO_GENERATION
            )
            for member_id, member in group.items()
        }
        found = assignor.assign(group, topics)
        for member_id, assigned in found.items():
            held_by_others = {each for other, member in group.items() if other != member_id for each in member.owned}
            assert not held_by_others & set(assigned)
        if found == held:
            break
        held = found
    check_promises(group, topics, found)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 20))
def test_sticky_is_even_and_moves_no_more_than_it_must(before: int, after: int, count: int) -> None:
    topics = rackless({"t": count})
    assignor = ASSIGNORS["sticky"]
    held = assignor.assign({f"m{number}": Member(frozenset({"t"})) for number in range(before)}, topics)
    members = {
        f"m{number}": Member(frozenset({"t"}), user_data=encode_sticky(held.get(f"m{number}", ()), 1))
        for number in range(after)
    }
    found = assignor.assign(members, topics)
    loads = [len(each) for each in found.values()]
    assert max(loads) - min(loads) <= 1
    least_kept = sum(min(len(held.get(member_id, ())), count // after) for member_id in members)
    kept = sum(len(set(found[member_id]) & set(held.get(member_id, ()))) for member_id in members)
    assert kept >= least_kept
