"""Offsets of groups: committed, fetched, deleted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import ListGroupsRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.raw_groups import commit, delete_offsets, fetch_offsets, subscription_to
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

conversations = Conversations(GroupSide)


def in_order(answer: Any) -> Any:
    """Kafka keeps topics and partitions in hash maps: their order is nobody's."""
    for group in [answer, *getattr(answer, "groups", ())]:
        for topic in getattr(group, "topics", ()):
            topic.partitions.sort(key=lambda each: each.partition_index)
        getattr(group, "topics", []).sort(
            key=lambda topic: (topic.name, topic.topic_id) if hasattr(topic, "topic_id") else topic.name
        )
    return answer


@conversations.add
def offsets_are_committed(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("committed", 3)
    group = side.name("group")
    for version in range(2, 10):
        side.ask(commit(group, topic, {0: version, 2: 5}, f"note {version}"), version, note=in_order)
        side.ask(commit(group, topic, {0: 1, 9: 1, -1: 1}), version, note=in_order)
        side.ask(commit(group, side.name("never"), {0: 1}), version)
        side.ask(commit(group, topic, {1: 1}, None), version)
        side.ask(commit(group, topic, {1: -1}), version)
        side.ask(commit(group, topic, {1: -5}), version)
        side.ask(commit(group, topic, {1: 1}, "x" * 4096), version)
        side.ask(commit(group, topic, {1: 1}, "x" * 4097), version)
        side.ask(commit(group, topic, {1: 1}, "é" * 4096), version)
        side.ask(commit("", topic, {0: 1}), version)
        side.ask(OffsetCommitRequest(group_id=group, topics=[]), version)
        side.ask(commit(group, topic, {}), version)
        member: dict[str, Any] = {"member_id": "nobody", "generation_id_or_member_epoch": 3}
        side.ask(commit(group, topic, {0: 1}, **member), version)
        side.ask(commit(side.name("unknown"), topic, {0: 1}, **member), version)
        side.ask(commit(group, topic, {0: 1}, member_id="nobody"), version)
        side.ask(commit(group, topic, {0: 1}, generation_id_or_member_epoch=3), version)
    side.ask(commit(group, "", {0: 4, 9: 1}, topic_id=topic_id), 10, note=in_order)
    side.ask(commit(group, "", {0: 4}, topic_id=UUID(int=5)), 10)
    side.ask(commit(group, "", {0: 4}, topic_id=UUID(int=0)), 10)
    side.ask(fetch_offsets(9, group, None), 9, note=in_order)


@conversations.add
def a_member_commits(side: GroupSide) -> None:
    topic, _ = side.new_topic("read", 2)
    group = side.name("group")
    member, generation = side.lone_member(group, metadata=subscription_to(topic))
    for version in range(2, 10):
        of_member: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
        side.ask(commit(group, topic, {0: 1}, **of_member), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": 9}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": -1}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": "nobody"}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": ""}), version)
        side.ask(commit(group, topic, {0: 1}), version)
        if version >= 7:
            side.ask(commit(group, topic, {0: 1}, **of_member, group_instance_id="static"), version)


@conversations.add
def offsets_are_fetched(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("fetched", 3)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 7, 2: 9}, "a note"), 8, note=in_order)
    for version in range(1, 10):
        side.ask(fetch_offsets(version, group, {topic: [0, 1, 2, 7]}), version, note=in_order)
        side.ask(fetch_offsets(version, group, {topic: [0], side.name("never"): [0]}), version, note=in_order)
        side.ask(fetch_offsets(version, side.name("unknown"), {topic: [0]}), version)
        side.ask(fetch_offsets(version, group, {}), version)
        side.ask(fetch_offsets(version, "", {topic: [0]}), version)
        if version >= 2:
            side.ask(fetch_offsets(version, group, None), version, note=in_order)
            side.ask(fetch_offsets(version, side.name("unknown"), None), version)
        if version >= 7:
            side.ask(fetch_offsets(version, group, {topic: [0]}, require_stable=True), version)
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 5]) for each in (topic_id, UUID(int=6))]
    for topics in (wanted, wanted[:1], wanted[1:], None, []):
        entry = OffsetFetchRequestGroup(group_id=group, topics=topics)
        other = OffsetFetchRequestGroup(group_id=side.name("unknown"), topics=topics)
        side.ask(OffsetFetchRequest(groups=[entry, other]), 10, note=in_order)
    for member_id, epoch in (("nobody", 3), ("", -1), (None, -1), ("nobody", -1), (None, 4)):
        entry = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)
        side.ask(OffsetFetchRequest(groups=[entry]), 9, note=in_order)
    side.ask(OffsetFetchRequest(groups=[]), 8)


@conversations.add
def offsets_are_deleted(side: GroupSide) -> None:
    topic, _ = side.new_topic("deleted", 2)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 7, 1: 9}), 8)
    side.ask(delete_offsets(group, {topic: [0, 5], side.name("never"): [0]}), 0, note=in_order)
    side.ask(delete_offsets(group, {}), 0)
    side.ask(delete_offsets(group, {topic: []}), 0)
    side.ask(delete_offsets(side.name("unknown"), {topic: [0]}), 0)
    side.ask(delete_offsets("", {topic: [0]}), 0)
    side.ask(delete_offsets(side.name("unknown"), {side.name("never"): [0]}), 0)
    side.ask(delete_offsets(side.name("unknown"), {side.name("never"): [0], topic: [0]}), 0)
    side.ask(fetch_offsets(9, group, None), 9)
    side.ask(delete_offsets(group, {topic: [1]}), 0)
    side.ask(fetch_offsets(9, group, None), 9)
    side.ask(ListGroupsRequest(), 5, note=side.own_groups)
    # What it reads is not to be forgotten.
    member, generation = side.lone_member(group, metadata=subscription_to(topic))
    side.ask(commit(group, topic, {0: 1}, member_id=member, generation_id_or_member_epoch=generation), 8)
    side.ask(delete_offsets(group, {topic: [0]}), 0)
    other, _ = side.new_topic("other", 2)
    side.ask(commit(group, other, {0: 1}, member_id=member, generation_id_or_member_epoch=generation), 8)
    side.ask(delete_offsets(group, {topic: [0], other: [0]}), 0, note=in_order)
    side.ask(fetch_offsets(9, group, None), 9)


@conversations.add
def offsets_of_a_deleted_topic_are_gone(side: GroupSide) -> None:
    doomed, _ = side.new_topic("doomed", 2)
    group = side.name("group")
    side.ask(commit(group, doomed, {0: 7}), 8)
    side.ask(DeleteTopicsRequest(topic_names=[doomed], timeout_ms=5000), 5)
    wait_until(lambda: not side.client.ask(fetch_offsets(9, group, None), 9).groups[0].topics)
    side.ask(fetch_offsets(9, group, {doomed: [0]}), 9)
    side.ask(commit(group, doomed, {0: 7}), 8)


@conversations.add
def the_offsets_topic_is_not_for_producers(side: GroupSide) -> None:
    side.ask(produce("__consumer_offsets", one_batch(b"mine")), 9)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
