"""From the bytes of a request to the bytes of its answer, with handlers that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch import DECODED_AT_ONCE_BYTES_MAX, Context, Dispatcher
from ottla.broker.large_messages import ENCODED_AT_ONCE_MAX
from ottla.broker.serving import by_key, serve
from ottla.broker.session import Sessions
from ottla.errors import ErrorCode, ProtocolError
from ottla.net.connection import Parked
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import message_schema_of
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import SystemOffload
from ottla.runtime.turns import Turns
from ottla.testing.messages import smallest_message

LENGTH_BYTES = 4
CORRELATION_ID = 77
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Asked:
    """A dispatcher with some handlers, and one connection to it."""

    def __init__(self, *served: Any) -> None:
        self.offload = SystemOffload()
        self.dispatcher = Dispatcher(by_key(*served), BROKER, SystemClock(), self.offload)
        self.kept_count = 0
        self.connection: Any = SimpleNamespace(
            session=Sessions().open("PLAINTEXT", "10.0.0.1"), kept=self._kept, peer=("10.0.0.1", 1)
        )

    def _kept(self, frame: memoryview) -> memoryview:
        self.kept_count += 1
        return memoryview(bytearray(frame))

    def send(self, request: object, version: int) -> Any:
        return self.dispatcher(self.connection, memoryview(bytearray(frame_of(request, version))))


BROKER: Any = SimpleNamespace(name="the broker", turns=Turns())


async def unanswered(broker: Any, request: object, context: Context) -> None:
    """As acks=0."""


def frame_of(request: object, version: int) -> bytes:
    key = message_schema_of(type(request)).key
    assert key is not None
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=CORRELATION_ID, client_id="a client"
    )
    return encode_request_header(header) + encode(request, version)


def answer_in(reply: Any, cls: type[Any], version: int) -> Any:
    data = b"".join(bytes(part) for part in reply)
    assert int.from_bytes(data[:LENGTH_BYTES], "big") == len(data) - LENGTH_BYTES
    key = message_schema_of(cls).key
    assert key is not None
    header, position = decode_response_header(data[LENGTH_BYTES:], key, version)
    assert header.correlation_id == CORRELATION_ID
    return decode(cls, data[LENGTH_BYTES:], version, position)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_handler_is_given_the_broker_the_request_and_who_asks() -> None:
    async def play() -> None:
        contexts: list[Context] = []

        async def handle(broker: Any, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
            assert broker is BROKER
            assert request == HEARTBEAT
            contexts.append(context)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

        asked = Asked(serve(HeartbeatRequest, handle))
        reply = asked.send(HEARTBEAT, 4)
        assert answer_in(reply, HeartbeatResponse, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        (context,) = contexts
        assert (context.version, context.client_id, context.session) == (4, "a client", asked.connection.session)
        assert bytes(context.frame) == frame_of(HEARTBEAT, 4)
        meter = asked.dispatcher.meters[12]
        assert meter.count == 1
        assert meter.total_ns == meter.local_ns > 0
        asked.offload.close()

    run(play)


def test_an_answer_that_waits_is_a_promise_and_counts_until_it_is_there() -> None:
    async def play() -> None:
        may_answer = asyncio.Event()

        async def handle(broker: Any, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
            await may_answer.wait()
            return HeartbeatResponse(error_code=0)

        asked = Asked(serve(HeartbeatRequest, handle))
        reply = asked.send(HEARTBEAT, 4)
        assert isinstance(reply, Awaitable)
        waiting = asyncio.ensure_future(reply)
        await asyncio.sleep(0)
        assert not waiting.done()
        may_answer.set()
        assert answer_in(await waiting, HeartbeatResponse, 4) == HeartbeatResponse(error_code=0)
        meter = asked.dispatcher.meters[12]
        assert meter.count == 1
        assert meter.total_ns > meter.local_ns
        asked.offload.close()

    run(play)


def test_what_nobody_needs_once_the_peer_is_gone_is_parked() -> None:
    async def play() -> None:
        async def handle(broker: Any, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
            await asyncio.sleep(0)
            return smallest_message(SyncGroupResponse, context.version)  # type: ignore[no-any-return]

        asked = Asked(serve(SyncGroupRequest, handle, ends_with_peer=True))
        reply = asked.send(smallest_message(SyncGroupRequest, 5), 5)
        assert type(reply) is Parked
        assert answer_in(await reply.reply, SyncGroupResponse, 5)
        asked.offload.close()

    run(play)


def test_a_large_request_is_copied_and_decoded_in_a_thread_and_too_many_elements_are_refused() -> None:
    async def play() -> None:
        async def handle(broker: Any, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
            assert len(request.groups) == 10_000
            return DescribeGroupsResponse(groups=[])

        asked = Asked(serve(DescribeGroupsRequest, handle, elements_max=10_000))
        names = ["group"] * 10_000
        assert len(names) > DECODED_AT_ONCE_BYTES_MAX // 6
        reply = await asked.send(DescribeGroupsRequest(groups=names), 5)
        assert answer_in(reply, DescribeGroupsResponse, 5).groups == []
        assert asked.kept_count == 1
        with pytest.raises(ProtocolError, match="more elements"):
            await asked.send(DescribeGroupsRequest(groups=[*names, "one more"]), 5)
        asked.offload.close()

    run(play)


def test_a_large_answer_of_whoever_reports_bytes_is_encoded_in_a_thread() -> None:
    async def play() -> None:
        listed = [ListedGroup(group_id=f"g{n}", protocol_type="consumer") for n in range(ENCODED_AT_ONCE_MAX + 1)]
        groups = listed[:1]

        async def handle(broker: Any, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
            return ListGroupsResponse(groups=groups)

        asked = Asked(serve(ListGroupsRequest, handle, reports_bytes=True))
        request = smallest_message(ListGroupsRequest, 2)
        assert answer_in(asked.send(request, 2), ListGroupsResponse, 2).groups == groups
        groups = listed
        assert answer_in(await asked.send(request, 2), ListGroupsResponse, 2).groups == listed
        asked.offload.close()

    run(play)


def test_a_request_that_has_no_answer_has_none() -> None:
    async def play() -> None:
        asked = Asked(serve(HeartbeatRequest, unanswered))
        assert asked.send(HEARTBEAT, 4) is None
        asked.offload.close()

    run(play)


@pytest.mark.parametrize(("request_", "version"), [(HEARTBEAT, 4), (DescribeGroupsRequest(groups=[]), 5)])
def test_what_is_not_served_costs_the_connection(request_: object, version: int) -> None:
    async def play() -> None:
        asked = Asked(serve(HeartbeatRequest, unanswered))
        frame = bytearray(frame_of(request_, version))
        if request_ is HEARTBEAT:
            frame[3] = 99  # a version of the future
        with pytest.raises(ProtocolError, match="is not served"):
            asked.dispatcher(asked.connection, memoryview(frame))
        asked.offload.close()

    run(play)


def test_an_api_versions_of_the_future_is_told_the_range_that_helps() -> None:
    async def play() -> None:
        asked = Asked(serve(ApiVersionsRequest, unanswered))
        frame = bytearray(frame_of(smallest_message(ApiVersionsRequest, 3), 3))
        frame[3] = 99
        reply = asked.dispatcher(asked.connection, memoryview(frame))
        answer = answer_in(reply, ApiVersionsResponse, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [one.api_key for one in answer.api_keys] == [18]
        asked.offload.close()

    run(play)
