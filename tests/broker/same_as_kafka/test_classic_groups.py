"""Coordinators, the members of classic groups, and what administrators see of them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
)
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import commit, fetch_offsets, heartbeat, join, leave, subscription_to, sync
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

conversations = Conversations(GroupSide)

BOTH = ["range", "sticky"]


@conversations.add
def a_coordinator_is_found(side: GroupSide) -> None:
    for version in range(7):
        keys = {"coordinator_keys": ["g", "h", ""]} if version >= 4 else {"key": "g"}
        side.ask(FindCoordinatorRequest(**keys), version)
        if version >= 1:
            side.ask(FindCoordinatorRequest(**keys, key_type=7), version)
        if 1 <= version < 6:
            side.ask(FindCoordinatorRequest(**keys, key_type=2), version)
    side.ask(FindCoordinatorRequest(key=""), 3)
    side.ask(FindCoordinatorRequest(coordinator_keys=[]), 4)


@conversations.add
def joins_that_are_refused(side: GroupSide) -> None:
    for version in range(10):
        group = side.name(f"group-{version}")
        side.ask(join("", "m"), version)
        side.ask(join("", ""), version)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, session_timeout_ms=499), version)
        side.ask(join(group, session_timeout_ms=1_800_001), version)
        side.ask(join(group, session_timeout_ms=-1), version)
        side.ask(join(group, protocol_type=""), version)
        side.ask(join(group, protocols=[]), version)
        if version >= 5:
            side.ask(join(group, "nobody", group_instance_id="static"), version)


@conversations.add
def a_group_and_its_only_member(side: GroupSide) -> None:
    for version in range(10):
        group = side.name(f"group-{version}")
        member = str(side.ask(join(group), version).member_id)
        generation = 1
        if version >= 4:
            side.ask(sync(group, 1, member), 3)
            side.ask(heartbeat(group, 1, member), 3)
            generation = side.ask(join(group, member), version).generation_id
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
        side.ask(heartbeat(group, generation, member), 3)
        sync_version = min(version, 5)
        side.ask(sync(group, generation + 1, member), sync_version)
        side.ask(sync(group, generation, "nobody"), sync_version)
        side.ask(sync("", generation, member), sync_version)
        side.ask(sync(side.name("never"), generation, member), sync_version)
        if sync_version == 5:
            side.ask(sync(group, generation + 1, member, protocol_type=None), 5)
            side.ask(sync(group, generation, member, protocol_name=None), 5)
            side.ask(sync(group, generation, member, protocol_type="connect", protocol_name="range"), 5)
            side.ask(sync(group, generation, member, protocol_type="consumer", protocol_name="sticky"), 5)
        side.ask(sync(group, generation, member, {member: b"assigned", "stranger": b"x"}), sync_version)
        side.ask(sync(group, generation, member, {member: b"again"}), sync_version)
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
        side.ask(join(group, member), version)
        side.ask(heartbeat(group, generation, member), 3)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, protocol_type="connect"), version)
        side.ask(join(group, protocols=["sticky"]), version)
        side.ask(join(group, member, protocols=["sticky"]), version)


@conversations.add
def heartbeats(side: GroupSide) -> None:
    group = side.name("group")
    member, generation = side.lone_member(group)
    for version in range(5):
        side.ask(heartbeat(group, generation, member), version)
        side.ask(heartbeat(group, generation + 1, member), version)
        side.ask(heartbeat(group, generation - 1, member), version)
        side.ask(heartbeat(group, generation, "nobody"), version)
        side.ask(heartbeat(group, generation, ""), version)
        side.ask(heartbeat(side.name("never"), generation, member), version)
        side.ask(heartbeat("", generation, member), version)
        if version >= 3:
            side.ask(heartbeat(group, generation, member, group_instance_id="static"), version)


@conversations.add
def a_second_member_comes_and_the_first_goes(side: GroupSide) -> None:
    topic, _ = side.new_topic("shared", 2)
    group = side.name("group")
    first, generation = side.lone_member(group, protocols=["range", "sticky"])
    other = side.connect()
    second = side.new_member(group, client=other, protocols=["range", "other"])
    side.ask(heartbeat(group, generation, first), 4)
    joining = side.send(join(group, second, protocols=["range", "other"]), 9, client=other)
    wait_until(lambda: side.client.ask(heartbeat(group, generation, first), 4).error_code == 27)
    side.ask(heartbeat(group, generation, second), 4)
    side.ask(sync(group, generation, first), 5)
    side.ask(commit(group, topic, {0: 1}, member_id=first, generation_id_or_member_epoch=generation), 8)
    side.ask(commit(group, topic, {0: 1}, member_id=second, generation_id_or_member_epoch=generation), 8)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    joined = side.ask(join(group, first, protocols=["range", "sticky"]), 9)
    side.receive(joining)
    generation = joined.generation_id
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(heartbeat(group, generation, first), 4)
    side.ask(commit(group, topic, {0: 1}, member_id=first, generation_id_or_member_epoch=generation), 8)
    syncing = side.send(sync(group, generation, second), 5, client=other)
    side.ask(sync(group, generation, first, {first: b"one", second: b"two"}), 5)
    side.receive(syncing)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    # The leader comes back: everybody is asked to join. A follower that comes back is answered at once.
    side.ask(join(group, second, protocols=["range", "other"]), 9, client=other)
    side.ask(leave(group, first), 5)
    side.ask(heartbeat(group, generation, second), 4, client=other)
    joined = side.ask(join(group, second, protocols=["range", "other"]), 9, client=other)
    side.ask(leave(group, second), 5, client=other)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    other.close()


@conversations.add
def leaving(side: GroupSide) -> None:
    for version in range(6):
        group = side.name(f"group-{version}")
        member, _ = side.lone_member(group)
        if version < 3:
            side.ask(LeaveGroupRequest(group_id=group, member_id="nobody"), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=""), version)
            side.ask(LeaveGroupRequest(group_id="", member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=side.name("never"), member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=member), version)
        else:
            side.ask(leave(group, "nobody"), version)
            side.ask(leave(group), version)
            side.ask(leave(group, ("", "static")), version)
            side.ask(leave(group, ("nobody", "static")), version)
            side.ask(leave("", member), version)
            side.ask(leave(side.name("never"), member, "other"), version)
            side.ask(leave(group, "nobody", member), version)
            side.ask(leave(group, member), version)
        pending = side.new_member(group)
        side.ask(
            LeaveGroupRequest(group_id=group, member_id=pending) if version < 3 else leave(group, pending), version
        )


@conversations.add
def static_members(side: GroupSide) -> None:
    topic, _ = side.new_topic("static", 2)
    group = side.name("group")
    joined = side.ask(join(group, group_instance_id="one"), 9)
    first, generation = joined.member_id, joined.generation_id
    side.ask(sync(group, generation, first, {first: b"assigned"}, group_instance_id="one"), 5)
    side.ask(heartbeat(group, generation, first, group_instance_id="one"), 4)
    side.ask(heartbeat(group, generation, "nobody", group_instance_id="one"), 4)
    side.ask(heartbeat(group, generation, first, group_instance_id="two"), 4)
    side.ask(heartbeat(group, generation, first), 4)
    # It comes back under the same name and has a new id; the old one is fenced.
    rejoined = side.ask(join(group, group_instance_id="one"), 9)
    again = rejoined.member_id
    for member in (first, again):
        side.ask(heartbeat(group, rejoined.generation_id, member, group_instance_id="one"), 4)
        side.ask(sync(group, rejoined.generation_id, member, {member: b"new"}, group_instance_id="one"), 5)
        of_member = {"member_id": member, "generation_id_or_member_epoch": rejoined.generation_id}
        side.ask(commit(group, topic, {0: 1}, **of_member, group_instance_id="one"), 8)
        side.ask(commit(group, topic, {0: 1}, **of_member), 8)
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(join(group, first, group_instance_id="one"), 9)
    side.ask(leave(group, (first, "one")), 5)
    # One more protocol, and the group still speaks the same: no rebalance.
    changed = side.ask(join(group, group_instance_id="one", protocols=["range", "sticky"]), 9)
    side.ask(
        sync(group, changed.generation_id, changed.member_id, {changed.member_id: b"x"}, group_instance_id="one"), 5
    )
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(leave(group, ("", "two"), ("", "one")), 5)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)


def static_pair(side: GroupSide, other: RawClient, group: str, **how: Any) -> tuple[str, str]:
    """Static members `one`, who leads and asks by its own connection, and `two`, in generation 2, not synced."""
    leader = side.ask(join(group, group_instance_id="one", **how), 9, client=other).member_id
    side.ask(sync(group, 1, leader, group_instance_id="one"), 5, client=other)
    joining = side.send(join(group, group_instance_id="two", **how), 9)
    wait_until(lambda: other.ask(heartbeat(group, 1, leader, group_instance_id="one"), 4).error_code == 27)
    side.ask(join(group, leader, group_instance_id="one", **how), 9, client=other)
    return leader, side.receive(joining).member_id


@conversations.add
def static_members_restart_with_other_bytes(side: GroupSide) -> None:
    """A consumer's subscription carries its generation: after a restart its bytes are never what they were."""
    group = side.name("group")
    described = DescribeGroupsRequest(groups=[group])
    other = side.connect()
    leader, follower = static_pair(side, other, group, protocols=BOTH, metadata=b"first")
    syncing = side.send(sync(group, 2, follower, group_instance_id="two"), 5)
    shares = {leader: b"of the leader", follower: b"of the follower"}
    side.ask(sync(group, 2, leader, shares, group_instance_id="one"), 5, client=other)
    side.receive(syncing)
    for version in (9, 8, 5):
        for instance in ("two", "one"):
            again = side.ask(join(group, group_instance_id=instance, protocols=BOTH, metadata=b"%d" % version), version)
            assert again.member_id not in shares
            side.ask(heartbeat(group, 2, again.member_id, group_instance_id=instance), 4)
            side.ask(sync(group, 2, again.member_id, group_instance_id=instance), 5)
            side.ask(described, 5)
    # One comes back that speaks only what the group does not: now all must agree anew.
    joining = side.send(join(group, group_instance_id="two", protocols=["sticky"]), 9, client=other)
    wait_until(lambda: side.client.ask(described, 5).groups[0].group_state == "PreparingRebalance")
    # Asked to rejoin, and restarted instead: it is the same member.
    side.ask(join(group, group_instance_id="one", protocols=BOTH), 9)
    side.receive(joining)
    side.ask(described, 5)


@conversations.add
def static_members_return_before_their_sync(side: GroupSide) -> None:
    group = side.name("group")
    described = DescribeGroupsRequest(groups=[group])
    other = side.connect()
    leader, follower = static_pair(side, other, group)
    # The leader has assigned; the follower never heard, and is another process now.
    side.ask(sync(group, 2, leader, {leader: b"1", follower: b"2"}, group_instance_id="one"), 5, client=other)
    again = side.ask(join(group, group_instance_id="two"), 9).member_id
    side.ask(heartbeat(group, 2, again, group_instance_id="two"), 4)
    side.ask(sync(group, 2, again, group_instance_id="two"), 5)
    # A new generation, and one that returns while the leader has yet to assign: all start over.
    joining = side.send(join(group, leader, group_instance_id="one"), 9, client=other)
    wait_until(lambda: side.client.ask(heartbeat(group, 2, again, group_instance_id="two"), 4).error_code == 27)
    side.ask(join(group, again, group_instance_id="two"), 9)
    side.receive(joining)
    returning = side.send(join(group, group_instance_id="two"), 9)
    wait_until(
        lambda: other.ask(heartbeat(group, 3, leader, group_instance_id="one"), 4).error_code == 27,
    )
    side.ask(sync(group, 3, leader, {leader: b"1", again: b"2"}, group_instance_id="one"), 5, client=other)
    side.ask(join(group, leader, group_instance_id="one"), 9, client=other)
    side.receive(returning)
    side.ask(described, 5)


@conversations.add
def members_that_were_named_and_did_not_come(side: GroupSide) -> None:
    group = side.name("group")
    described = DescribeGroupsRequest(groups=[group])
    alone = side.name("alone")
    pending = side.new_member(alone)
    side.ask(leave(alone, pending), 5)
    side.ask(leave(alone, pending), 5)
    side.ask(DescribeGroupsRequest(groups=[alone]), 5)
    member, generation = side.lone_member(group)
    pending = side.new_member(group)
    side.ask(heartbeat(group, generation, pending), 4)
    side.ask(leave(group, "nobody"), 5)
    side.ask(heartbeat(group, generation, member), 4)
    side.ask(leave(group, pending), 5)
    side.ask(heartbeat(group, generation, member), 4)
    side.ask(described, 5)


@conversations.add
def groups_that_a_refused_join_leaves_behind(side: GroupSide) -> None:
    refused: dict[str, dict[str, Any]] = {
        "typeless": {"protocol_type": ""},
        "mute": {"protocols": []},
        "early": {"session_timeout_ms": 1},
        "unknown": {"member_id": "nobody"},
        "fenced": {"member_id": "nobody", "group_instance_id": "static"},
        "named": {},
    }
    for version in (5, 9):
        for name, how in refused.items():
            side.ask(join(side.name(f"{name}-{version}"), **how), version)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    for name in refused:
        side.ask(DescribeGroupsRequest(groups=[side.name(f"{name}-9")]), 6)
        side.ask(fetch_offsets(9, side.name(f"{name}-9"), None), 9)
        side.ask(DeleteGroupsRequest(groups_names=[side.name(f"{name}-9")]), 2)


def joined_count(answer: Any) -> Any:
    return answer.error_code, answer.generation_id, len(answer.members)


@conversations.add
def a_group_that_is_full(side: GroupSide) -> None:
    group = side.name("group")
    described = DescribeGroupsRequest(groups=[group])
    first = side.ask(join(group), 3).member_id
    joining = []
    for count in (2, 3):
        joining.append(side.send(join(group), 3, client=side.connect()))
        wait_until(lambda: len(side.client.ask(described, 5).groups[0].members) == count)  # noqa: B023 (called at once)
    side.ask(join(group, first), 3, note=joined_count)
    for asked in joining:
        side.receive(asked, note=joined_count)
    for version in (3, 9):
        side.ask(join(group), version)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, group_instance_id="static") if version == 9 else join(group), version)


@conversations.add
def groups_are_described_listed_and_deleted(side: GroupSide) -> None:
    topic, _ = side.new_topic("read", 2)
    stable, empty, simple, pending = (side.name(name) for name in ("stable", "empty", "simple", "pending"))
    member, _ = side.lone_member(stable, metadata=subscription_to(topic))
    gone, _ = side.lone_member(empty)
    side.ask(leave(empty, gone), 4)
    side.ask(commit(simple, topic, {0: 4}), 8)
    side.new_member(pending)
    groups = [stable, empty, simple, pending, side.name("never"), "", stable]
    for version in range(7):
        more = {"include_authorized_operations": True} if version >= 3 else {}
        for group in groups:
            side.ask(DescribeGroupsRequest(groups=[group], **more), version)
        side.ask(DescribeGroupsRequest(groups=[]), version)
    for version in range(6):
        side.ask(ListGroupsRequest(), version, note=side.own_groups)
        for states in ([], ["Stable"], ["stable", "EMPTY"], ["Nonsense"], ["Dead"], ["PreparingRebalance"]):
            if version >= 4:
                side.ask(ListGroupsRequest(states_filter=states), version, note=side.own_groups)
        for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"], ["nonsense"], ["share"]):
            if version >= 5:
                side.ask(ListGroupsRequest(types_filter=types), version, note=side.own_groups)
    for version in range(3):
        for group in (stable, side.name("never"), "", pending):
            side.ask(DeleteGroupsRequest(groups_names=[group]), version)
    side.ask(DeleteGroupsRequest(groups_names=[]), 2)
    side.ask(DeleteGroupsRequest(groups_names=[simple]), 2)
    side.ask(DeleteGroupsRequest(groups_names=[empty, empty]), 2)
    side.ask(fetch_offsets(9, simple, None), 9)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    side.ask(heartbeat(stable, 1, member), 4)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
