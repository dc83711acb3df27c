"""One connection: versions, order, pieces, limits and every way to break."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.net.client import (
    Address,
    BrokerConnection,
    CannotConnectError,
    ClosedUnansweredError,
    ConnectionLostError,
    ConnectionOptions,
    NotABrokerError,
    RequestTimedOutError,
    UnsupportedByBrokerError,
    connect,
)
from ottla.net.spare_frames import SpareFrames
from ottla.protocol.codec import encode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.protocol.versions import API_TABLE
from ottla.testing import loop

METADATA = API_TABLE[3]
ALL_TOPICS = MetadataRequest(topics=None)
EVERYTHING = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])


def run(network, work: Callable[[BrokerConnection], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        connection = await connect(network.address(1), ConnectionOptions(**options), network.connector)
        try:
            await work(connection)
        finally:
            await connection.close()

    loop.run(main())


def versions(**ranges: tuple[int, int]) -> Callable[..., ApiVersionsResponse]:
    keys = {"api_versions": 18, "metadata": 3}
    return lambda request, version: ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=low, max_version=high) for name, (low, high) in ranges.items()
        ]
    )


def test_the_first_request_says_who_asks(network):
    broker = network.add(1)

    async def work(connection: BrokerConnection) -> None:
        request, version = broker.asked[0]
        assert version == 3
        assert request.client_software_name == "ottla"
        assert 3 in connection.versions

    run(network, work)


def test_a_broker_without_that_version_is_asked_in_version_0(network):
    broker = network.add(1)

    def script(request: ApiVersionsRequest, version: int) -> object:
        if version == 0:
            return versions(metadata=(0, 2))(request, version)
        return encode(
            ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
            ),
            0,
        )

    broker.scripts[ApiVersionsRequest] = script

    async def work(connection: BrokerConnection) -> None:
        assert [version for _, version in broker.asked] == [3, 0]
        assert connection.version_of(METADATA) == 2

    run(network, work)


@pytest.mark.parametrize(
    ("theirs", "version_max", "chosen"), [((0, 99), None, 13), ((0, 5), None, 5), ((0, 13), 9, 9), ((7, 8), 12, 8)]
)
def test_the_highest_version_that_both_have_is_spoken(network, theirs, version_max, chosen):
    network.add(1).scripts[ApiVersionsRequest] = versions(metadata=theirs)

    async def work(connection: BrokerConnection) -> None:
        assert connection.version_of(METADATA, version_max) == chosen

    run(network, work)


@pytest.mark.parametrize(("theirs", "version_max"), [((14, 20), None), ((10, 13), 9)])
def test_no_common_version_is_an_error_that_names_both(network, theirs, version_max):
    network.add(1).scripts[ApiVersionsRequest] = versions(metadata=theirs)

    async def work(connection: BrokerConnection) -> None:
        with pytest.raises(UnsupportedByBrokerError, match=f"Metadata in a version that fits: {theirs[0]}-{theirs[1]}"):
            connection.version_of(METADATA, version_max)
        with pytest.raises(UnsupportedByBrokerError, match="does not have DescribeCluster at all"):
            await connection.request(
                DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse
            )

    run(network, work)


@pytest.mark.parametrize("piece_bytes", [1, 3, 100, 70_000, 1 << 30])
def test_answers_find_their_requests_in_whatever_pieces_they_come(network, piece_bytes):
    broker = network.add(1)
    broker.piece_bytes = piece_bytes
    # Of all sizes around those of the receive buffers: many in one piece, one in many pieces.
    sizes = [0, 1, 50, 40_000, 65_490, 65_536, 70_000, 300_000, 0, 20]
    answers = [
        MetadataResponse(brokers=[], cluster_id=str(number), topics=[topic(size % 30_000)] * (1 + size // 30_000))
        for number, size in enumerate(sizes)
    ]
    left = iter(answers)
    broker.scripts[MetadataRequest] = lambda request, version: next(left)

    async def work(connection: BrokerConnection) -> None:
        assert await asyncio.gather(*(connection.request(ALL_TOPICS, MetadataResponse) for _ in sizes)) == answers
        assert not connection._expected

    run(network, work)


def topic(name_bytes: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(name="n" * name_bytes, partitions=[])


def test_a_large_answer_arrives_whole(network):
    broker = network.add(1)
    broker.piece_bytes = 50_000
    answer = MetadataResponse(brokers=[], topics=[topic(30_000)] * 200)
    broker.scripts[MetadataRequest] = lambda request, version: answer

    async def work(connection: BrokerConnection) -> None:
        assert await connection.request(ALL_TOPICS, MetadataResponse) == answer

    run(network, work)


def test_an_answer_to_another_request_breaks_the_connection(network):
    broker = network.add(1)
    broker.scripts[MetadataRequest] = lambda request, version: None

    async def work(connection: BrokerConnection) -> None:
        asked = asyncio.ensure_future(connection.request(ALL_TOPICS, MetadataResponse))
        await asyncio.sleep(0)
        broker.pipes[0].deliver(struct.pack(">iib", 5, 999, 0))
        with pytest.raises(NotABrokerError, match="answer 999 where 1 was due"):
            await asked
        assert connection.is_closed

    run(network, work)


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\x00\x02\x02P", bytes(8)])
def test_who_does_not_speak_kafka_is_told_apart(network, words):
    broker = network.add(1)
    broker.scripts[ApiVersionsRequest] = lambda request, version: broker.pipes[0].deliver(words)

    async def main() -> None:
        with pytest.raises(NotABrokerError, match=r"^broker:9001: the answer is not Kafka's: a frame of \d+ bytes"):
            await connect(network.address(1), connector=network.connector)

    loop.run(main())


def test_a_frame_beyond_the_limit_is_refused_before_memory_is_taken(network):
    broker = network.add(1)
    broker.scripts[MetadataRequest] = lambda request, version: broker.pipes[0].deliver(struct.pack(">ii", 1 << 30, 1))

    async def work(connection: BrokerConnection) -> None:
        with pytest.raises(NotABrokerError, match="at most 2000000 are allowed"):
            await connection.request(ALL_TOPICS, MetadataResponse)

    run(network, work, frame_bytes_max=2_000_000)


def test_no_answer_in_time_closes_the_connection_for_all_who_wait(network):
    network.add(1).scripts[MetadataRequest] = lambda request, version: None

    async def work(connection: BrokerConnection) -> None:
        patient = asyncio.ensure_future(connection.request(ALL_TOPICS, MetadataResponse, timeout_s=60))
        with pytest.raises(RequestTimedOutError, match=r"no answer to Metadata within 0\.01 s"):
            await connection.request(ALL_TOPICS, MetadataResponse, timeout_s=0.01)
        with pytest.raises(RequestTimedOutError):
            await patient
        assert connection.is_closed
        with pytest.raises(RequestTimedOutError):
            await connection.request(ALL_TOPICS, MetadataResponse)

    run(network, work)


def test_a_broker_that_goes_away_is_told_to_all_who_wait(network):
    broker = network.add(1)
    broker.scripts[MetadataRequest] = lambda request, version: None

    async def work(connection: BrokerConnection) -> None:
        asked = [asyncio.ensure_future(connection.request(ALL_TOPICS, MetadataResponse)) for _ in range(3)]
        await asyncio.sleep(0)
        broker.pipes[0].close()
        for each in asked:
            with pytest.raises(ConnectionLostError, match="closed the connection"):
                await each

    run(network, work)


def test_a_caller_that_gives_up_disturbs_nobody_else(network):
    broker = network.add(1)
    broker.scripts[MetadataRequest] = lambda request, version: None

    async def work(connection: BrokerConnection) -> None:
        first, second = (asyncio.ensure_future(connection.request(ALL_TOPICS, MetadataResponse)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        body = encode(MetadataResponse(brokers=[], topics=[], cluster_id="second"), 13)
        for correlation_id in (1, 2):
            broker.pipes[0].deliver(struct.pack(">iib", len(body) + 5, correlation_id, 0) + body)
        assert (await second).cluster_id == "second"
        assert not connection.is_closed

    run(network, work)


def test_a_full_transport_holds_requests_back(network):
    broker = network.add(1)

    async def work(connection: BrokerConnection) -> None:
        connection.pause_writing()
        asked = asyncio.ensure_future(connection.request(ALL_TOPICS, MetadataResponse))
        await asyncio.sleep(0.01)
        assert broker.requests(MetadataRequest) == []
        connection.resume_writing()
        assert (await asked).cluster_id == "cluster"

    run(network, work)


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, not listening

        async def main() -> None:
            with pytest.raises(CannotConnectError, match=f"^127.0.0.1:{port}: no connection: connection refused$"):
                await connect(Address("127.0.0.1", port))

        asyncio.run(main())


def test_a_broker_that_accepts_and_says_nothing_is_given_up(network):
    broker = network.add(1)
    broker.scripts[ApiVersionsRequest] = lambda request, version: None

    async def main() -> None:
        with pytest.raises(RequestTimedOutError, match=r"no answer to ApiVersions within 0\.05 s"):
            await connect(network.address(1), ConnectionOptions(connect_timeout_s=0.05), network.connector)
        assert broker.pipes[0].is_closed

    loop.run(main())


def test_an_address_with_colons_stands_in_brackets():
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("localhost", 1)) == "localhost:1"


def test_a_connection_that_ends_before_it_tells_its_versions_is_told_as_such(network):
    network.add(1).hang_ups = 1

    async def main() -> None:
        with pytest.raises(ClosedUnansweredError, match=r"closed when versions were asked for; .* want TLS"):
            await connect(network.address(1), ConnectionOptions(), network.connector)

    loop.run(main())


def test_the_buffer_of_a_large_frame_is_filled_again_when_nobody_looks_at_it():
    spares = SpareFrames()
    assert spares.take(10) is None
    viewed, free = bytearray(200), bytearray(100)
    view = memoryview(viewed)[5:10]
    spares.handed_out(viewed)
    spares.handed_out(free)
    assert spares.take(101) is None
    assert spares.take(100) is free
    assert spares.take(10) is None
    view.release()
    assert spares.take(10) is viewed
    assert (len(viewed), len(free)) == (200, 100)


def test_only_the_last_large_frames_are_kept_and_none_after_a_small_one():
    spares = SpareFrames()
    frames = [bytearray(100 + number) for number in range(5)]
    for frame in frames:
        spares.handed_out(frame)
    assert [spares.take(1) for _ in range(4)] == [frames[4], frames[3], frames[2], None]
    spares.handed_out(frames[0])
    spares.clear()
    assert spares.take(1) is None


def test_large_answers_that_somebody_keeps_stay_as_they_are(network):
    """Answers of all sizes: one of them is let go and its buffer filled again, the others are held."""
    sizes = [300_000, 200_000, 1_500_000, 90_000, 400_000]
    left = iter([response_of(bytes([number]) * size) for number, size in enumerate(sizes)])
    network.add(1).scripts[FetchRequest] = lambda request, version: next(left)

    async def work(connection: BrokerConnection) -> None:
        held = []
        for number, size in enumerate(sizes):
            answer = await connection.request(EVERYTHING, FetchResponse, version_max=11)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            assert bytes(records) == bytes([number]) * size
            if number != 1:
                held.append((number, records))
        for number, records in held:
            assert bytes(records) == bytes([number]) * sizes[number]

    run(network, work)


def response_of(records: bytes) -> FetchResponse:
    part = PartitionData(partition_index=0, high_watermark=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[part])])


class Receiver:
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.failures: list[Exception] = []

    def response_arrived(self, frame: memoryview, body_at: int) -> None:
        self.frames.append(bytes(frame[body_at:]))

    def connection_failed(self, failure: Exception) -> None:
        self.failures.append(failure)


def exchanged(connection: BrokerConnection, receiver: Receiver) -> None:
    version = connection.version_of(METADATA)
    frame = connection.frame_of(ALL_TOPICS, version)

    def make(correlation_id: int) -> bytes:
        return frame[:4] + correlation_id.to_bytes(4) + frame[8:]

    connection.exchange(make, METADATA.key, version, receiver)


def test_a_receiver_gets_its_answer_in_order_among_those_that_tasks_wait_for(network):
    network.add(1)

    async def work(connection: BrokerConnection) -> None:
        receiver = Receiver()
        first = await connection.post(ALL_TOPICS, MetadataResponse)
        exchanged(connection, receiver)
        last = await connection.post(ALL_TOPICS, MetadataResponse)
        answers = [await first, await last]
        version = connection.version_of(METADATA)
        assert receiver.frames == [encode(answers[0], version)] == [encode(answers[1], version)]
        assert receiver.failures == []

    run(network, work)


def test_a_receiver_learns_that_no_answer_will_come_and_may_not_ask_again(network):
    network.add(1).scripts[MetadataRequest] = lambda request, version: None

    async def work(connection: BrokerConnection) -> None:
        receiver = Receiver()
        exchanged(connection, receiver)
        assert receiver.failures == []
        failure = connection.timed_out(METADATA.key, 3.0)
        assert receiver.failures == [failure]
        assert "no answer to Metadata within 3 s" in str(failure)
        with pytest.raises(RequestTimedOutError):
            exchanged(connection, receiver)
        assert receiver.frames == []

    run(network, work)
