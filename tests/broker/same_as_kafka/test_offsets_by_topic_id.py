"""Offsets and the ids of their topics: commits and fetches by id, and topics that are made anew under an old name."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.raw_groups import commit, fetch_offsets
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

conversations = Conversations(GroupSide)

NOBODY = UUID(int=5)
ZERO = UUID(int=0)


def fetch_by_id(group: str, *topic_ids: UUID) -> OffsetFetchRequest:
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 1]) for each in topic_ids]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])


@conversations.add
def commits_and_fetches_by_name_and_by_id(side: GroupSide) -> None:
    topic, topic_id = side.new_topic("read", 2)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 5}), 9)
    side.ask(commit(group, "", {1: 6}, topic_id=topic_id), 10)
    side.ask(commit(group, "", {1: 6, 7: 1}, topic_id=topic_id), 10)
    side.ask(commit(group, "", {0: 7}, topic_id=NOBODY), 10)
    side.ask(commit(group, "", {0: 7}, topic_id=ZERO), 10)
    side.ask(fetch_offsets(9, group, {topic: [0, 1]}), 9)
    side.ask(fetch_offsets(9, group, None), 9)
    for topic_ids in ((topic_id,), (NOBODY,), (ZERO,), (topic_id, NOBODY), ()):
        side.ask(fetch_by_id(group, *topic_ids), 10)
    side.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 10)


@conversations.add
def a_topic_is_made_anew(side: GroupSide) -> None:
    topic, old_id = side.new_topic("anew", 2)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 5, 1: 6}), 9)
    side.ask(commit(side.name("other"), "", {0: 5}, topic_id=old_id), 10)
    side.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
    wait_until(lambda: not side.client.ask(fetch_offsets(9, group, None), 9).groups[0].topics)
    _, new_id = side.new_topic("anew", 2)
    for asked in (group, side.name("other")):
        side.ask(fetch_offsets(9, asked, {topic: [0, 1]}), 9)
        side.ask(fetch_by_id(asked, old_id), 10)
        side.ask(fetch_by_id(asked, new_id), 10)
        side.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=asked, topics=None)]), 10)
    side.ask(commit(group, "", {0: 1}, topic_id=old_id), 10)
    side.ask(commit(group, "", {0: 1}, topic_id=new_id), 10)
    side.ask(fetch_by_id(group, new_id, old_id), 10)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
