"""Worked bytes, each checked against Apache Kafka or a client of it."""

from uuid import UUID

import pytest

from ottla.errors import ErrorCode, ProtocolError, RecordsError
from ottla.ids import parse_topic_id, topic_id_text
from ottla.protocol.codec import decode, encode
from ottla.protocol.coordinator_records import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_type_of,
)
from ottla.protocol.frames import framed
from ottla.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.embedded import ControlRecordTypeSchema, EndTxnMarker, ProducerEntry, ProducerSnapshot
from ottla.protocol.messages.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.transaction_records import TransactionLogKey
from ottla.protocol.wire import encode_uvarint, read_uvarint
from ottla.records.reference.record import _varint, write_varint
from ottla.testing.frame_parser import FrameParser

NOV_2023 = 1_700_000_000_000


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (-300, "d704"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
        (9223372036854775807, "feffffffffffffffff01"),
        (-9223372036854775808, "ffffffffffffffffff01"),
    ],
)
def test_zigzag_varints(value: int, encoded: str) -> None:
    written = bytearray()
    write_varint(written, value)
    assert written.hex() == encoded
    assert _varint(memoryview(written), 0, len(written), 64, 0) == (value, len(written))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16384, "808001"),
        (2147483647, "ffffffff07"),
        (4294967295, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["ffffffffff01", "ffffffff1f", "808080808000"])
def test_an_unsigned_varint_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff7f", "8080808080808080808000"])
def test_a_varint_of_more_than_64_bits_is_refused(encoded: str) -> None:
    with pytest.raises(RecordsError):
        _varint(memoryview(bytes.fromhex(encoded)), 0, len(encoded) // 2, 64, 0)


CLIENT = ApiVersionsRequest(client_software_name="x", client_software_version="1")
REQUEST_FRAMES = [
    pytest.param(18, 0, ApiVersionsRequest(), "0000000d00120000000000070003636964", id="ApiVersions 0"),
    pytest.param(18, 3, CLIENT, "0000001300120003000000070003636964000278023100", id="ApiVersions 3"),
    pytest.param(18, 4, CLIENT, "0000001300120004000000070003636964000278023100", id="ApiVersions 4"),
    pytest.param(
        3, 1, MetadataRequest(topics=None), "0000001100030001000000070003636964ffffffff", id="Metadata 1, all"
    ),
    pytest.param(
        3,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        "000000250003000c000000070003636964000200000000000000000000000000000000027400010000",
        id="Metadata 12, one topic",
    ),
]


@pytest.mark.parametrize(("api_key", "version", "body", "expected"), REQUEST_FRAMES)
def test_a_request_from_its_frame_and_back(api_key: int, version: int, body: object, expected: str) -> None:
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="cid")
    encoded = framed(encode_request_header(header), encode(body, version))
    assert encoded.hex() == expected

    (request,) = FrameParser().feed(encoded)
    read_header, position = decode_request_header(request)
    assert read_header == header
    assert decode(type(body), request, version, position) == body


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    body = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    answer = framed(encode_response_header(7, api_key=18, api_version=99), encode(body, 0))
    assert answer.hex() == "0000001000000007002300000001001200000004"

    (response,) = FrameParser().feed(answer)
    header, position = decode_response_header(response, api_key=18, api_version=99)
    assert header.correlation_id == 7
    assert decode(ApiVersionsResponse, response, 0, position) == body


def test_records_of_the_group_coordinator() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=42, leader_epoch=5, metadata="", commit_timestamp=NOV_2023)
    assert encode_key(key).hex() == "000100016700017400000000"
    assert encode_value(value, 3).hex() == "0003000000000000002a0000000500000000018bcfe56800"
    assert encode_key(GroupMetadataKey(group="g")).hex() == "0002000167"

    assert decode_key(GROUP_RECORDS, encode_key(key)) == key
    assert decode_value(GROUP_RECORDS[1], encode_value(value, 3)) == value


def test_records_of_the_transaction_coordinator() -> None:
    key = TransactionLogKey(transactional_id="x")
    assert encode_key(key).hex() == "0000000178"
    assert decode_key(TRANSACTION_RECORDS, encode_key(key)) == key


def test_a_record_type_of_a_newer_broker_can_be_told_from_damage() -> None:
    from_the_future = bytes.fromhex("03e70000")
    assert record_type_of(from_the_future) == 999
    assert 999 not in GROUP_RECORDS
    with pytest.raises(ProtocolError, match="999"):
        decode_key(GROUP_RECORDS, from_the_future)
    with pytest.raises(ProtocolError, match="ends early"):
        record_type_of(b"\x00")


def test_the_parts_of_a_transaction_marker() -> None:
    commit = ControlRecordTypeSchema(type=1)
    assert (b"\x00\x00" + encode(commit, 0)).hex() == "00000001"
    assert (b"\x00\x00" + encode(EndTxnMarker(coordinator_epoch=0), 0)).hex() == "000000000000"


def test_a_producer_snapshot() -> None:
    entry = ProducerEntry(
        producer_id=4000,
        epoch=2,
        last_sequence=7,
        last_offset=10,
        offset_delta=0,
        timestamp=NOV_2023,
        coordinator_epoch=0,
        current_txn_first_offset=10,
    )
    snapshot = ProducerSnapshot(crc=0x37E0AA2E, producer_entries=[entry])
    assert (b"\x00\x01" + encode(snapshot, 1)).hex() == (
        "000137e0aa2e000000010000000000000fa0000200000007000000000000000a00000000"
        "0000018bcfe5680000000000000000000000000a"
    )


def test_a_topic_id_as_text() -> None:
    topic_id = UUID("b8f5c3d2-1a2b-4c3d-8e4f-5a6b7c8d9e0f")
    assert topic_id_text(topic_id) == "uPXD0horTD2OT1prfI2eDw"
    assert parse_topic_id("uPXD0horTD2OT1prfI2eDw") == topic_id
