"""What a version has not, cannot carry or must not hold."""

import traceback
from dataclasses import dataclass

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, decode_at, encode, encode_parts
from ottla.protocol.compiler import source_of
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.groups import HeartbeatRequest
from ottla.protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire import ZERO_UUID


@dataclass(frozen=True)
class FileSlice:
    path: str
    size_bytes: int


def heartbeat(**more: object) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=3, member_id="m", **more)  # type: ignore[arg-type]


def fetch(**more: object) -> FetchRequest:
    return FetchRequest(max_wait_ms=1, min_bytes=2, topics=[], **more)  # type: ignore[arg-type]


def fetch_response(*records: object) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=9, records=content)  # type: ignore[arg-type]
        for index, content in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_a_field_that_the_version_lacks_keeps_its_default_when_read() -> None:
    assert decode(HeartbeatRequest, encode(heartbeat(), 0), 0).group_instance_id is None
    assert decode(FetchRequest, encode(fetch(), 2), 2).max_bytes == 0x7FFFFFFF


def test_a_value_that_the_version_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v2: this version has no group_instance_id"):
        encode(heartbeat(group_instance_id="i"), 2)


def test_an_ignorable_value_that_the_version_cannot_carry_is_left_out() -> None:
    assert encode(fetch(max_bytes=5), 2) == encode(fetch(), 2)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest has no version 9"):
        encode(heartbeat(), 9)
    with pytest.raises(ProtocolError, match="HeartbeatRequest has no version -1"):
        decode(HeartbeatRequest, b"", -1)


def test_null_is_refused_in_versions_that_do_not_allow_it() -> None:
    with pytest.raises(ProtocolError, match="MetadataRequest v0"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match="length of topics is negative"):
        decode(MetadataRequest, bytes.fromhex("ffffffff"), 0)
    assert decode(MetadataRequest, bytes.fromhex("ffffffff"), 1).topics is None
    with pytest.raises(ProtocolError, match="name must not be null"):
        decode(MetadataRequest, bytes.fromhex("02 00 00 01 00 00 00"), 9)


def test_a_length_below_null_is_refused() -> None:
    with pytest.raises(ProtocolError, match="negative"):
        decode(MetadataRequest, bytes.fromhex("fffffffe"), 1)


def test_a_tagged_field_at_its_default_is_not_written() -> None:
    assert len(encode(fetch(cluster_id="c"), 12)) == len(encode(fetch(), 12)) + 4
    assert encode(fetch(replica_state=None), 15)[-1] == 0


def test_tagged_fields_are_written_by_rising_tag_and_come_back() -> None:
    request = fetch(cluster_id="c", replica_state=ReplicaState(replica_id=3, replica_epoch=4))
    encoded = encode(request, 15)
    assert encoded.endswith(bytes.fromhex("02 00 02 0263 01 0d 00000003 0000000000000004 00"))
    assert decode(FetchRequest, encoded, 15) == request


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = encode(fetch(), 12)
    assert encoded[-1] == 0
    with_tags = encoded[:-1] + bytes.fromhex("02 07 03 aabbcc c801 00")
    assert decode_at(FetchRequest, with_tags, 12) == (fetch(), len(with_tags))


def test_a_tagged_field_that_is_longer_or_shorter_than_it_says_is_refused() -> None:
    encoded = encode(fetch(), 12)[:-1]
    for size in ("01", "03"):
        with pytest.raises(ProtocolError, match="cluster_id has another size"):
            decode(FetchRequest, encoded + bytes.fromhex(f"01 00 {size} 0263 00 00 00"), 12)


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    request = DescribeTopicPartitionsRequest(topics=[], cursor=None)
    encoded = encode(request, 0)
    assert encoded == bytes.fromhex("01 000007d0 ff 00")
    assert decode(DescribeTopicPartitionsRequest, encoded, 0) == request
    with pytest.raises(ProtocolError, match="cursor is neither null nor present"):
        decode(DescribeTopicPartitionsRequest, bytes.fromhex("01 000007d0 05 00"), 0)


def test_a_nullable_struct_in_a_tag_has_a_byte_before_it_too() -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=0,
        server_assignor=None,
    )
    # Kafka takes a tag that is left out for an empty struct: null is written.
    null = encode(member, 0)
    assert null.endswith(bytes.fromhex("01 00 01 00"))
    assert decode(ConsumerGroupMemberMetadataValue, null, 0).classic_member_metadata is None
    without = null[:-4] + b"\x00"
    assert decode(ConsumerGroupMemberMetadataValue, without, 0).classic_member_metadata is None
    member.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=7, supported_protocols=[])
    encoded = encode(member, 0)
    assert encoded == without[:-1] + bytes.fromhex("01 00 07 01 00000007 01 00")
    assert decode(ConsumerGroupMemberMetadataValue, encoded, 0) == member


def test_a_string_must_be_utf_8() -> None:
    good = encode(heartbeat(), 0)
    with pytest.raises(ProtocolError, match="not UTF-8"):
        decode(HeartbeatRequest, good.replace(b"\x00\x01g", b"\x00\x01\xff"), 0)
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode(HeartbeatRequest(group_id="\ud800", generation_id=0, member_id=""), 0)


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_is_at_most_32767_bytes_long(version: int) -> None:
    longest = heartbeat(group_instance_id="é" * 16383)
    assert decode(HeartbeatRequest, encode(longest, version), version) == longest
    with pytest.raises(ProtocolError):
        encode(heartbeat(group_instance_id="é" * 16384), version)


def test_a_compact_string_that_claims_more_is_refused() -> None:
    encoded = bytes.fromhex("81 80 02") + bytes(32768)
    with pytest.raises(ProtocolError, match="32768 bytes: at most 32767"):
        decode(HeartbeatRequest, encoded, 4)


def test_a_value_out_of_range_is_refused_and_the_traceback_shows_the_field() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0 cannot be encoded") as caught:
        encode(HeartbeatRequest(group_id="g", generation_id=1 << 31, member_id="m"), 0)
    assert caught.value.__cause__ is not None
    assert "o.generation_id" in "".join(traceback.format_exception(caught.value.__cause__))


def test_every_cut_of_a_message_is_refused() -> None:
    partition = PartitionProduceData(index=1, records=b"batch")
    topic = TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=2, topic_data=[topic])
    for version in (3, 9):
        encoded = encode(request, version)
        for end in range(len(encoded)):
            with pytest.raises(ProtocolError):
                decode(ProduceRequest, encoded[:end], version)
            with pytest.raises(ProtocolError):
                decode(ProduceRequest, memoryview(encoded)[:end], version)


def test_records_are_views_of_the_frame() -> None:
    frame = bytearray(encode(fetch_response(b"batch"), 4))
    records = decode(FetchResponse, memoryview(frame), 4).responses[0].partitions[0].records
    assert records == b"batch"
    frame[frame.index(b"batch")] = ord("B")
    assert records == b"Batch"
    assert isinstance(decode(FetchResponse, bytes(frame), 4).responses[0].partitions[0].records, memoryview)


@pytest.mark.parametrize("version", [11, 12])
def test_files_take_the_place_of_records(version: int) -> None:
    in_file = FileSlice("00.log", size_bytes=5)
    parts = encode_parts(fetch_response(in_file, None, b"in memory", in_file, b"last"), version)
    assert [type(part) for part in parts] == [bytes, FileSlice, bytes, FileSlice, bytes]
    whole = b"".join(b"batch" if isinstance(part, FileSlice) else part for part in parts)  # type: ignore[misc]
    assert whole == encode(fetch_response(b"batch", None, b"in memory", b"batch", b"last"), version)


def test_a_response_that_ends_with_a_file_has_no_empty_part_after_it() -> None:
    parts = encode_parts(fetch_response(FileSlice("00.log", 5)), 4)
    assert [type(part) for part in parts] == [bytes, FileSlice]


def test_messages_compare_by_content_and_show_what_differs_from_the_default() -> None:
    assert fetch(max_bytes=5) == fetch(max_bytes=5) != fetch(max_bytes=6)
    assert EpochEndOffset(epoch=1) != ReplicaState()
    assert repr(fetch(max_bytes=5)) == "FetchRequest(max_wait_ms=1, min_bytes=2, max_bytes=5, topics=[])"
    with pytest.raises(TypeError):
        hash(fetch())


def test_a_misspelt_field_is_found_at_once() -> None:
    with pytest.raises(TypeError):
        heartbeat(group_instnace_id="i")
    with pytest.raises(AttributeError):
        heartbeat().generaton_id = 4  # type: ignore[attr-defined]


def test_lists_are_not_shared_between_messages() -> None:
    fetch().forgotten_topics_data.append(None)  # type: ignore[arg-type]
    assert fetch().forgotten_topics_data == []
    first, second = (decode(FetchRequest, encode(fetch(), 0), 0) for _ in range(2))
    assert first.forgotten_topics_data is not second.forgotten_topics_data


def test_the_source_of_a_codec_can_be_read() -> None:
    source = source_of(HeartbeatRequest, 4)
    assert "def decode_HeartbeatRequest_v4(b, p):" in source
    assert "def encode_HeartbeatRequest_v4(o, parts):" in source


def test_neighbours_of_fixed_size_are_read_by_one_call() -> None:
    assert "o.max_wait_ms, o.min_bytes, o.max_bytes, o.isolation_level" in source_of(FetchRequest, 12)


def test_a_topic_without_an_id_has_the_zero_id() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert decode(MetadataRequest, encode(request, 9), 9).topics[0].topic_id == ZERO_UUID  # type: ignore[index]
