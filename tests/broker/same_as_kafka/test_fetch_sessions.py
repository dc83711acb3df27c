"""Fetch sessions: their order, and what becomes of them when topics go."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import fetch, metadata, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


class Wanted(NamedTuple):
    """A partition of a session; without an offset it is forgotten."""

    topic: str | UUID
    partition: int
    offset: int | None = 0


def in_session(session_id: int, epoch: int, *wanted: Wanted, max_bytes: int = 1 << 20) -> FetchRequest:
    topics, forgotten = [], []
    for topic, partition, offset in wanted:
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
        if offset is None:
            forgotten.append(ForgottenTopic(topic=name, topic_id=topic_id, partitions=[partition]))
        else:
            entry = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=[entry]))
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=forgotten,
    )


def told(answer: Any) -> Any:
    """Whom the answer names, in its order, and what it says of each."""
    return answer.error_code, [
        (topic.topic, topic.topic_id, one.partition_index, one.error_code, one.high_watermark, len(one.records or b""))
        for topic in answer.responses
        for one in topic.partitions
    ]


@conversations.add
def a_session_gives_everybody_a_turn(side: Side) -> None:
    for version in (12, 17):
        name, topic_id = side.new_topic(f"read-{version}", 4)
        topic = name if version < 13 else topic_id
        for partition in range(4):
            side.ask(produce(name, one_batch(b"x" * 100), partition=partition), 9)
        opened = side.ask(in_session(0, 0, *(Wanted(topic, index) for index in (2, 0, 1)), max_bytes=1), version)
        session_id = opened.session_id
        for epoch in range(1, 5):
            side.ask(in_session(session_id, epoch, max_bytes=1), version)
        # One asks for what is not there: an error is no turn.
        side.ask(in_session(session_id, 5, Wanted(topic, 0, 9), max_bytes=1), version)
        for epoch in range(6, 9):
            side.ask(in_session(session_id, epoch, max_bytes=1), version)
        side.ask(in_session(session_id, 9, Wanted(topic, 0), Wanted(topic, 3), max_bytes=1), version)
        for epoch in range(10, 14):
            side.ask(in_session(session_id, epoch, max_bytes=1), version)


@conversations.add
def a_session_of_topics_in_turn(side: Side) -> None:
    one, one_id = side.new_topic("one", 2)
    two, two_id = side.new_topic("two", 2)
    for name in (one, two):
        for partition in range(2):
            side.ask(produce(name, one_batch(b"v"), partition=partition), 9)
    nobody, unknown = side.name("never"), UUID(int=9)
    for version, first, second, missing in ((12, one, two, nobody), (17, one_id, two_id, unknown)):
        wanted = [
            Wanted(first, 0),
            Wanted(missing, 0),
            Wanted(second, 0),
            Wanted(first, 7),
            Wanted(first, 1),
            Wanted(second, 1, 9),
        ]
        side.ask(in_session(0, -1, *wanted), version, note=told)
        opened = side.ask(in_session(0, 0, *wanted), version, note=told)
        for epoch in range(1, 3):
            side.ask(in_session(opened.session_id, epoch), version, note=told)
        side.ask(in_session(opened.session_id, 3, *(Wanted(first, index, 1) for index in (0, 1))), version, note=told)
        side.ask(in_session(opened.session_id, 4), version, note=told)


@conversations.add
def a_session_that_forgets_what_it_is_asked_to_add(side: Side) -> None:
    for version in (12, 17):
        name, topic_id = side.new_topic(f"read-{version}", 2)
        topic = name if version < 13 else topic_id
        side.ask(produce(name, one_batch(b"v"), partition=1), 9)
        session_id = side.ask(in_session(0, 0, Wanted(topic, 0)), version).session_id
        side.ask(in_session(session_id, 1, Wanted(topic, 1), Wanted(topic, 1, None)), version)
        side.ask(
            in_session(session_id, 2, Wanted(topic, 0, None), Wanted(topic, 1), Wanted(topic, 1, None)),
            version,
        )
        side.ask(in_session(session_id, 3, Wanted(topic, 0)), version)


@conversations.add
def topics_go_under_a_session(side: Side) -> None:
    sessions = {}
    name, topic_id = side.new_topic("doomed", 2)
    stays, stays_id = side.new_topic("stays")
    for version in (12, 13, 17):
        topic, other = (name, stays) if version < 13 else (topic_id, stays_id)
        wanted = [Wanted(topic, 0), Wanted(other, 0), Wanted(topic, 1)]
        sessions[version] = side.ask(in_session(0, 0, *wanted), version, note=told).session_id

    def look(epoch: int) -> None:
        for version, session_id in sessions.items():
            side.ask(in_session(session_id, epoch), version, note=told)
            side.ask(fetch(name if version < 13 else "", topic_id=topic_id), version, note=told)

    side.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5)
    wait_until(lambda: side.client.ask(metadata(name), 12).topics[0].error_code == 3)
    look(1)
    look(2)
    again, new_id = side.new_topic("doomed", 1)
    assert (again, new_id != topic_id) == (name, True)
    look(3)
    side.ask(produce(name, one_batch(b"v")), 9)
    look(4)
    for version, session_id in sessions.items():
        if version >= 13:
            side.ask(in_session(session_id, 5, Wanted(new_id, 0), Wanted(topic_id, 0, None)), version, note=told)
            side.ask(in_session(session_id, 6), version, note=told)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
