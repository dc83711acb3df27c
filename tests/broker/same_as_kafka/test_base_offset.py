"""A producer's batch that claims a place in the log: its base offset is not 0.

Messages of formats 0 and 1 number themselves as they like; Kafka 4 does not take the versions that carry them any more.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.records.layout import Compression
from ottla.testing.raw_requests import list_offsets, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

LATEST = -1
conversations = Conversations(Side)


@conversations.add
def a_claimed_place_in_every_version(side: Side) -> None:
    topic, topic_id = side.new_topic("claimed")
    for version in range(3, 14):
        to = {"topic": "", "topic_id": topic_id} if version >= 13 else {"topic": topic}
        side.ask(produce(records=one_batch(b"a"), **to), version)
        for base_offset in (1, 2**40, -1):
            refused = side.ask(produce(records=one_batch(b"a", b"b", base_offset=base_offset), **to), version)
            assert refused.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
        side.ask(produce(records=one_batch(b"on"), **to), version)
    side.ask(list_offsets(topic, LATEST), 7)


@conversations.add
def a_claimed_place_beside_other_faults(side: Side) -> None:
    topic, _ = side.new_topic("faulty", cleanup_policy="compact")
    damaged = bytearray(one_batch(b"value", keys=[b"k"], base_offset=1))
    damaged[-2] ^= 1
    for records in (
        one_batch(b"value", keys=[b"k"], base_offset=1, compression=Compression.LZ4),
        bytes(damaged),
        one_batch(b"without a key", base_offset=1),
        one_batch(b"value", keys=[b"k"]) + one_batch(b"value", keys=[b"k"], base_offset=1),
        one_batch(b"value", keys=[b"k"], base_offset=1)[:-1],
    ):
        side.ask(produce(topic, records), 9)
    side.ask(list_offsets(topic, LATEST), 7)


@conversations.add
def a_claimed_place_of_an_idempotent_producer(side: Side) -> None:
    topic, _ = side.new_topic("counted")
    producer: dict[str, Any] = {"producer_id": side.new_producer_id(), "producer_epoch": 0}
    side.ask(produce(topic, one_batch(b"a", **producer, base_sequence=0)), 9)
    for sequence in (0, 1, 5):  # sent already, the next one, one too far
        side.ask(produce(topic, one_batch(b"a", **producer, base_sequence=sequence, base_offset=7)), 9)
    side.ask(produce(topic, one_batch(b"b", **producer, base_sequence=1)), 9)
    side.ask(produce(topic, one_batch(b"b", **producer, base_sequence=9)), 9)


@conversations.add
def a_claimed_place_that_nobody_answers(side: Side) -> None:
    """With acks=0 the connection is closed."""
    topic, _ = side.new_topic("unanswered")
    side.ask(produce(topic, one_batch(b"a", base_offset=1), acks=0), 9)
    side.ask(list_offsets(topic, LATEST), 7)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
