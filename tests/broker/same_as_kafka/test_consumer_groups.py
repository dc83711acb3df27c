"""Groups of KIP-848, and both protocols in one group."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.testing.raw_groups import beat, commit, delete_offsets, first_beat, heartbeat, leave, owning
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

conversations = Conversations(GroupSide)


def assigned(answer: Any) -> Any:
    """The partitions in order: how they are written is nobody's."""
    if getattr(answer, "assignment", None) is not None:
        for topic in answer.assignment.topic_partitions:
            topic.partitions.sort()
    return answer


def settled(side: GroupSide, group: str, member_id: str, topic_id: UUID, *partitions: int) -> int:
    """The epoch of a member once it has these partitions. Kafka's coordinator hears of a new topic a moment later."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    owned = owning(topic_id, *partitions)
    epochs = [0]

    def has_settled() -> bool:
        (described,) = side.client.ask(request, 1).groups
        (member,) = (each for each in described.members if each.member_id == member_id)
        epochs.append(member.member_epoch)
        assigned = {number for each in member.assignment.topic_partitions for number in each.partitions}
        side.client.ask(beat(group, member_id, member.member_epoch, topic_partitions=owned if assigned else []), 1)
        return assigned == set(partitions) and epochs[-1] == epochs[-2] == described.group_epoch

    wait_until(has_settled)
    return epochs[-1]


@conversations.add
def heartbeats_of_consumers_that_are_refused(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("read", 2)
    group = side.name("group")
    for version in (0, 1):
        name = f"{group}-{version}"
        side.ask(first_beat("", "m", topic), version)
        side.ask(first_beat(" ", "m", topic), version)
        if version == 1:
            side.ask(first_beat(name, "", topic), version)
        side.ask(beat(name, "m", 0), version)
        side.ask(beat(name, "m", 0, rebalance_timeout_ms=1000), version)
        side.ask(beat(name, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[topic]), version)
        side.ask(first_beat(name, "m", topic_partitions=owning(topic_id, 0)), version)
        side.ask(first_beat(name, "m", topic, rebalance_timeout_ms=-1), version)
        side.ask(first_beat(name, "m", topic, server_assignor="sticky"), version)
        side.ask(first_beat(name, "m", topic, server_assignor=""), version)
        side.ask(first_beat(name, "m", topic, rack_id=""), version)
        side.ask(first_beat(name, "m", topic, instance_id=""), version)
        side.ask(beat(name, "m", 5), version)
        side.ask(beat(name, "", 5), version)
        side.ask(beat(name, "m", -1), version)
        side.ask(beat(name, "m", -2), version)
        side.ask(beat(name, "m", -2, instance_id="static"), version)
        side.ask(beat(name, "m", -3), version)
        if version == 1:
            side.ask(first_beat(name, "m", subscribed_topic_regex="(", subscribed_topic_names=None), version)
            side.ask(first_beat(name, "m", subscribed_topic_regex="", subscribed_topic_names=None), version)
    for name in (group, "", side.name("never")):
        side.ask(ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=True), 1)


@conversations.add
def a_consumer_alone(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("read", 3)
    group = side.name("group")
    side.ask(first_beat(group, "one", topic), 1, note=lambda answer: answer.error_code)
    epoch = settled(side, group, "one", topic_id, 0, 1, 2)
    side.ask(beat(group, "one", epoch, topic_partitions=owning(topic_id, 0, 1, 2)), 1, note=assigned)
    side.ask(beat(group, "one", epoch), 1, note=assigned)
    side.ask(beat(group, "one", epoch + 1), 1, note=assigned)
    side.ask(beat(group, "one", epoch + 1, topic_partitions=owning(topic_id, 0)), 1, note=assigned)
    side.ask(beat(group, "two", epoch), 1, note=assigned)
    side.ask(beat(group, "one", epoch, subscribed_topic_names=[topic, side.name("never")]), 1, note=assigned)
    for version in (0, 1):
        for with_operations in (False, True):
            request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=with_operations)
            side.ask(request, version)
    epoch = settled(side, group, "one", topic_id, 0, 1, 2)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(DescribeGroupsRequest(groups=[group]), 6)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    side.ask(ListGroupsRequest(types_filter=["consumer"]), 5, note=side.own_groups)
    side.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    for version in (8, 9):
        of_member: dict[str, Any] = {"member_id": "one", "generation_id_or_member_epoch": epoch}
        side.ask(commit(group, topic, {0: 1}, **of_member), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": epoch + 5}), version)
        # Commits of an earlier epoch (KIP-1251) are in test_group_epochs.py.
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": "two"}), version)
        side.ask(commit(group, topic, {0: 1}), version)
    for member_id, member_epoch in (("one", epoch), ("one", epoch + 5), ("two", epoch), (None, -1), ("", -1)):
        entry = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=member_epoch, topics=None)
        side.ask(OffsetFetchRequest(groups=[entry]), 9)
    side.ask(delete_offsets(group, {topic: [0]}), 0)
    side.ask(heartbeat(group, epoch, "one"), 4)
    side.ask(beat(group, "one", -1), 1)
    side.ask(beat(group, "one", epoch), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    side.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


@conversations.add
def static_consumers(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("read", 2)
    group = side.name("group")
    static = {"instance_id": "static"}
    side.ask(first_beat(group, "one", topic, **static), 1, note=lambda answer: answer.error_code)
    epoch = settled(side, group, "one", topic_id, 0, 1)
    side.ask(first_beat(group, "two", topic, **static), 1, note=assigned)
    side.ask(beat(group, "one", epoch, instance_id="other"), 1, note=assigned)
    side.ask(beat(group, "one", -2, **static), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)
    side.ask(first_beat(group, "two", topic, **static), 1, note=assigned)
    side.ask(beat(group, "one", epoch, **static), 1, note=assigned)
    side.ask(beat(group, "one", -1, **static), 1)
    side.ask(beat(group, "two", -1, **static), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


@conversations.add
def classic_and_consumer_protocol_in_one_group(side: GroupSide) -> None:
    topic, _ = side.new_topic("read", 2)
    # A group without members changes its kind with whoever comes.
    group = side.name("empty")
    member, _ = side.lone_member(group)
    side.ask(first_beat(group, "new", topic), 1, note=lambda answer: answer.error_code)
    side.ask(leave(group, member), 5)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    # Members who are no consumers cannot be taken along.
    group = side.name("connect")
    side.lone_member(group, protocol_type="connect", metadata=b"in words of its own")
    side.ask(first_beat(group, "new", topic), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


@conversations.add
def patterns_that_are_taken_and_refused(side: GroupSide) -> None:
    patterns = [r"\pL+", r"\p{Lu}", r"\P{Greek}", r"\p{Klingon}", r"\101", r"\1", r"\8", r"[\pL\d]", r"[\w-z]", "[z-a]"]
    patterns += [
        "(?P<1>a)",
        "(?P<n>a)(?P<n>b)",
        "(?i)*",
        "a(?i)*",
        "{2}",
        "a{1000}",
        "a{1001}",
        "a**",
        "(?=a)",
        r"\Qa\E*",
    ]
    for number, pattern in enumerate(patterns):
        request = first_beat(side.name(f"group-{number}"), "one", subscribed_topic_regex=pattern)
        side.ask(request, 1, note=lambda answer: (pattern, answer.error_code))  # noqa: B023 (called at once)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
