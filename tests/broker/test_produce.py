"""Produce: what is accepted, in which form, and how often."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records import batch
from ottla.records.compression import compress
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce, produce_to_many

NewTopic = Callable[..., tuple[str, UUID]]


def answer_of(client: RawClient, request: ProduceRequest, version: int = 9) -> Any:
    return client.ask(request, version).responses[0].partition_responses[0]


def stored(client: RawClient, topic: str, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records of a topic's first partition: offset, key, value."""
    data = bytes(client.ask(fetch(topic, offset), 11).responses[0].partitions[0].records)
    found, position = [], 0
    while position < len(data):
        found += [
            (record.offset, record.key and bytes(record.key), record.value and bytes(record.value))
            for record in batch.iterate(data, position)
        ]
        position += batch.read_header(data, position).batch_length + 12
    return found


def values(client: RawClient, topic: str) -> list[bytes | None]:
    return [value for _, _, value in stored(client, topic)]


def old_message(magic: int, value: bytes, *, key: bytes | None = b"k", offset: int = 0, codec: int = 0) -> bytes:
    """A message of format 0 or 1, as clients of long ago sent it."""
    time = struct.pack(">q", 1_700_000_000_000 + offset) if magic else b""
    sized_key = struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    body = struct.pack(">bb", magic, codec) + time + sized_key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_set(magic: int, codec: Compression, *values: bytes) -> bytes:
    inner = b"".join(old_message(magic, value, offset=number) for number, value in enumerate(values))
    if codec is Compression.NONE:
        return inner
    return old_message(magic, bytes(compress(codec, inner)), key=None, offset=len(values) - 1, codec=codec)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_old_formats_are_taken_and_converted(
    version: int, codec: Compression, client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic()
    for magic in (0, 1):
        answer = answer_of(client, produce(topic, old_set(magic, codec, b"v0", b"v1", b"v2")), version)
        assert (answer.error_code, answer.base_offset) == (0, 3 * magic)
    assert stored(client, topic) == [(offset, b"k", b"v%d" % (offset % 3)) for offset in range(6)]
    last = client.ask(list_offsets(topic, -3), 7).topics[0].partitions[0]
    assert (last.offset, last.timestamp) == (5, 1_700_000_000_002), "format 1 has times, format 0 has none"


def test_an_old_message_with_a_wrong_checksum_is_refused(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    damaged = bytearray(old_set(1, Compression.NONE, b"a", b"b"))
    damaged[-1] ^= 1
    assert answer_of(client, produce(topic, bytes(damaged)), 2).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values(client, topic) == []


def test_an_old_format_in_a_new_version_is_refused(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for version in range(3, 13):
        answer = answer_of(client, produce(topic, old_set(1, Compression.NONE, b"old")), version)
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_zstd_is_taken_from_version_7_on_and_given_to_old_readers_too(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    records = one_batch(b"x" * 100, compression=Compression.ZSTD)
    assert answer_of(client, produce(topic, records), 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert answer_of(client, produce(topic, records), 7).error_code == 0
    for version in (4, 9, 10):  # kafka-python 2.0.2 asks with 4 and reads zstd; Kafka 4 gives it
        assert bytes(client.ask(fetch(topic), version).responses[0].partitions[0].records)[21:] == records[21:]


def test_acks_0_is_not_answered_and_the_record_is_there(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for number in range(3):
        client.send(produce(topic, one_batch(b"%d" % number), acks=0), 9, is_answered=False)
    assert values(client, topic) == [b"0", b"1", b"2"]


def test_a_failure_with_acks_0_closes_the_connection_after_what_was_answered_before(
    client: RawClient, new_topic: NewTopic, connect: Callable[[], RawClient]
) -> None:
    topic, _ = new_topic()
    first, asked = client.encoded(list_offsets(topic, -1), 7)
    _, failing = client.encoded(produce("unknown-topic", one_batch(b"x"), acks=0), 9)
    client.socket.sendall(asked + failing)  # in one piece: the first must not suffer from the second
    assert client.receive_frame()[:4] == first.correlation_id.to_bytes(4, "big")
    assert client.is_ended()
    assert values(connect(), topic) == []


def test_partitions_of_one_request_fail_one_by_one(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(3)
    damaged = bytearray(one_batch(b"x"))
    damaged[-1] ^= 0xFF
    batches = [(0, one_batch(b"good")), (1, bytes(damaged)), (5, one_batch(b"nowhere")), (2, None)]
    answers = client.ask(produce_to_many(topic, batches), 9).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, 2, 3, 87]
    assert values(client, topic) == [b"good"]


def test_the_bad_record_of_a_batch_is_named(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"cleanup.policy": "compact"})
    answer = answer_of(client, produce(topic, one_batch(b"a", b"b", b"c", keys=[b"k", b"k", None])))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [2]


def test_the_next_requests_of_a_producer_answer_like_its_first(client: RawClient, new_topic: NewTopic) -> None:
    """A repeated request skips decoding; what it is told must not differ, errors included."""
    topic, topic_id = new_topic(config={"max.message.bytes": "300"})
    for version in range(3, 14):
        named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        name = "" if version >= 13 else topic
        before = client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset
        for number in range(4):
            answer = answer_of(client, produce(name, one_batch(b"r%d" % number), **named), version)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, before + number, -1)
        for bad, code in ((one_batch(b"x" * 400), 10), (one_batch(b"x")[:-1], 87), (b"", 87)):
            assert answer_of(client, produce(name, bad, **named), version).error_code == code
        assert answer_of(client, produce(name, one_batch(b"z"), **named), version).base_offset == before + 4


def test_a_repeated_request_to_a_deleted_topic_finds_it_gone(client: RawClient, new_topic: NewTopic) -> None:
    topic, topic_id = new_topic()
    for _ in range(3):
        assert answer_of(client, produce(topic, one_batch(b"old"))).error_code == 0
        assert answer_of(client, produce("", one_batch(b"old"), topic_id=topic_id), 13).error_code == 0
    client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert answer_of(client, produce(topic, one_batch(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.ask(create_topic(topic), 7)
    assert answer_of(client, produce(topic, one_batch(b"new"))).base_offset == 0
    gone = answer_of(client, produce("", one_batch(b"x"), topic_id=topic_id), 13)
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values(client, topic) == [b"new"]


def test_log_append_time_is_stamped_told_and_checksummed(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    for _ in range(2):
        told = answer_of(client, produce(topic, one_batch(b"a", b"b", timestamps=[5, 7]))).log_append_time_ms
        data = bytes(client.ask(fetch(topic), 11).responses[0].partitions[0].records)
        batch.check(memoryview(bytearray(data)))
        assert {record.timestamp for record in batch.iterate(data)} <= {told, batch.read_header(data).max_timestamp}
        assert told > 1_600_000_000_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_that_asks_for_a_codec_recompresses(codec: str, client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"compression.type": codec})
    wanted = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
    for sent in Compression:
        assert answer_of(client, produce(topic, one_batch(b"x" * 300, compression=sent))).error_code == 0
    data = bytes(client.ask(fetch(topic), 11).responses[0].partitions[0].records)
    position = 0
    while position < len(data):
        header = batch.read_header(data, position)
        assert header.compression == wanted
        position += header.batch_length + 12
    assert values(client, topic) == [b"x" * 300] * 5


def test_idempotent_producers_are_remembered_across_restarts(tmp_path: Any) -> None:
    topic = "counted"
    ids: list[int] = []

    def write(client: RawClient, producer: int, sequence: int, value: bytes, epoch: int = 0) -> tuple[int, int]:
        records = one_batch(value, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = answer_of(client, produce(topic, records))
        return answer.error_code, answer.base_offset

    def new_id(client: RawClient) -> int:
        answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        assert answer.producer_epoch == 0
        return int(answer.producer_id)

    for restart in range(4):
        with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic(topic), 7)
            ids += [new_id(client) for _ in range(3)]
            first = ids[0]
            base = restart * 2
            if restart:
                assert write(client, first, base - 1, b"again") == (0, base - 1), "a duplicate from before the restart"
                assert write(client, first, base + 3, b"gap") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
            assert write(client, first, base, b"%d" % base) == (0, base)
            assert write(client, first, base + 1, b"%d" % (base + 1)) == (0, base + 1)
            assert values(client, topic) == [b"%d" % number for number in range(base + 2)]
    assert len(set(ids)) == len(ids), "no id is given out twice"


def test_the_second_batch_of_a_new_producer_does_not_overtake_the_first(broker: Broker, client: RawClient) -> None:
    """Both are under way when the topic is made: the first comes before it, the second after it."""
    topic = "made-meanwhile"

    def write(sequence: int) -> int:
        records = one_batch(b"%d" % sequence, producer_id=77, producer_epoch=0, base_sequence=sequence)
        return int(answer_of(client, produce(topic, records)).error_code)

    assert write(0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with RawClient(broker.bootstrap_servers) as other:
        other.ask(create_topic(topic), 7)
    assert write(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [write(0), write(1)] == [0, 0]
    assert values(client, topic) == [b"0", b"1"]
