"""A network of scripted brokers: real bytes through the real client, without sockets and without waiting."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from ottla.client.metadata import ClientOptions
from ottla.client.retrying import Pauses
from ottla.net.client import Address, ConnectionOptions
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import framed
from ottla.protocol.headers import decode_request_header, encode_response_header
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.versions import API_TABLE
from ottla.testing.frame_parser import FrameParser

TOPIC_ID = UUID(int=7)

# A script takes a request and its version; it returns the answer, bytes as they are, or None for none at all.
Script = Callable[[Any, int], object]


class Pipe:
    """A transport whose other end is a scripted broker."""

    def __init__(self, broker: ScriptedBroker, protocol: asyncio.BufferedProtocol) -> None:
        self.broker = broker
        self.protocol = protocol
        self.frames = FrameParser()
        self.is_closed = False
        self._arriving: deque[bytes] = deque()

    def write(self, data: bytes | memoryview) -> None:
        for each in self.frames.feed(data):
            self.broker.take(self, each)

    def deliver(self, data: bytes) -> None:
        """Hands bytes to the client in pieces of the broker's choice, later and in order, as a network would."""
        self._arriving.append(data)
        asyncio.get_running_loop().call_later(self.broker.delay_s, self._deliver)

    def _deliver(self) -> None:
        data = self._arriving.popleft()  # not the one that set this timer: those of one moment go off in any order
        at = 0
        while at < len(data) and not self.is_closed:
            # Like a loop's transport, this one holds its view until the protocol has seen the bytes.
            with memoryview(self.protocol.get_buffer(-1)) as buffer:
                piece = data[at : at + min(len(buffer), self.broker.piece_bytes)]
                buffer[: len(piece)] = piece
                self.protocol.buffer_updated(len(piece))
            at += len(piece)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


@dataclass(eq=False)
class ScriptedBroker:
    """Answers by script; remembers what it was asked."""

    scripts: dict[type, Script] = field(default_factory=dict)
    piece_bytes: int = 1 << 30
    delay_s: float = 0.0
    is_holding: bool = False  # answers are kept until `release`, those about metadata aside
    held: list[tuple[Pipe, bytes]] = field(default_factory=list)
    is_down: bool = False
    hang_ups: int = 0  # so many of the next connections end at their first request
    asked: list[tuple[Any, int]] = field(default_factory=list)
    pipes: list[Pipe] = field(default_factory=list)

    def requests(self, kind: type) -> list[Any]:
        return [request for request, _ in self.asked if isinstance(request, kind)]

    def release(self) -> None:
        held, self.held, self.is_holding = self.held, [], False
        for pipe, data in held:
            pipe.deliver(data)

    def release_one(self) -> None:
        """Delivers the answer that has been kept longest; later ones are kept as before."""
        pipe, data = self.held.pop(0)
        pipe.deliver(data)

    def take(self, pipe: Pipe, data: bytes) -> None:
        header, position = decode_request_header(data)
        api = API_TABLE[header.request_api_key]
        version = header.request_api_version
        request: Any = decode(api.request, data, version, position)
        self.asked.append((request, version))
        if self.hang_ups and isinstance(request, ApiVersionsRequest):
            self.hang_ups -= 1
            pipe.close()
            return
        answer = self.scripts.get(type(request), _DEFAULTS.get(type(request), _no_script))(request, version)
        if answer is None:
            return
        body = answer if isinstance(answer, bytes) else encode(answer, version)
        data = framed(encode_response_header(header.correlation_id, api.key, version), body)
        if self.is_holding and not isinstance(request, MetadataRequest):
            self.held.append((pipe, data))
        else:
            pipe.deliver(data)


def _no_script(request: object, version: int) -> object:
    raise AssertionError(f"no script for {request}")


def all_versions(request: object, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised.first, max_version=api.advertised.last)
            for api in API_TABLE.values()
            if api.advertised is not None
        ]
    )


_DEFAULTS: dict[type, Script] = {ApiVersionsRequest: all_versions}


class Network:
    """Addresses and who stands there. `leaders` says who leads the partitions of the one topic."""

    def __init__(self) -> None:
        self.brokers: dict[int, ScriptedBroker] = {}
        self.leaders: list[int] = [1]
        self.topic = "orders"
        self.connections_made = 0

    def add(self, node_id: int, **scripts: Script) -> ScriptedBroker:
        broker = self.brokers[node_id] = ScriptedBroker()
        broker.scripts[MetadataRequest] = self.metadata
        return broker

    @staticmethod
    def address(node_id: int) -> Address:
        return Address("broker", 9000 + node_id)

    async def connector(self, make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address) -> Pipe:
        await asyncio.sleep(0)
        broker = self.brokers.get(address.port - 9000)
        if broker is None or broker.is_down:
            raise ConnectionRefusedError(111, "Connection refused")
        self.connections_made += 1
        pipe = Pipe(broker, make_protocol())
        broker.pipes.append(pipe)
        return pipe

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        wanted = [self.topic] if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="broker", port=9000 + node_id) for node_id in self.brokers
            ],
            cluster_id="cluster",
            controller_id=min(self.brokers),
            topics=[self._topic(name) for name in wanted if name is not None],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name != self.topic:
            return MetadataResponseTopic(error_code=3, name=name, partitions=[])
        return MetadataResponseTopic(
            name=name,
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(
                    partition_index=number, leader_id=leader, leader_epoch=0, replica_nodes=[leader], isr_nodes=[leader]
                )
                for number, leader in enumerate(self.leaders)
            ],
        )


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def options() -> ClientOptions:
    """Patient enough to try many times, quick enough for a test."""
    return ClientOptions(
        ConnectionOptions(connect_timeout_s=2, request_timeout_s=2),
        timeout_s=2,
        pauses=Pauses(first_s=0.001, max_s=0.002, chance=random.Random(1)),
    )
