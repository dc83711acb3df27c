"""Idempotent producers: what is sent again, out of turn, or by one that was replaced."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow


class SequenceSide(Side):
    """A side whose topics have lost their first record, so that the start of a log is told from none."""

    def shortened_topic(self, name: str, **config: Any) -> str:
        topic, _ = self.new_topic(name, **config)
        self.ask(produce(topic, one_batch(b"first", keys=[b"k"])), 9, note=lambda answer: "appended")
        partition = DeleteRecordsPartition(partition_index=0, offset=1)
        entry = DeleteRecordsTopic(name=topic, partitions=[partition])
        self.ask(DeleteRecordsRequest(topics=[entry], timeout_ms=5000), 2)
        return topic

    def append(self, topic: str, producer_id: int, epoch: int, sequence: int, *values: bytes, version: int = 9) -> None:
        batch = one_batch(
            *values or (b"v",),
            timestamps=1_700_000_000_000 + sequence,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self.ask(produce(topic, batch), version)


conversations = Conversations(SequenceSide)


@conversations.add
def batches_are_sent_again(side: SequenceSide) -> None:
    topic = side.shortened_topic("topic")
    producer_id = side.new_producer_id()
    for version in (3, 5, 7, 9, 12):
        epoch = version
        for sequence in range(7):
            side.append(topic, producer_id, epoch, sequence, version=version)
        for sequence in range(8, -1, -1):
            side.append(topic, producer_id, epoch, sequence, version=version)


@conversations.add
def batches_are_sent_again_and_keep_the_time_of_the_append(side: SequenceSide) -> None:
    topic = side.shortened_topic("topic", message_timestamp_type="LogAppendTime")
    producer_id = side.new_producer_id()

    times: list[int] = []
    for _ in range(3):
        batch = one_batch(b"v", timestamps=5, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        answer = side.client.ask(produce(topic, batch), 9).responses[0].partition_responses[0]
        times.append(answer.log_append_time_ms)
        side.note("sent", answer.error_code, answer.base_offset, answer.log_start_offset)
    side.note("the time of the first is told of all", times[0] > 5, len(set(times)))


@conversations.add
def batches_out_of_turn(side: SequenceSide) -> None:
    for version in (8, 12):
        topic = side.shortened_topic(f"topic-{version}")
        producer_id = side.new_producer_id()
        # One, two and many epochs ahead and behind, with sequences that begin, go on and leap.
        for epoch in (0, 1, 3, 2, 1, 0, 30_000, 29_999, 29_998, 0, 30_001):
            for sequence in (2, 0, 0, 1, 3):
                side.append(topic, producer_id, epoch, sequence, version=version)
    topic = side.shortened_topic("late")
    side.append(topic, side.new_producer_id(), 3, 17)
    producer_id = side.new_producer_id()
    side.append(topic, producer_id, 0, 2**31 - 1)
    for sequence in (1, 0, 0, 2**31 - 1, 1):
        side.append(topic, producer_id, 0, sequence)
    side.append(topic, producer_id, 0, 2, b"a", b"b", b"c")
    for sequence, count in ((2, 1), (3, 2), (2, 2), (2, 4), (2, 3), (5, 1)):
        side.append(topic, producer_id, 0, sequence, *[b"v"] * count)


@conversations.add
def refusals_tell_where_the_log_starts(side: SequenceSide) -> None:
    topic = side.shortened_topic("topic", cleanup_policy="compact,delete", max_message_bytes="200")
    for batch in (one_batch(b"no key"), one_batch(b"x" * 300), one_batch(b"v")[:-1], b""):
        for version in (7, 9, 12):
            side.ask(produce(topic, bytes(batch)), version)
    side.ask(produce(side.name("never"), one_batch(b"v")), 9)
    side.ask(produce(topic, one_batch(b"v"), partition=7), 9)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
