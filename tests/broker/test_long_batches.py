"""Batches that take long to check: looked at in a thread, and answered like all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records import batch
from ottla.records.layout import Compression
from ottla.storage.admission import DECOMPRESSED_AT_ONCE_BYTES_MAX
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import fetch, list_offsets, one_batch, produce, produce_to_many

NewTopic = Callable[..., tuple[str, UUID]]

LARGE = bytes(DECOMPRESSED_AT_ONCE_BYTES_MAX)
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def large(*values: bytes, compression: Compression = Compression.GZIP, **options: Any) -> bytes:
    """A batch of these values and one that makes it decompress to more than is looked at at once."""
    return one_batch(*values, LARGE, compression=compression, **options)


def answer_of(client: RawClient, request: ProduceRequest) -> Any:
    return client.ask(request, 9).responses[0].partition_responses[0]


def first_values(client: RawClient, topic: str) -> list[bytes]:
    """The first value of each batch."""
    data = bytes(client.ask(fetch(topic), 11).responses[0].partitions[0].records)
    found, position = [], 0
    while position < len(data):
        found.append(bytes(next(batch.iterate(data, position)).value or b""))
        position += batch.read_header(data, position).size_bytes
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_stored_as_it_came(codec: Compression, client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for number in range(3):
        answer = answer_of(client, produce(topic, large(b"%d" % number, compression=codec)))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 2 * number, 0)
    assert first_values(client, topic) == [b"0", b"1", b"2"]


def test_what_a_connection_sends_behind_a_large_batch_is_stored_behind_it(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic()
    values = [b"small 0", b"large 1", b"small 2", b"large 3", b"small 4"]
    batches = [large(value) if value.startswith(b"large") else one_batch(value) for value in values]
    client.send_together([(produce(topic, records), 9) for records in batches])
    offsets = [client.receive()[0].responses[0].partition_responses[0].base_offset for _ in batches]
    assert offsets == [0, 1, 3, 4, 6]
    assert first_values(client, topic) == values


def test_a_large_batch_that_is_sent_again_is_stored_once(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    sequences = [large(b"0", producer_id=7, producer_epoch=0, base_sequence=0)]
    sequences.append(large(b"1", producer_id=7, producer_epoch=0, base_sequence=2))
    skipped = large(b"2", producer_id=7, producer_epoch=0, base_sequence=9)
    offsets = [answer_of(client, produce(topic, records)).base_offset for records in (*sequences, *sequences)]
    assert offsets == [0, 2, 0, 2]
    assert answer_of(client, produce(topic, skipped)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert first_values(client, topic) == [b"0", b"1"]


def test_a_large_batch_with_acks_0_is_not_answered_and_a_bad_one_closes_the_connection(
    client: RawClient, connect: Callable[[], RawClient], new_topic: NewTopic
) -> None:
    topic, _ = new_topic(config={"cleanup.policy": "compact"})
    client.send(produce(topic, large(b"x", keys=[b"a", b"b"]), acks=0), 9, is_answered=False)
    assert client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset == 2
    rude = connect()
    rude.send(produce(topic, large(b"x"), acks=0), 9, is_answered=False)
    assert rude.is_ended()


def test_what_is_wrong_with_a_large_batch_is_told(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"cleanup.policy": "compact"})
    answer = answer_of(client, produce(topic, large(b"x", keys=[b"k", None])))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_large_and_small_batches_of_one_request_are_answered_in_their_order(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic(4)
    unsound = bytearray(large(b"x"))
    unsound[-20] ^= 1
    entries = [large(b"x"), one_batch(b"y"), bytes(unsound), large(b"z")]
    answers = client.ask(produce_to_many(topic, enumerate(entries)), 9).responses[0].partition_responses
    assert [(answer.index, answer.error_code, answer.base_offset) for answer in answers] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, ErrorCode.CORRUPT_MESSAGE, -1),
        (3, 0, 0),
    ]


def test_a_large_batch_is_recompressed_as_the_topic_asks(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(config={"compression.type": "zstd"})
    assert not answer_of(client, produce(topic, large(b"x"))).error_code
    data = bytes(client.ask(fetch(topic), 11).responses[0].partitions[0].records)
    assert batch.read_header(data).compression is Compression.ZSTD
