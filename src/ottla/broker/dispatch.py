"""From the bytes of a request to the bytes of its answer: header, API table, decode, handle, encode.

A handler takes a decoded request and its context and returns the response message, or a coroutine where it may have to
wait. It answers errors in the message's own fields; `ProtocolError` closes the connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any

from ottla.broker.repeated_produce import PRODUCE_KEY, RepeatedProduce
from ottla.broker.replicas import Replicas
from ottla.errors import ErrorCode, ProtocolError
from ottla.net.connection import LENGTH, Connection, Parked, Part, Reply
from ottla.protocol.codec import decode, encode, encode_parts
from ottla.protocol.headers import API_VERSIONS_KEY, decode_request_header, encode_response_header
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.versions import API_TABLE, Api
from ottla.runtime.clock import Clock

logger = logging.getLogger(__name__)

# What only waits for others and changes nothing by its answer: JoinGroup, SyncGroup.
PARKED = frozenset({11, 14})


@dataclass(slots=True)
class ApiMeter:
    """What an API was asked and how long it took, in nanoseconds: deciding (local) and until the answer (total)."""

    count: int = 0
    local_ns: int = 0
    total_ns: int = 0

    def answered_at_once(self, spent_ns: int) -> None:
        self.count += 1
        self.local_ns += spent_ns
        self.total_ns += spent_ns


class Context:
    """Who asks, over which connection, in which version. Made for every request, so it is a plain class."""

    __slots__ = ("api", "client_id", "connection", "version")

    def __init__(self, connection: Connection, api: Api, version: int, client_id: str | None) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.client_id = client_id


Handle = Callable[[Any, Context], Any]


@dataclass(slots=True)
class Dispatcher:
    """The handlers of a broker by API key."""

    handlers: Mapping[int, Handle]
    clock: Clock
    replicas: Callable[[], Replicas]
    meters: dict[int, ApiMeter] = field(default_factory=dict)

    def __call__(self, connection: Connection, frame: memoryview) -> Reply | Awaitable[Reply] | Parked:
        started = time.perf_counter_ns()
        repeated: RepeatedProduce | None = connection.session
        if repeated is not None:
            answer = repeated.repeat(frame, self.clock.now_ms())
            if answer is not None:
                self.meters[PRODUCE_KEY].answered_at_once(time.perf_counter_ns() - started)
                return [answer]
        header, position = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        api = API_TABLE[key]
        handle = self.handlers.get(key)
        if handle is None or not api.versions.first <= version <= api.versions.last:
            if key == API_VERSIONS_KEY:
                return _framed([encode_unsupported_api_versions(header)])
            raise ProtocolError(f"{api.name} version {version} is not served")
        request: Any = decode(api.request, frame, version, position)
        context = Context(connection, api, version, header.client_id)
        meter = self.meters.get(key)
        if meter is None:
            meter = self.meters[key] = ApiMeter()
        response = handle(request, context)
        if key == PRODUCE_KEY and type(response) is ProduceResponse:
            self._learn(connection, frame, request, response, version)
        meter.count += 1
        now = time.perf_counter_ns()
        meter.local_ns += now - started
        if type(response) is CoroutineType:
            later = self._later(response, header, meter, started)
            return Parked(later) if key in PARKED else later
        meter.total_ns += now - started
        return _encoded(header, response)

    def _learn(
        self,
        connection: Connection,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse,
        version: int,
    ) -> None:
        """A request to one partition that went well is likely to come again, with other records."""
        topics = response.responses
        if len(topics) != 1 or len(topics[0].partition_responses) != 1 or topics[0].partition_responses[0].error_code:
            return
        if connection.session is None:
            connection.session = RepeatedProduce()
        index = topics[0].partition_responses[0].index
        partition = self.replicas().find_named_or_by_id(topics[0].name, topics[0].topic_id, index)
        connection.session.learn(frame, request, response, version, partition)

    @staticmethod
    async def _later(response: Awaitable[Any], header: RequestHeader, meter: ApiMeter, started: int) -> Reply:
        message = await response
        meter.total_ns += time.perf_counter_ns() - started
        return _encoded(header, message)


def _encoded(header: RequestHeader, response: Any) -> Reply:
    if response is None:  # acks=0
        return None
    return _framed(
        [
            encode_response_header(header.correlation_id, header.request_api_key, header.request_api_version),
            *encode_parts(response, header.request_api_version),
        ],
    )


def _framed(parts: list[Any]) -> list[Part]:
    """Parts of an answer behind their length; those in memory that stand together become one."""
    size = 0
    for part in parts:
        size += len(part) if type(part) is bytes else part.size_bytes
    if len(parts) == 2 and type(parts[1]) is bytes:
        return [LENGTH.pack(size) + parts[0] + parts[1]]
    parts[0] = LENGTH.pack(size) + parts[0]
    return parts


def encode_unsupported_api_versions(header: RequestHeader) -> bytes:
    """The answer to an ApiVersions of the future: version 0, an error, and the one range that helps (KIP-511)."""
    versions = API_TABLE[API_VERSIONS_KEY].versions
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_VERSIONS_KEY, min_version=versions.first, max_version=versions.last)],
    )
    return encode_response_header(header.correlation_id, API_VERSIONS_KEY, 0) + encode(response, 0)
