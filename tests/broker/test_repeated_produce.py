"""A producer's next request is answered as the general way would, and goes it whenever something is different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.repeated_produce import KEY_ENDS_MAX, RepeatedProduce
from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient

NewTopic = Callable[..., tuple[str, UUID]]
VERSIONS = range(7, 14)


def request(
    topic: tuple[str, UUID], version: int, values: list[bytes], *, acks: int = -1, **options: Any
) -> ProduceRequest:
    name, topic_id = topic
    records = bytes(batch.build(None, values, batch_time(), **options))
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=name if version < 13 else "",
                topic_id=topic_id if version >= 13 else ZERO_UUID,
                partition_data=[PartitionProduceData(index=0, records=records)],
            )
        ],
    )


def batch_time() -> int:
    return 1_700_000_000_000


def answer_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


@dataclass
class Counted:
    """Counts the requests that were answered as a repetition."""

    count: int = 0
    original: Callable[..., bytes | None] = field(default=RepeatedProduce.repeat)

    def __call__(self, session: RepeatedProduce, frame: memoryview, now_ms: int) -> bytes | None:
        found = self.original(session, frame, now_ms)
        self.count += found is not None
        return found


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def repeat(session: RepeatedProduce, frame: memoryview, now_ms: int) -> bytes | None:
        return counted(session, frame, now_ms)

    monkeypatch.setattr(RepeatedProduce, "repeat", repeat)
    return counted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_repetition_is_answered_like_the_first(
    client: RawClient, new_topic: NewTopic, repeated: Counted, version: int, acks: int
) -> None:
    topic = new_topic()
    answers = [
        client.ask(request(topic, version, [b"x" * size] * count, acks=acks), version)
        for size, count in ((1, 1), (10, 3), (200, 1), (20_000, 2))
    ]
    assert repeated.count == 3
    assert [answer_of(answer).base_offset for answer in answers] == [0, 1, 4, 5]
    for answer in answers[1:]:
        answer_of(answer).base_offset = 0
        assert answer == answers[0]


def test_partitions_and_topics_that_take_turns_are_all_remembered(
    client: RawClient, new_topic: NewTopic, repeated: Counted
) -> None:
    topics = [new_topic() for _ in range(3)]
    for turn in range(4):
        for topic in topics:
            assert answer_of(client.ask(request(topic, 9, [b"v"]), 9)).base_offset == turn
    assert repeated.count == 9


def test_names_of_more_lengths_than_are_remembered_still_work(
    broker: Broker, client: RawClient, repeated: Counted
) -> None:
    names = ["n" * length for length in range(1, KEY_ENDS_MAX + 3)]
    broker.call(broker.running.controller.auto_create(names))
    for turn in range(3):
        for name in names:
            assert answer_of(client.ask(request((name, ZERO_UUID), 9, [b"v"]), 9)).base_offset == turn


def test_what_is_refused_is_refused_in_the_general_words(
    client: RawClient, new_topic: NewTopic, repeated: Counted
) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    client.ask(request(topic, 9, [b"v"]), 9)
    too_large = answer_of(client.ask(request(topic, 9, [b"v" * 2000]), 9))
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in too_large.error_message
    damaged = request(topic, 9, [b"value"])
    records = bytearray(damaged.topic_data[0].partition_data[0].records or b"")
    records[-2] ^= 1
    damaged.topic_data[0].partition_data[0].records = bytes(records)
    assert answer_of(client.ask(damaged, 9)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert answer_of(client.ask(request(topic, 9, [b"v"]), 9)).base_offset == 1
    assert repeated.count == 1


def test_an_idempotent_duplicate_is_recognised_on_the_short_way(
    client: RawClient, new_topic: NewTopic, repeated: Counted
) -> None:
    topic = new_topic()
    sequences = [0, 1, 2, 1]
    answers = [
        answer_of(client.ask(request(topic, 9, [b"v"], producer_id=7, producer_epoch=0, base_sequence=sequence), 9))
        for sequence in sequences
    ]
    assert [answer.base_offset for answer in answers] == [0, 1, 2, 1]
    gap = answer_of(client.ask(request(topic, 9, [b"v"], producer_id=7, producer_epoch=0, base_sequence=9), 9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert repeated.count == 3


def test_a_topic_that_was_deleted_is_not_written_to_any_more(
    client: RawClient, new_topic: NewTopic, repeated: Counted
) -> None:
    topic = new_topic()
    client.ask(request(topic, 9, [b"v"]), 9)
    client.ask(DeleteTopicsRequest(topic_names=[topic[0]], timeout_ms=1000), 5)
    gone = answer_of(client.ask(request(topic, 9, [b"v"]), 9))
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert repeated.count == 0
