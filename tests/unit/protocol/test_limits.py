"""Counts and lengths are believed only as far as the frame reaches, before anything is allocated."""

import tracemalloc
from random import Random
from typing import Any

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, decode_bounded, encode, encode_large
from ottla.protocol.compiler import element_size_min
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.schema import message_schema_of, schema_of
from ottla.protocol.versions import all_messages
from ottla.protocol.wire import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX, encode_uvarint
from ottla.testing.messages import random_message, smallest_message


def allocated_by_refusing(cls: type, version: int, frame: bytes) -> int:
    """The peak of memory while the frame is refused."""
    with pytest.raises(ProtocolError):
        decode(cls, b"", version)  # the decoder itself is made outside the measurement
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(cls, frame, version)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2, 127, 128, 1000, ARRAY_ELEMENTS_MAX, 0x7FFFFFFF, 0xFFFFFFFE])
def test_a_compact_count_that_the_frame_cannot_hold_allocates_nothing(count: int) -> None:
    frame = encode_uvarint(count + 1) + bytes(10)
    assert allocated_by_refusing(MetadataRequest, 12, frame) < 20_000


@pytest.mark.parametrize("count", [6, 1000, ARRAY_ELEMENTS_MAX, 0x7FFFFFFF])
def test_a_count_that_the_frame_cannot_hold_allocates_nothing(count: int) -> None:
    frame = count.to_bytes(4, "big") + bytes(10)
    assert allocated_by_refusing(DescribeGroupsRequest, 0, frame) < 20_000


@pytest.mark.parametrize("version", [0, 5])
def test_an_array_has_at_most_a_million_elements_even_where_the_frame_holds_more(version: int) -> None:
    empty = b"\x01" if version == 5 else b"\x00\x00"
    for count, is_allowed in ((ARRAY_ELEMENTS_MAX, True), (ARRAY_ELEMENTS_MAX + 1, False)):
        prefix = encode_uvarint(count + 1) if version == 5 else count.to_bytes(4, "big")
        frame = prefix + empty * count + bytes(2)
        if is_allowed:
            assert len(decode(DescribeGroupsRequest, frame, version).groups) == count
        else:
            with pytest.raises(ProtocolError):
                decode(DescribeGroupsRequest, frame, version)


def test_arrays_inside_arrays_share_the_bytes_of_the_frame() -> None:
    """Each of many topics claims as many partitions as the frame could hold: the first one is refused."""
    fixed = encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 0)[:-4]
    topic = b"\x00\x00" + (3000).to_bytes(4, "big")
    frame = fixed + (10_000).to_bytes(4, "big") + topic * 10_000
    assert allocated_by_refusing(FetchRequest, 0, frame) < 20 * len(frame)


def test_tagged_fields_are_limited() -> None:
    body = encode(DeleteTopicsRequest(timeout_ms=1), 4)[:-1]
    unknown = bytes.fromhex("c801 00")
    allowed = body + encode_uvarint(TAGGED_FIELDS_MAX) + unknown * TAGGED_FIELDS_MAX
    assert decode(DeleteTopicsRequest, allowed, 4) == DeleteTopicsRequest(timeout_ms=1)
    with pytest.raises(ProtocolError, match="10001 tagged fields"):
        decode(DeleteTopicsRequest, body + encode_uvarint(TAGGED_FIELDS_MAX + 1) + unknown * 10_001, 4)


def test_a_tagged_field_that_runs_past_the_end_is_refused() -> None:
    body = encode(DeleteTopicsRequest(timeout_ms=1), 4)[:-1]
    with pytest.raises(ProtocolError, match="runs past the end"):
        decode(DeleteTopicsRequest, body + bytes.fromhex("01 c801 05 00"), 4)


def test_every_element_of_every_array_takes_room_on_the_wire() -> None:
    """Else four bytes could ask for a million objects."""

    def check(cls: type, version: int, flexible: bool) -> None:
        for field in schema_of(cls).fields:
            if version in field.versions:
                assert not field.is_array or element_size_min(field, version, flexible) > 0
                if field.struct:
                    check(field.struct, version, flexible)

    for cls in all_messages():
        schema = message_schema_of(cls)
        for version in schema.versions:
            check(cls, version, schema.is_flexible(version))


def test_a_large_request_is_refused_before_its_elements_are_made() -> None:
    """Over all arrays together, whichever way they are nested."""
    topics = [FetchTopic(topic="t", partitions=[smallest_message(FetchPartition, 12)] * 9)] * 10
    frame = memoryview(encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 12))
    count = len(topics) * (1 + len(topics[0].partitions))
    assert decode_bounded(FetchRequest, frame, 12, 0, count) == decode(FetchRequest, frame, 12)
    with pytest.raises(ProtocolError, match="more elements"):
        decode_bounded(FetchRequest, frame, 12, 0, count - 1)


@pytest.mark.parametrize("cls", [cls for cls in all_messages() if message_schema_of(cls).key is not None], ids=str)
def test_a_bounded_decoder_reads_what_the_other_reads(cls: type) -> None:
    schema = message_schema_of(cls)
    version = schema.versions.last
    message: Any = random_message(cls, version, Random(7))
    data = encode(message, version)
    assert decode_bounded(cls, memoryview(data), version, 0, 1_000_000) == decode(cls, memoryview(data), version)


def test_a_large_answer_is_encoded_without_a_list_of_its_parts() -> None:
    answer = random_message(DescribeGroupsResponse, 6, Random(3))
    assert encode_large(answer, 6) == encode(answer, 6)
