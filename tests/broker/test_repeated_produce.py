"""A producer's next request is answered as the general way would, and goes it whenever something is different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.repeated_produce import KEY_ENDS_MAX, RepeatedProduce
from ottla.errors import ErrorCode
from ottla.net.connection import Connection
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient

NewTopic = Callable[..., tuple[str, UUID]]
VERSIONS = range(7, 14)


def request(
    topic: tuple[str, UUID],
    version: int,
    values: list[bytes],
    *,
    keys: list[bytes | None] | None = None,
    acks: int = -1,
    **options: Any,
) -> ProduceRequest:
    name, topic_id = topic
    records = bytes(batch.build(keys, values, batch_time(), **options))
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
    original: Callable[..., Any] = field(default=RepeatedProduce.repeat)

    def __call__(self, remembered: RepeatedProduce, connection: Connection, frame: memoryview) -> Any:
        found = self.original(remembered, connection, frame)
        self.count += found is not None
        return found


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()

    def repeat(remembered: RepeatedProduce, connection: Connection, frame: memoryview) -> Any:
        return counted(remembered, connection, frame)

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


def damaged(sound: ProduceRequest) -> ProduceRequest:
    entry = sound.topic_data[0].partition_data[0]
    records = bytearray(entry.records or b"")
    records[-2] ^= 1
    entry.records = bytes(records)
    return sound


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_refused_is_refused_in_the_general_words(
    broker: Broker, client: RawClient, new_topic: NewTopic, repeated: Counted, version: int
) -> None:
    topic = new_topic(config={"max.message.bytes": "1000", "cleanup.policy": "compact"})
    of_producer: dict[str, Any] = {"keys": [b"k"], "producer_id": 7, "producer_epoch": 0}
    client.ask(request(topic, version, [b"v"], keys=[b"k"]), version)
    refused = [
        (ErrorCode.MESSAGE_TOO_LARGE, request(topic, version, [b"v" * 2000], keys=[b"k"])),
        (ErrorCode.CORRUPT_MESSAGE, damaged(request(topic, version, [b"value"], keys=[b"k"]))),
        (ErrorCode.INVALID_RECORD, request(topic, version, [b"a value without a key"])),
        (ErrorCode.INVALID_RECORD, request(topic, version, [b"a claimed place"], keys=[b"k"], base_offset=2)),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, request(topic, version, [b"v"], **of_producer, base_sequence=9)),
    ]
    client.ask(request(topic, version, [b"v"], **of_producer, base_sequence=0), version)
    before = repeated.count
    for code, wrong in refused:
        with RawClient(broker.bootstrap_servers) as stranger:
            in_general = stranger.ask(wrong, version)
        assert answer_of(in_general).error_code == code
        assert client.ask(wrong, version) == in_general
    assert repeated.count - before == len(refused)
    assert answer_of(client.ask(request(topic, version, [b"v"], keys=[b"k"]), version)).base_offset == 2


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
    assert repeated.count == 4


def test_a_gap_is_a_gap_where_the_broker_sets_the_time(client: RawClient, new_topic: NewTopic) -> None:
    """The time is stamped before sequences are looked at: such bytes must not be judged a second time."""
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    of_producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    client.ask(request(topic, 9, [b"v"], **of_producer, base_sequence=0), 9)
    gap = answer_of(client.ask(request(topic, 9, [b"v"], **of_producer, base_sequence=9), 9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_topic_that_was_deleted_is_not_written_to_any_more(
    client: RawClient, new_topic: NewTopic, repeated: Counted
) -> None:
    topic = new_topic()
    client.ask(request(topic, 9, [b"v"]), 9)
    client.ask(DeleteTopicsRequest(topic_names=[topic[0]], timeout_ms=1000), 5)
    gone = answer_of(client.ask(request(topic, 9, [b"v"]), 9))
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert repeated.count == 0
