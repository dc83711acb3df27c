"""Fetch: versions, limits, sessions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.layout import Compression
from ottla.testing.raw_requests import fetch, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


@conversations.add
def fetch_in_every_version(side: Side) -> None:
    topic, topic_id = side.new_topic("read", 2)
    for value in (b"one", b"two", b"three"):
        side.ask(produce(topic, one_batch(value, value)), 9)
    for version in range(4, 19):
        name = "" if version >= 13 else topic
        known: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        for offset in (0, 1, 3, 6, 7, -1):
            side.ask(fetch(name, offset, **known), version)
        for isolation_level in (0, 1):
            side.ask(fetch(name, 2, partitions=(0, 1), isolation_level=isolation_level, **known), version)
        side.ask(fetch(name, 0, partitions=(9,), **known), version)
        for limit in (0, 1, 100, 200):
            side.ask(fetch(name, 0, max_bytes=limit, **known), version)
            side.ask(fetch(name, 0, partition_max_bytes=limit, **known), version)
        if version >= 9:
            for epoch in (0, 1, 5):
                side.ask(fetch(name, 0, current_leader_epoch=epoch, **known), version)
        if version >= 12:
            for epoch in (0, 1):
                side.ask(fetch(name, 2, last_fetched_epoch=epoch, **known), version)
            side.ask(fetch(name, 8, last_fetched_epoch=0, **known), version)
        unknown: dict[str, Any] = {"topic_id": UUID(int=9)} if version >= 13 else {}
        side.ask(fetch("" if version >= 13 else side.name("never"), **unknown), version)


@conversations.add
def fetch_of_several_partitions_within_limits(side: Side) -> None:
    topic, _ = side.new_topic("shared", 3)
    for partition in range(3):
        for _ in range(2):
            side.ask(produce(topic, one_batch(b"x" * 100), partition=partition), 9)
    for max_bytes in (0, 1, 170, 340, 341, 600, 10_000):
        for partition_max_bytes in (0, 1, 170, 340, 10_000):
            side.ask(
                fetch(topic, partitions=(0, 1, 2), max_bytes=max_bytes, partition_max_bytes=partition_max_bytes), 11
            )


@conversations.add
def a_fetch_session(side: Side) -> None:
    topic, _ = side.new_topic("session", 2)
    side.ask(produce(topic, one_batch(b"a")), 9)
    opened = side.ask(fetch(topic, partitions=(0, 1), session_epoch=0), 12)
    session = opened.session_id

    def go_on(epoch: int, offset: int = 0, partitions: tuple[int, ...] = (), **more: Any) -> None:
        side.ask(fetch(topic, offset, partitions=partitions, session_id=session, session_epoch=epoch, **more), 12)

    go_on(1, 1, (0,))
    go_on(2)
    side.ask(produce(topic, one_batch(b"b"), partition=1), 9)
    go_on(3)
    go_on(3)  # said already
    go_on(9)  # not yet
    go_on(4, forgotten=(1,))
    go_on(5)
    side.ask(fetch(topic, session_id=session + 1, session_epoch=1), 12)
    side.ask(fetch(topic, session_id=0, session_epoch=1), 12)
    go_on(6, 9, (0,))  # out of range: told every time
    go_on(7)
    go_on(8, forgotten=(0,))  # nothing left: the session ends
    go_on(9, 0, (0,))
    opened = side.ask(fetch(topic, partitions=(0,), session_epoch=0), 12)
    session = opened.session_id
    go_on(-1)
    go_on(1)
    side.ask(fetch(topic, partitions=(), session_epoch=0), 12)
    side.ask(fetch(topic, partitions=(0,), session_epoch=-1, session_id=99), 12)


@conversations.add
def a_fetch_session_by_topic_id(side: Side) -> None:
    topic, topic_id = side.new_topic("session-id", 2)
    side.ask(produce(topic, one_batch(b"a")), 9)
    opened = side.ask(fetch("", partitions=(0, 1), topic_id=topic_id, session_epoch=0), 16)
    session = opened.session_id
    side.ask(fetch("", partitions=(), session_id=session, session_epoch=1), 16)
    side.ask(fetch(topic, partitions=(0,), session_id=session, session_epoch=2), 12)
    side.ask(fetch("", topic_id=UUID(int=4), session_id=session, session_epoch=2), 16)


@conversations.add
def compressed_records_come_back_as_they_were(side: Side) -> None:
    topic, _ = side.new_topic("codecs")
    for codec in Compression:
        side.ask(produce(topic, one_batch(b"x" * 500, compression=codec)), 9)
    for version in (10, 12):  # Kafka 4 hands zstd to readers of Fetch 9 that cannot know it; we do not
        side.ask(fetch(topic), version)


@conversations.add
def a_fetch_of_nothing(side: Side) -> None:
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 4)
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    topic, _ = side.new_topic("empty")
    side.ask(fetch(topic, max_wait_ms=0, min_bytes=0), 12)
    side.ask(fetch(topic, max_wait_ms=50, min_bytes=1), 12)
    twice = FetchTopic(
        topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * 2
    )
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[twice]), 11)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
