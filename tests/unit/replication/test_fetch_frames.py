"""The short way of Fetch between brokers writes and reads what the codec does, byte for byte, or leaves it to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import encode_request_header, encode_response_header
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.headers import RequestHeader
from ottla.replication.fetch_frames import (
    FIRST_REPLICA_STATE_VERSION,
    AskedPartition,
    FetchedPartition,
    FetchTemplate,
    read_response,
    template_of,
    write_response,
)
from ottla.replication.fetch_requests import FetchPosition

FETCH_KEY = 1
VERSIONS = range(13, 19)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.sampled_from([UUID(int=number) for number in (1, 2, 2**127)])
partitions = st.integers(0, 300)
asked_partitions = st.builds(
    AskedPartition,
    topic_ids.map(lambda one: one.bytes),
    partitions,
    st.builds(FetchPosition, int64s, int32s, int32s, int64s, int32s),
)
fetched_partitions = st.builds(
    FetchedPartition, topic_ids.map(lambda one: one.bytes), partitions, int64s, int64s, int64s, st.binary(max_size=300)
)


def by_topic(items: list[Any]) -> list[list[Any]]:
    topics: list[list[Any]] = []
    for item in items:
        if not topics or topics[-1][-1].topic_id != item.topic_id:
            topics.append([])
        topics[-1].append(item)
    return topics


def request_of(version: int, epoch: int, asked: list[AskedPartition]) -> FetchRequest:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000_000,
        session_id=7,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic_id=UUID(bytes=of_topic[0].topic_id),
                partitions=[
                    FetchPartition(
                        partition=one.partition,
                        current_leader_epoch=one.position.leader_epoch,
                        fetch_offset=one.position.offset,
                        last_fetched_epoch=one.position.last_fetched_epoch,
                        log_start_offset=one.position.log_start_offset,
                        partition_max_bytes=one.position.bytes_max,
                    )
                    for one in of_topic
                ],
            )
            for of_topic in by_topic(asked)
        ],
    )
    if version >= FIRST_REPLICA_STATE_VERSION:
        request.replica_state = ReplicaState(replica_id=3, replica_epoch=2**40)
    else:
        request.replica_id = 3
    return request


def framed(version: int, request: FetchRequest, correlation_id: int = 1, client_id: str | None = "broker-3") -> bytes:
    header = RequestHeader(
        request_api_key=FETCH_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode_request_header(header) + encode(request, version)


def learned(version: int, client_id: str | None = "broker-3") -> FetchTemplate:
    request = request_of(version, 1, [AskedPartition(bytes(15) + b"\1", 0, FetchPosition(100, 5, 5, 0, 1000))])
    template = template_of(framed(version, request, client_id=client_id), request)
    assert template is not None
    return template


@given(st.sampled_from(VERSIONS), st.sampled_from(["broker-3", "", None]), int32s, int32s, st.lists(asked_partitions))
def test_requests_are_those_of_the_codec(
    version: int, client_id: str | None, correlation_id: int, epoch: int, asked: list[AskedPartition]
) -> None:
    template = learned(version, client_id)
    frame = framed(version, request_of(version, epoch, asked), correlation_id, client_id)
    assert template.write(correlation_id, epoch, asked) == frame
    assert template.read(frame) == (epoch, asked)


@given(st.sampled_from(VERSIONS), int32s, st.lists(fetched_partitions))
def test_responses_are_those_of_the_codec(version: int, session_id: int, fetched: list[FetchedPartition]) -> None:
    head = encode_response_header(9, FETCH_KEY, version)
    frame = head + encode(response_of(session_id, fetched), version)
    parts = write_response(head[:4], session_id, fetched)
    assert b"".join(parts) == frame
    read = read_response(memoryview(frame))
    assert read is not None
    assert read[0] == session_id
    assert [one._replace(records=bytes(one.records)) for one in read[1]] == fetched


def response_of(session_id: int, fetched: list[FetchedPartition]) -> FetchResponse:
    topics = [
        FetchableTopicResponse(
            topic_id=UUID(bytes=of_topic[0].topic_id),
            partitions=[
                PartitionData(
                    partition_index=one.partition,
                    high_watermark=one.high_watermark,
                    last_stable_offset=one.last_stable_offset,
                    log_start_offset=one.log_start_offset,
                    aborted_transactions=None,
                    records=one.records,
                )
                for one in of_topic
            ],
        )
        for of_topic in by_topic(fetched)
    ]
    return FetchResponse(session_id=session_id, responses=topics)


def test_records_in_files_are_parts_of_their_own() -> None:
    records = SimpleNamespace(size_bytes=300)
    fetched = [FetchedPartition(bytes(16), 0, 1, 1, 0, b"abc"), FetchedPartition(bytes(16), 1, 1, 1, 0, records)]
    before, between, after = write_response(b"1234", 7, fetched)
    assert between is records
    in_memory = [fetched[0], fetched[1]._replace(records=b"x" * 300)]
    assert before + b"x" * 300 + after == b"".join(write_response(b"1234", 7, in_memory))


ASKED = AskedPartition(bytes(15) + b"\1", 0, FetchPosition(100, 5, 5, 0, 1000))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "change",
    [
        {"cluster_id": "other"},
        {"forgotten_topics_data": [ForgottenTopic(topic_id=UUID(int=1), partitions=[0])]},
        {"rack_id": "a"},
        {"max_wait_ms": 400},
        {"min_bytes": 2},
        {"max_bytes": 5},
        {"isolation_level": 1},
        {"session_id": 8},
    ],
    ids=str,
)
def test_other_requests_are_left_to_the_codec(version: int, change: dict[str, Any]) -> None:
    request = request_of(version, 1, [ASKED])
    for name, value in change.items():
        setattr(request, name, value)
    assert learned(version).read(framed(version, request)) is None


def test_what_a_template_does_not_know_is_not_learned() -> None:
    for change in ({"cluster_id": "other"}, {"rack_id": "a"}):
        request = request_of(15, 1, [ASKED])
        for name, value in change.items():
            setattr(request, name, value)
        assert template_of(framed(15, request), request) is None
    request = request_of(12, 1, [])
    assert template_of(framed(12, request), request) is None


def test_tags_of_a_partition_are_left_to_the_codec() -> None:
    request = request_of(18, 1, [ASKED])
    request.topics[0].partitions[0].high_watermark = 5
    assert learned(18).read(framed(18, request)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"error_code": 6},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
        {"aborted_transactions": []},
        {"preferred_read_replica": 2},
        {"records": None},
    ],
    ids=str,
)
def test_other_responses_are_left_to_the_codec(change: dict[str, Any]) -> None:
    response = response_of(7, [FetchedPartition(bytes(16), 0, 1, 1, 0, b"abc")])
    for name, value in change.items():
        setattr(response.responses[0].partitions[0], name, value)
    assert read_response(memoryview(encode_response_header(9, FETCH_KEY, 18) + encode(response, 18))) is None


def test_errors_of_a_whole_response_and_its_tags_are_left_to_the_codec() -> None:
    for response in (
        FetchResponse(error_code=70, session_id=7, responses=[]),
        FetchResponse(session_id=7, responses=[], node_endpoints=[NodeEndpoint(node_id=1, host="a", port=1)]),
    ):
        assert read_response(memoryview(encode_response_header(9, FETCH_KEY, 18) + encode(response, 18))) is None


@given(st.data(), st.sampled_from(VERSIONS), st.lists(asked_partitions, min_size=1, max_size=3))
def test_damaged_requests_are_read_as_the_codec_reads_them_or_left_to_it(
    data: st.DataObject, version: int, asked: list[AskedPartition]
) -> None:
    frame = bytearray(framed(version, request_of(version, 1, asked)))
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        frame[place] = data.draw(st.integers(0, 255))
    damaged = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    read = learned(version).read(damaged)
    if read is not None:
        body_at = 8 + 2 + len("broker-3") + 1
        again = decode(FetchRequest, damaged, version, body_at)
        assert framed(version, request_of(version, *read), correlation_id=again.session_epoch)[8:] == damaged[8:]


@given(st.data(), st.lists(fetched_partitions, min_size=1, max_size=3))
def test_damaged_responses_are_read_as_the_codec_reads_them_or_left_to_it(
    data: st.DataObject, fetched: list[FetchedPartition]
) -> None:
    frame = bytearray(b"".join(write_response(b"1234", 7, fetched)))
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        frame[place] = data.draw(st.integers(0, 255))
    damaged = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    read = read_response(memoryview(damaged))
    if read is not None:
        again = decode(FetchResponse, damaged, 18, 5)
        in_memory = [one._replace(records=bytes(one.records)) for one in read[1]]
        assert again == decode(FetchResponse, encode(response_of(read[0], in_memory), 18), 18)
