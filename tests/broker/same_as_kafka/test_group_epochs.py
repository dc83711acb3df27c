"""Epoch for epoch: what moves a consumer group on, and by how much. The numbers themselves are compared."""

from __future__ import annotations

from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, LeaveGroupRequest
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.testing.raw_groups import (
    ASSIGNED_NOTHING,
    beat,
    commit,
    first_beat,
    heartbeat,
    join,
    leave,
    owning,
    set_group_config,
    subscription_to,
    sync,
)
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

STATIC = {"instance_id": "static"}


class EpochSide(GroupSide):
    """A side that writes down the numbers of heartbeats and descriptions."""

    def known_topic(self, name: str, partitions: int, group: str) -> tuple[str, UUID]:
        """A topic that the coordinator of the group knows: somebody was assigned it. The group is then a new one."""
        topic, topic_id = self.new_topic(name, partitions)
        epoch = self.client.ask(first_beat(group, "probe", topic), 1).member_epoch

        def is_assigned() -> bool:
            nonlocal epoch
            epoch = self.client.ask(beat(group, "probe", epoch), 1).member_epoch
            (member,) = self.described(group).members
            return sum(len(each.partitions) for each in member.assignment.topic_partitions) == partitions

        wait_until(is_assigned)
        assert not self.client.ask(beat(group, "probe", -1), 1).error_code
        assert not self.client.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code
        return topic, topic_id

    def described(self, group: str) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        return self.client.ask(request, 1).groups[0]

    def beat(self, request: Any) -> Any:
        """A heartbeat: its code, the member's epoch, and how many partitions it is told. Then the whole group."""
        answer = self.client.ask(request, 1)
        told = (
            None if answer.assignment is None else sorted(len(t.partitions) for t in answer.assignment.topic_partitions)
        )
        self.note(f"{request.member_id} at {request.member_epoch}", answer.error_code, answer.member_epoch, told)
        group = self.described(request.group_id)
        self.note("described", group.error_code, group.group_state, group.group_epoch, group.assignment_epoch)
        for member in sorted(group.members, key=lambda each: str(each.member_id)):
            counts = [
                sum(len(each.partitions) for each in assignment.topic_partitions)
                for assignment in (member.assignment, member.target_assignment)
            ]
            self.note("a member", member.member_id, member.member_epoch, member.instance_id, member.rack_id, *counts)
        return answer

    def wait_until_classic(self, group: str) -> None:
        """Kafka's is a classic group with the answer that makes it one, ours a moment later."""
        described = DescribeGroupsRequest(groups=[group])
        wait_until(lambda: self.client.ask(described, 6).groups[0].group_state != "Dead")

    def partitions_of(self, answer: Any) -> list[int]:
        return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


conversations = Conversations(EpochSide)


@conversations.add
def the_first_heartbeats_of_a_group(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 3, group)
    side.beat(first_beat(group, "one", topic))
    side.beat(beat(group, "one", 2))
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, 0, 1, 2)))
    side.beat(first_beat(group, "one", topic))
    side.beat(beat(group, "one", 1))
    side.beat(beat(group, "one", 1, topic_partitions=owning(topic_id, 0)))
    side.beat(beat(group, "one", 3))
    side.beat(beat(group, "one", -1))
    side.beat(first_beat(group, "two", topic))
    side.beat(beat(group, "two", -1))


@conversations.add
def members_that_read_nothing(side: EpochSide) -> None:
    group = side.name("group")
    topic, _ = side.known_topic("read", 2, group)
    side.beat(first_beat(group, "idle"))
    side.beat(beat(group, "idle", 1))
    side.beat(first_beat(group, "reader", topic))
    side.beat(beat(group, "idle", 1))
    side.beat(first_beat(group, "another"))
    side.beat(first_beat(group, "hopeful", side.name("never")))
    side.beat(beat(group, "idle", -1))


@conversations.add
def a_second_member_comes_and_goes(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 4, group)
    side.beat(first_beat(group, "one", topic))
    side.beat(first_beat(group, "two", topic))
    side.beat(beat(group, "two", 3))
    kept = side.partitions_of(side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, 0, 1, 2, 3))))
    side.beat(beat(group, "one", 2))  # it has not said that it gave them up
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, *kept)))
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, *kept)))  # the reply was lost
    side.beat(beat(group, "two", 3))
    side.beat(beat(group, "two", 3))
    # Another comes while the first has yet to give up something.
    side.beat(first_beat(group, "three", topic))
    side.beat(beat(group, "two", 3))
    side.beat(beat(group, "one", 3))
    side.beat(beat(group, "two", -1))
    side.beat(beat(group, "three", -1))
    one = side.described(group).members[0]
    held = [index for each in one.assignment.topic_partitions for index in each.partitions]
    side.beat(beat(group, "one", one.member_epoch, topic_partitions=owning(topic_id, *held)))
    side.beat(beat(group, "one", one.member_epoch, topic_partitions=owning(topic_id, *held[:1])))


@conversations.add
def commits_of_earlier_epochs(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 2, group)
    other, _ = side.known_topic("other", 1, side.name("probed"))
    side.beat(first_beat(group, "one", topic))
    side.beat(first_beat(group, "two", topic))
    (kept,) = side.partitions_of(side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, 0, 1))))

    def commit_all() -> None:
        for member_id in ("one", "two"):
            for epoch in range(-1, 5):
                of_member: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
                for partition in (kept, 1 - kept):
                    side.ask(commit(group, topic, {partition: 1}, **of_member), 9)
                side.ask(commit(group, topic, {kept: 1, 1 - kept: 1}, **of_member), 9)
                side.ask(commit(group, other, {0: 1}, **of_member), 9)
                side.ask(commit(group, "", {kept: 1}, topic_id=topic_id, **of_member), 10)
                side.ask(commit(group, topic, {1 - kept: 1}, "x" * 4097, **of_member), 9)

    commit_all()  # the first has yet to give up a partition
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, kept)))
    side.beat(beat(group, "two", 3))
    commit_all()


@conversations.add
def a_static_member_goes_and_returns(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 2, group)
    side.beat(first_beat(group, "one", topic, **STATIC))
    side.beat(beat(group, "one", -2, **STATIC))
    side.beat(first_beat(group, "two", topic, **STATIC))
    side.beat(beat(group, "two", 2, topic_partitions=owning(topic_id, 0, 1), **STATIC))
    side.beat(beat(group, "two", -2, **STATIC))
    side.beat(first_beat(group, "two", topic, **STATIC))
    side.beat(beat(group, "two", -2, **STATIC))
    # It returns and reads something else.
    other, _ = side.known_topic("other", 1, side.name("probed"))
    side.beat(first_beat(group, "three", topic, other, **STATIC))
    side.beat(first_beat(group, "dynamic", topic))
    side.beat(beat(group, "three", -1, **STATIC))


@conversations.add
def subscriptions_change(side: EpochSide) -> None:
    group = side.name("group")
    first, first_id = side.known_topic("first", 2, group)
    second, second_id = side.known_topic("second", 3, group)
    side.beat(first_beat(group, "one", first))
    side.beat(beat(group, "one", 2, subscribed_topic_names=[first]))
    side.beat(beat(group, "one", 2, subscribed_topic_names=[first, second]))
    side.beat(beat(group, "one", 3, subscribed_topic_names=[second]))
    side.beat(beat(group, "one", 3))
    side.beat(beat(group, "one", 3, topic_partitions=owning(second_id, 0, 1, 2)))
    side.beat(beat(group, "one", 4, subscribed_topic_names=[]))
    side.beat(beat(group, "one", 4, topic_partitions=[]))
    side.beat(beat(group, "one", 5, subscribed_topic_names=[side.name("never")]))
    side.beat(beat(group, "one", 6, rack_id="a rack", server_assignor="range", rebalance_timeout_ms=1000))
    side.beat(beat(group, "one", 6, rack_id="another", subscribed_topic_names=[first]))
    side.beat(beat(group, "one", 7, topic_partitions=owning(first_id, 0, 1)))


@conversations.add
def patterns_are_subscribed_to(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 2, group)
    pattern = {"subscribed_topic_regex": f"{topic}.*"}
    # Kafka tells a member its partitions with the heartbeat after the one that brought the pattern, we with that one.
    side.client.ask(first_beat(group, "one", **pattern), 1)

    def has_partitions() -> bool:
        (member,) = side.described(group).members
        return bool(side.client.ask(beat(group, "one", member.member_epoch), 1).member_epoch == 2)

    wait_until(has_partitions)
    side.beat(beat(group, "one", 2))
    side.beat(first_beat(group, "two", **pattern))  # it is resolved already
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id)))
    side.beat(beat(group, "two", 3, subscribed_topic_regex="", subscribed_topic_names=[topic]))
    side.beat(beat(group, "two", 4, subscribed_topic_regex="", subscribed_topic_names=[topic]))
    side.beat(beat(group, "two", -1))
    side.beat(beat(group, "one", -1))


@conversations.add
def a_topic_gets_partitions(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("grows", 2, group)
    side.beat(first_beat(group, "one", topic))
    side.beat(first_beat(group, "two", topic))
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=6, assignments=None)], timeout_ms=5000, validate_only=False
    )
    assert not side.client.ask(grow, 3).results[0].error_code
    wait_until(lambda: side.client.ask(beat(group, "two", 3), 1).error_code or side.described(group).group_epoch > 3)
    side.beat(beat(group, "two", 4))
    side.beat(beat(group, "one", 2))
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id)))


@conversations.add
def a_group_changes_its_protocol(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 2, group)
    reads: dict[str, Any] = {"metadata": subscription_to(topic)}
    joined = side.ask(join(group, group_instance_id="classic", **reads), 9)
    old = str(joined.member_id)
    side.ask(sync(group, 1, old, {old: ASSIGNED_NOTHING}, group_instance_id="classic"), 5)
    side.beat(first_beat(group, "new", topic, instance_id="static"))
    side.ask(heartbeat(group, 1, old, group_instance_id="classic"), 4)
    side.ask(sync(group, 1, old, group_instance_id="classic"), 5)
    rejoined = side.ask(join(group, old, group_instance_id="classic", **reads), 9)
    side.ask(
        sync(group, rejoined.generation_id, old, group_instance_id="classic"), 5, note=lambda answer: answer.error_code
    )
    side.beat(beat(group, "new", 2, instance_id="static"))
    for number in range(2):
        side.ask(heartbeat(group, rejoined.generation_id, old, group_instance_id="classic"), 4)
        rejoined = side.ask(join(group, old, group_instance_id="classic", **reads), 9)
        side.ask(
            sync(group, rejoined.generation_id, old, group_instance_id="classic"),
            5,
            note=lambda answer: answer.error_code,
        )
        side.beat(beat(group, "new", 2, topic_partitions=owning(topic_id, number), instance_id="static"))
    # The static member goes over to the classic protocol, and with it the group.
    # How a new member id is made up is everybody's own affair.
    told = attrgetter("error_code", "generation_id", "leader", "members", "protocol_name")
    replaced = side.ask(join(group, group_instance_id="static", **reads), 9, note=told)
    side.wait_until_classic(group)
    described = DescribeGroupsRequest(groups=[group])
    side.ask(described, 6, note=lambda answer: answer.groups[0].group_state)
    side.ask(heartbeat(group, replaced.generation_id, str(replaced.member_id), group_instance_id="static"), 4)
    side.ask(heartbeat(group, rejoined.generation_id, old, group_instance_id="classic"), 4)


@conversations.add
def members_of_the_new_protocol_are_made_to_leave(side: EpochSide) -> None:
    group = side.name("group")
    topic, _ = side.known_topic("read", 4, group)
    side.beat(first_beat(group, "one", topic))
    side.beat(first_beat(group, "two", topic, **STATIC))
    side.beat(first_beat(group, "three", topic, instance_id="another"))
    for refused in (["nobody"], [("one", "static")], [("", "nobody")], [""], []):
        side.ask(leave(group, *refused), 5)
    side.beat(beat(group, "one", 2))
    side.ask(leave(group, "one"), 5)
    side.beat(beat(group, "one", 2))
    side.ask(leave(group, ("", "static"), ("", "static"), ("three", "another"), "nobody"), 5)
    side.beat(beat(group, "three", 4, instance_id="another"))
    side.beat(first_beat(group, "four", topic))
    side.ask(LeaveGroupRequest(group_id=group, member_id="four"), 2)
    side.beat(beat(group, "four", 6))


@conversations.add
def static_members_that_have_not_left(side: EpochSide) -> None:
    group = side.name("group")
    topic, topic_id = side.known_topic("read", 2, group)
    side.beat(first_beat(group, "one", topic, **STATIC))
    # Once more, under its own id or another: whoever has the instance id must go first.
    side.beat(first_beat(group, "one", topic, **STATIC))
    side.beat(first_beat(group, "two", topic, **STATIC))
    side.beat(first_beat(group, "one", topic))
    side.beat(beat(group, "one", 2, topic_partitions=owning(topic_id, 0, 1), **STATIC))
    side.beat(beat(group, "one", -2, **STATIC))
    side.beat(first_beat(group, "one", topic, **STATIC))
    side.beat(first_beat(group, "one", topic, **STATIC))


@conversations.add
def classic_members_while_an_assignment_is_put_off(side: EpochSide) -> None:
    group = side.name("group")
    topic, _ = side.known_topic("read", 4, group)
    put_off = set_group_config(group, "consumer.assignment.interval.ms", "15000")
    assert not side.client.ask(put_off, 1).responses[0].error_code
    side.settle()
    member, generation = side.lone_member(group, metadata=subscription_to(topic))
    side.beat(first_beat(group, "one", topic))

    def come_again(generation: int) -> int:
        side.ask(heartbeat(group, generation, member), 4)
        rejoined = side.ask(join(group, member, metadata=subscription_to(topic)), 9)
        side.ask(sync(group, rejoined.generation_id, member), 5, note=lambda answer: answer.error_code)
        side.ask(heartbeat(group, rejoined.generation_id, member), 4)
        return int(rejoined.generation_id)

    generation = come_again(generation)
    side.beat(first_beat(group, "two", topic))
    for _ in range(3):
        generation = come_again(generation)
    side.beat(beat(group, "two", -1))
    side.ask(heartbeat(group, generation, member), 4)
    side.ask(set_group_config(group, "consumer.assignment.interval.ms", None), 1)


@conversations.add
def generations_go_on_where_a_consumer_group_ends(side: EpochSide) -> None:
    topic, _ = side.known_topic("read", 2, side.name("probed"))
    other, _ = side.known_topic("other", 2, side.name("probed"))
    goes = {
        "leaves": lambda group: beat(group, "new", -1, instance_id="static"),
        "is taken out": lambda group: leave(group, ("", "static")),
        "comes back": lambda group: join(group, group_instance_id="static", metadata=subscription_to(topic)),
        "reads others": lambda group: join(group, group_instance_id="static", metadata=subscription_to(other)),
    }
    for how, request in goes.items():
        group = side.name(how.replace(" ", "-"))
        member, generation = side.lone_member(group, metadata=subscription_to(topic))
        side.beat(first_beat(group, "new", topic, instance_id="static"))
        for _ in range(2):
            rejoined = side.ask(join(group, member, metadata=subscription_to(topic)), 9)
            generation = rejoined.generation_id
            side.ask(sync(group, generation, member), 5, note=lambda answer: answer.error_code)
            side.beat(beat(group, "new", generation, instance_id="static"))
        asked = request(group)
        side.ask(
            asked, 9 if how in ("comes back", "reads others") else 1 if how == "leaves" else 5, note=code_and_generation
        )
        side.wait_until_classic(group)
        for stale in (0, generation - 1, generation, generation + 1):
            side.ask(heartbeat(group, stale, member), 4)
        if how in ("leaves", "is taken out"):
            side.ask(join(group, member, metadata=subscription_to(topic)), 9)


def code_and_generation(answer: Any) -> Any:
    """How a new member id is made up is everybody's own affair."""
    return answer.error_code, getattr(answer, "generation_id", None)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_epochs_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
