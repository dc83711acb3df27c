"""From the bytes of a request to the bytes of its answer: header, API table, decode, handle, encode.

A handler takes a decoded request and its context and returns the response message, or a coroutine where it may have to
wait. It answers errors in the message's own fields; `ProtocolError` closes the connection.

Decoding and encoding cannot be interrupted, so what takes long of it is done in a thread, one message at a time: the
interpreter lets the loop in between. A request with more elements than any client has use for is refused before they
are made: its memory is bounded by `ELEMENTS_MAX`, and by its own bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from types import CoroutineType
from typing import Any

from ottla.broker.repeated_produce import PRODUCE_KEY, RepeatedProduce
from ottla.broker.replicas import Replicas
from ottla.errors import ErrorCode, ProtocolError
from ottla.net.connection import LENGTH, Connection, Parked, Part, Reply
from ottla.protocol.codec import decode, decode_bounded, encode, encode_large, encode_parts
from ottla.protocol.headers import API_VERSIONS_KEY, decode_request_header, encode_response_header
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.schema import Field, schema_of
from ottla.protocol.versions import API_TABLE, Api
from ottla.protocol.wire import BYTES
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload

logger = logging.getLogger(__name__)

# What only waits for others and changes nothing by its answer: JoinGroup, SyncGroup.
PARKED = frozenset({11, 14})
# Whose answers tell what clients wrote about themselves, of whatever size: JoinGroup, DescribeGroups. All others that
# are made within a turn are small enough to be encoded in it.
TELLS_BYTES = frozenset({11, 15})
DECODED_AT_ONCE_BYTES_MAX = 16 * 1024  # a frame of so many bytes holds no more elements than a turn has time for
ENCODED_AT_ONCE_MAX = 2000  # elements of an answer
BYTES_LIKE_AN_ELEMENT = 1024  # of what clients wrote: as many are copied in the time that an element takes
# Elements of all arrays of a request together. Kafka has no such limit; ten times what a broker is advised to hold.
ELEMENTS_MAX = 100_000
# Fewer where a request is decided in one go, or, as Produce, decoded at once whatever its size.
FEWER_ELEMENTS_MAX = {
    PRODUCE_KEY: 20_000,
    11: 5000,  # JoinGroup: protocols
    13: 5000,  # LeaveGroup: members
    14: 5000,  # SyncGroup: members
    19: 50_000,  # CreateTopics
    20: 50_000,  # DeleteTopics
    33: 50_000,  # AlterConfigs
    37: 50_000,  # CreatePartitions
    44: 50_000,  # IncrementalAlterConfigs
    24: 20_000,  # AddPartitionsToTxn: partitions
    47: 20_000,  # OffsetDelete: topics and partitions
    68: 20_000,  # ConsumerGroupHeartbeat: topics and partitions
}


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
    offload: Offload
    meters: dict[int, ApiMeter] = field(default_factory=dict)
    # Several threads that compute would keep each other, and the loop, from the interpreter.
    _computing: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        context = Context(connection, api, version, header.client_id)
        meter = self.meters.get(key)
        if meter is None:
            meter = self.meters[key] = ApiMeter()
        if len(frame) <= DECODED_AT_ONCE_BYTES_MAX:
            request: Any = decode(api.request, frame, version, position)
        elif key == PRODUCE_KEY:
            request = decode_bounded(api.request, frame, version, position, FEWER_ELEMENTS_MAX[PRODUCE_KEY])
        else:
            meter.count += 1
            elements_max = FEWER_ELEMENTS_MAX.get(key, ELEMENTS_MAX)
            decoding = partial(decode_bounded, api.request, connection.kept(frame), version, position, elements_max)
            later = self._later(self._handled(handle, decoding, context), header, meter, started)
            return Parked(later) if key in PARKED else later
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
        if key in TELLS_BYTES and is_large(response):
            return self._encoded_in_thread(header, response)
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

    async def _handled(self, handle: Handle, decoding: Callable[[], Any], context: Context) -> Any:
        """Decodes a large request in a thread and handles it."""
        async with self._computing:
            request = await self.offload.in_thread(decoding)
        response = handle(request, context)
        return await response if type(response) is CoroutineType else response

    async def _later(self, response: Awaitable[Any], header: RequestHeader, meter: ApiMeter, started: int) -> Reply:
        message = await response
        meter.total_ns += time.perf_counter_ns() - started
        if message is None or not is_large(message):
            return _encoded(header, message)
        return await self._encoded_in_thread(header, message)

    async def _encoded_in_thread(self, header: RequestHeader, message: Any) -> Reply:
        async with self._computing:
            return await self.offload.in_thread(partial(_encoded_large, header, message))


def is_large(message: Any) -> bool:
    """Whether a message has more elements, or more bytes of clients in them, than are encoded at once."""
    return _room_after(message, ENCODED_AT_ONCE_MAX) < 0


class _Kind(Enum):
    """What in a field may be large."""

    ARRAY = auto()
    ARRAY_OF_STRUCTS = auto()  # that may be large in turn
    STRUCT = auto()
    BYTES = auto()


def _room_after(message: Any, room: int) -> int:
    for name, kind in _large_fields(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        if kind is _Kind.STRUCT:
            room = _room_after(value, room)
        elif kind is _Kind.BYTES:
            room -= len(value) // BYTES_LIKE_AN_ELEMENT
        else:
            room -= len(value)
            if room >= 0 and kind is _Kind.ARRAY_OF_STRUCTS:
                for element in value:
                    room = _room_after(element, room)
                    if room < 0:
                        return room
        if room < 0:
            return room
    return room


_known_large_fields: dict[type, tuple[tuple[str, _Kind], ...]] = {}


def _large_fields(cls: type) -> tuple[tuple[str, _Kind], ...]:
    """The names of the fields of a message that may be large."""
    known = _known_large_fields.get(cls)
    if known is None:
        kinds = ((one.name, _kind_of(one)) for one in schema_of(cls).fields)
        known = tuple((name, kind) for name, kind in kinds if kind is not None)
        _known_large_fields[cls] = known
    return known


def _kind_of(field: Field) -> _Kind | None:
    may_be_large = field.struct is not None and bool(_large_fields(field.struct))
    if field.is_array:
        return _Kind.ARRAY_OF_STRUCTS if may_be_large else _Kind.ARRAY
    if field.wire_type is BYTES:
        return _Kind.BYTES
    return _Kind.STRUCT if may_be_large else None


def _encoded_large(header: RequestHeader, response: Any) -> list[Part]:
    if isinstance(response, FetchResponse):  # most of which stays in files
        return _encoded(header, response) or []
    version = header.request_api_version
    head = encode_response_header(header.correlation_id, header.request_api_key, version)
    body = encode_large(response, version)
    return [LENGTH.pack(len(head) + len(body)) + head, body]


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
