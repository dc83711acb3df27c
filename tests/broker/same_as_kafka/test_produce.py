"""Produce, and the ids and sequences of idempotent producers."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeProducersRequestTopicRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records.layout import Compression
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


@conversations.add
def produce_in_every_version(side: Side) -> None:
    topic, topic_id = side.new_topic("written")
    for version in range(3, 14):
        known: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        name = "" if version >= 13 else topic
        for acks in (-1, 1):
            side.ask(produce(name, one_batch(b"a", b"b"), acks=acks, **known), version)
        side.ask(produce(name, one_batch(b"a"), acks=2, **known), version)
        side.ask(produce(name, one_batch(b"a"), partition=7, **known), version)
        unknown: dict[str, Any] = {"topic_id": UUID(int=3)} if version >= 13 else {}
        side.ask(produce("" if version >= 13 else side.name("never"), one_batch(b"a"), **unknown), version)


@conversations.add
def produce_of_bad_batches(side: Side) -> None:
    topic, _ = side.new_topic("picky", max_message_bytes="1000")
    good = bytearray(one_batch(b"a", b"b", b"c"))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    future_magic = bytearray(good)
    future_magic[16] = 3
    for version in (3, 7, 8, 11, 12):
        side.ask(produce(topic, bytes(flipped)), version)
        side.ask(produce(topic, bytes(good + good)), version)
        side.ask(produce(topic, bytes(good[:-1])), version)
        side.ask(produce(topic, bytes(good[:30])), version)
        side.ask(produce(topic, bytes(good[:10])), version)
        side.ask(produce(topic, b""), version)
        side.ask(produce(topic, one_batch(b"x" * 2000)), version)
        side.ask(produce(topic, one_batch(b"x" * 100, compression=Compression.ZSTD)), version)
        side.ask(produce(topic, bytes(future_magic)), version)
        side.ask(produce(topic, one_batch(b"c", is_control=True, producer_id=1, producer_epoch=0)), version)


@conversations.add
def produce_to_topics_with_rules(side: Side) -> None:
    compacted, _ = side.new_topic("compacted", cleanup_policy="compact")
    now_ms = int(time.time() * 1000)
    for version in (7, 8, 11):
        side.ask(produce(compacted, one_batch(b"a", b"b", keys=[b"k", None])), version)
        side.ask(produce(compacted, one_batch(b"a", keys=[b"k"])), version)
    timed, _ = side.new_topic("timed", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="60000")
    for version in (7, 8, 11):
        side.ask(produce(timed, one_batch(b"a", b"b", timestamps=[now_ms, now_ms + 3_600_000])), version)
        side.ask(produce(timed, one_batch(b"a", b"b", timestamps=[now_ms, now_ms - 3_600_000])), version)
        side.ask(produce(timed, one_batch(b"a", timestamps=-1)), version)
        side.ask(produce(timed, one_batch(b"a", timestamps=now_ms)), version)
    appended, _ = side.new_topic("appended", message_timestamp_type="LogAppendTime")
    answer = side.client.ask(produce(appended, one_batch(b"a")), 9)
    stamped = answer.responses[0].partition_responses[0].log_append_time_ms
    side.note("stamped now", abs(stamped - now_ms) < 60_000)
    strict, _ = side.new_topic("strict", min_insync_replicas="2")
    for acks in (-1, 1):
        side.ask(produce(strict, one_batch(b"a"), acks=acks), 9)


@conversations.add
def an_idempotent_producer(side: Side) -> None:
    topic, _ = side.new_topic("counted")
    other, _ = side.new_topic("other")
    producer_id = side.new_producer_id()

    def without_time(answer: Any) -> Any:
        # Kafka gives the create time of a duplicate as its append time; we give none.
        answer.responses[0].partition_responses[0].log_append_time_ms = "not compared"
        return answer

    def write(sequence: int, *values: bytes, epoch: int = 0, to: str = topic, who: int = producer_id) -> None:
        records = one_batch(*values, producer_id=who, producer_epoch=epoch, base_sequence=sequence)
        side.ask(produce(to, records), 9, note=without_time)

    write(0, b"a", b"b")
    write(2, b"c")
    write(0, b"a", b"b")  # again
    write(2, b"c")  # again
    write(4, b"gap")
    write(1, b"inside")
    write(0, b"another", b"size", b"now")
    for number in range(3, 9):
        write(number, b"more")
    write(0, b"a", b"b")  # too long ago
    write(4, b"more")  # of the last five
    write(9, b"new epoch with a sequence", epoch=1)
    write(0, b"new epoch", epoch=1)
    write(9, b"old epoch", epoch=0)
    write(1, b"on", epoch=1)
    write(5, b"starts in the middle", to=other)
    write(6, b"goes on", to=other)
    write(5, b"a stranger in the middle", to=other, who=producer_id + 100_000)
    write(2**31 - 2, b"before", b"the wrap", epoch=2, to=other)
    write(0, b"reset", epoch=3, to=other)


@conversations.add
def a_sequence_wraps(side: Side) -> None:
    topic, _ = side.new_topic("wrapped")
    producer_id = side.new_producer_id()
    for sequence in (2**31 - 3, 0, 2):
        records = one_batch(b"a", b"b", b"c", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        side.ask(produce(topic, records), 9)
    side.ask(
        DescribeProducersRequest(
            topics=[
                DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0, 5]),
                DescribeProducersRequestTopicRequest(name=side.name("never"), partition_indexes=[0]),
            ]
        ),
        0,
    )


@conversations.add
def init_producer_id(side: Side) -> None:
    side.new_producer_id()
    for version in range(6):
        side.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    for version in (3, 4, 5):
        for producer_id, epoch in ((-1, 3), (5, -1), (123456, 2)):
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            side.ask(request, version)
    for version in range(6):
        side.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
