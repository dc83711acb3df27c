"""From the bytes of a request to the bytes of its answer: header, API table, decode, handle, encode.

A handler takes a decoded request and its context and returns the response message. It is a coroutine, and its first
step is taken here: where nothing has to be waited for, the answer is there without a task. Errors are answered in the
message's own fields; `ProtocolError` closes the connection.

Decoding and encoding cannot be interrupted, so what takes long of it is done in a thread, one message at a time: the
interpreter lets the loop in between. A request with more elements than any client has use for is refused before they
are made: its memory is bounded by `elements_max` of its API, and by its own bytes. What was large is let go of in
pieces as well (`large_messages`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.acl_store import AclStore
from ottla.broker.api_rights import RIGHTS
from ottla.broker.client_quotas import Charge, ClientQuotas, RequestQuota, free_of_charge
from ottla.broker.known_rights import KNOWN_RIGHTS
from ottla.broker.large_messages import is_large, structs_of
from ottla.broker.repeated import LateAnswer
from ottla.broker.rights import PASSED, Asked, Outcome, Rights
from ottla.broker.serving import ServedApi
from ottla.broker.session import Session
from ottla.broker.slow_requests import SLOW_NS, WAITS_ARE_ASKED_FOR, SlowRequests
from ottla.errors import ErrorCode, ProtocolError, TooManyElementsError
from ottla.net.connection import Connection, Handled, Parked, Reply
from ottla.net.outbox import Part
from ottla.protocol.codec import decode, decode_bounded, encode, encode_large, encode_parts
from ottla.protocol.frames import frame_length
from ottla.protocol.headers import API_VERSIONS_KEY, decode_request_header, encode_response_header
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.versions import API_TABLE
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload
from ottla.runtime.stepping import Timed, resumed
from ottla.runtime.turns import Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

DECODED_AT_ONCE_BYTES_MAX = 16 * 1024  # a frame of this size holds no more elements than a turn has time for
DECODED_AT_ONCE_ELEMENTS_MAX = 2000  # of a larger frame, of which most are records
PRODUCE_KEY = 0
NO_FRAME = memoryview(b"")
API_KEY_AT = 1  # its lower byte; there are fewer than 256
# Between brokers: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition,
# AllocateProducerIds. A follower's Fetch says so itself.
EXEMPT_FROM_QUOTAS = frozenset({4, 5, 6, 7, 27, 56, 67})


@dataclass(slots=True)
class ApiMeter:
    """What an API was asked and how long it took, in nanoseconds: deciding (local) and until the answer (total)."""

    count: int = 0
    local_ns: int = 0
    total_ns: int = 0


class Context:
    """Who asks, over which connection, in which version. Made for every request, so it is a plain class."""

    __slots__ = ("client_id", "connection", "frame", "quota", "rights", "session", "version")

    def __init__(self, connection: Connection, frame: memoryview, version: int, client_id: str | None) -> None:
        self.connection = connection
        self.session: Session = connection.session
        self.frame = frame  # the bytes of the request, until others have their turn
        self.version = version
        self.client_id = client_id
        self.rights: Rights | None = None  # of the peer; None: everybody may do everything
        self.quota: RequestQuota | None = None  # None: nothing limits the peer

    def forget_frame(self) -> None:
        """Others have their turn from here on, and their bytes its place: nobody learns from it any more."""
        self.frame = NO_FRAME

    def charge(self, *, strict: bool) -> Charge:
        """What changes of the cluster are charged with; `strict`: whoever has changed too much is refused."""
        return free_of_charge if self.quota is None else self.quota.charge(strict=strict)


@dataclass(slots=True)
class Dispatcher:
    """The way from requests to the handlers of a broker, and how long each API takes."""

    handlers: Mapping[int, ServedApi]
    broker: Broker
    clock: Clock
    offload: Offload
    meters: dict[int, ApiMeter] = field(default_factory=dict)
    # Several threads that compute would keep each other, and the loop, from the interpreter.
    _computing: asyncio.Lock = field(default_factory=asyncio.Lock)
    acls: AclStore | None = None  # None: everybody may do everything
    quotas: ClientQuotas | None = None  # None: nobody is limited
    _slow: SlowRequests = field(init=False)

    def __post_init__(self) -> None:
        self._slow = SlowRequests(self.clock)
        missing = [served.api.name for key, served in self.handlers.items() if key not in RIGHTS]
        assert not missing, f"who may use {', '.join(missing)}? See broker/api_rights.py"

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        started = time.perf_counter_ns()
        session: Session = connection.session
        remembered = session.repeated
        if remembered and len(frame) > API_KEY_AT:
            repeated = remembered.get(frame[API_KEY_AT])
            reply = None if repeated is None else repeated.repeat(connection, frame)
            if reply is not None:
                key = frame[API_KEY_AT]
                spent_ns = self.taken(key, started)
                if isinstance(reply, LateAnswer):
                    reply.begun(self, started)
                    return reply
                self.meters[key].total_ns += spent_ns
                if spent_ns > SLOW_NS:
                    self._slow.note(API_TABLE[key].name, connection, None, spent_ns)
                return reply
        header, position = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        served = self.handlers.get(key)
        if served is None or not served.api.versions.first <= version <= served.api.versions.last:
            return _unsupported(header)
        api = served.api
        context = Context(connection, frame, version, header.client_id)
        if self.quotas is not None and session.login is None and key not in EXEMPT_FROM_QUOTAS:
            context.quota = self._quota_of(session, header.client_id, len(frame))
        if key not in self.meters:
            self.meters[key] = ApiMeter()
        meter = self.meters[key]
        request: Any = None
        if len(frame) <= DECODED_AT_ONCE_BYTES_MAX:
            # Of bytes it takes less than of a view, also with the copy; but records stay where they are.
            buffer = frame if served.is_decoded_at_once else bytes(frame)
            request = decode(api.request, buffer, version, position)
        elif served.is_decoded_at_once:
            with suppress(TooManyElementsError):  # for now: most of it are no records
                request = decode_bounded(api.request, frame, version, position, DECODED_AT_ONCE_ELEMENTS_MAX)
        if request is None:
            meter.count += 1
            kept = connection.kept(frame)
            context.forget_frame()
            decoding = partial(decode_bounded, api.request, kept, version, position, served.elements_max)
            later = self._later(self._handled(served, decoding, context), header, meter, started, context)
            return Parked(later) if served.ends_with_peer else later
        if self.acls is None:
            handling = served.handle(self.broker, request, context)
        else:
            rights = session.rights.get(key)
            if (
                rights is not None
                and rights.is_known is not None
                and rights.is_known(rights, request, self.broker.image)
            ):
                context.rights = rights
                handling = served.handle(self.broker, request, context)
            else:
                handling = self._authorized(self.acls, served, request, context)
        meter.count += 1
        try:
            awaited = handling.send(None)
        except StopIteration as done:
            response = done.value
        else:
            spent_ns = time.perf_counter_ns() - started
            meter.local_ns += spent_ns
            if spent_ns > SLOW_NS and key in WAITS_ARE_ASKED_FOR:
                self._slow.note(api.name, connection, header.client_id, spent_ns)
            rest = resumed(handling, awaited)
            later = self._later(rest, header, meter, started, context, spent_ns)
            return Parked(later) if served.ends_with_peer else later
        spent_ns = time.perf_counter_ns() - started
        if context.quota is not None:
            _throttle(context, context.quota, key, response, spent_ns)
        meter.local_ns += spent_ns
        meter.total_ns += spent_ns
        if spent_ns > SLOW_NS:
            self._slow.note(api.name, connection, header.client_id, spent_ns)
        if served.reports_bytes and is_large(response):
            return self._encoded_in_thread(header, [response])
        return _encoded(header, response)

    def taken(self, key: int, started_ns: int) -> int:
        """A repeated request was handled, or waits; how long it took until now."""
        meter = self.meters[key]
        spent_ns = time.perf_counter_ns() - started_ns
        meter.count += 1
        meter.local_ns += spent_ns
        return spent_ns

    def answered_late(self, key: int, connection: Connection, total_ns: int) -> None:
        """A repeated request has its answer now."""
        self.meters[key].total_ns += total_ns
        if total_ns > SLOW_NS and key not in WAITS_ARE_ASKED_FOR:
            self._slow.note(API_TABLE[key].name, connection, None, total_ns)

    def _quota_of(self, session: Session, client_id: str | None, request_bytes: int = 0) -> RequestQuota | None:
        limits = None if self.quotas is None else self.quotas.of(session.principal, client_id)
        return None if limits is None else RequestQuota(limits, request_bytes)

    async def _handled(self, served: ServedApi, decoding: Callable[[], Any], context: Context) -> Any:
        """Decodes a large request in a thread and handles it."""
        async with self._computing:
            request, structs, spent_ns = await self.offload.computed(partial(_decoded_large, decoding))
        try:
            if context.quota is not None:
                context.quota.thread_ns += spent_ns
            if self.acls is not None:
                return await self._authorized(self.acls, served, request, context)
            return await served.handle(self.broker, request, context)
        finally:
            self.broker.turns.let_go(structs)

    def _authorized(
        self, acls: AclStore, served: ServedApi, request: Any, context: Context
    ) -> Coroutine[Any, Any, Any]:
        """Handles what the peer may ask for, as the table of rights says."""
        session, api = context.session, served.api
        rights = session.rights.get(api.key)
        if rights is None:
            rights = Rights(acls, session.principal, session.client_host, api, KNOWN_RIGHTS.get(api.key))
            session.rights[api.key] = rights
        context.rights = rights
        asked = Asked(request, context.version, rights, self.broker.image, self._topics_are_created)
        judged = RIGHTS[api.key](asked)
        if not isinstance(judged, Outcome):
            if served.keep is not None:
                served.keep(request, context)  # now: between two steps a request is not whole
            try:
                next(judged)  # few entries are judged without a step
            except StopIteration as done:
                judged = done.value
        if judged is PASSED:
            return served.handle(self.broker, request, context)
        return self._as_judged(judged, served, request, context)

    def _topics_are_created(self) -> bool:
        return self.broker.config.auto_create_topics_enable

    async def _as_judged(
        self, judged: Outcome | Steps[Outcome], served: ServedApi, request: Any, context: Context
    ) -> Any:
        """Refuses, or handles a part of what was asked for."""
        if isinstance(judged, Outcome):
            outcome = judged
        else:
            context.forget_frame()
            outcome = await self.broker.turns.finish(judged)
        if outcome.refusal is not None:
            if served.api.key in EXEMPT_FROM_QUOTAS:  # for brokers, and this is none
                context.quota = self._quota_of(context.session, context.client_id)
            return outcome.refusal
        if outcome.finish is None:
            return await served.handle(self.broker, request, context)
        context.forget_frame()  # it is not what is handled
        response = await served.handle(self.broker, request, context)
        await self.broker.turns.finish(outcome.finish(response))
        return response

    async def _later(
        self,
        response: Coroutine[Any, Any, Any],
        header: RequestHeader,
        meter: ApiMeter,
        started: int,
        context: Context,
        spent_ns: int = 0,
    ) -> Reply:
        timed = None if context.quota is None else Timed(response)
        message = await (response if timed is None else timed)
        if context.quota is not None:
            if timed is not None:
                spent_ns += timed.spent_ns
            _throttle(context, context.quota, header.request_api_key, message, spent_ns)
        total_ns = time.perf_counter_ns() - started
        meter.total_ns += total_ns
        key = header.request_api_key
        if total_ns > SLOW_NS and key not in WAITS_ARE_ASKED_FOR:
            self._slow.note(API_TABLE[key].name, context.connection, header.client_id, total_ns)
        if message is None or not is_large(message):
            return _encoded(header, message)
        handed_over = [message]
        del message
        # To its end, also where the peer is gone by now: what was made is to be let go of.
        return await self.broker.carried_out(self._encoded_in_thread(header, handed_over))

    async def _encoded_in_thread(self, header: RequestHeader, handed_over: list[Any]) -> Reply:
        """Encodes the response in a list of which it is taken out: whoever else held it would free it in one go."""
        async with self._computing:
            parts, structs = await self.offload.computed(partial(_encoded_large, header, handed_over))
        self.broker.turns.let_go(structs)
        return parts


def _decoded_large(decoding: Callable[[], Any]) -> tuple[Any, list[Any], int]:
    """A request, its structs, and the processor's time that it took, of this thread alone."""
    started = time.thread_time_ns()
    request = decoding()
    return request, structs_of(request), time.thread_time_ns() - started


def _throttle(context: Context, quota: RequestQuota, key: int, response: Any, spent_ns: int) -> None:
    """Counts what a request has used; where that was too much, the response says so and the connection is muted."""
    if key == PRODUCE_KEY:
        quota.produced()
    if response is not None:  # the time for records without a response is not counted, as in Kafka
        quota.spent(spent_ns)
    if quota.throttle_ms > 0:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = quota.throttle_ms
        context.connection.mute(quota.throttle_ms / 1000)


def _encoded_large(header: RequestHeader, handed_over: list[Any]) -> tuple[list[Part], list[Any]]:
    """The parts of a response, which is taken out of its list, and the structs of it."""
    response = handed_over.pop()
    structs = structs_of(response)
    if isinstance(response, FetchResponse):  # most of which stays in files
        return _encoded(header, response) or [], structs
    version = header.request_api_version
    head = encode_response_header(header.correlation_id, header.request_api_key, version)
    body = encode_large(response, version)
    return [frame_length(len(head) + len(body)) + head, body], structs


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
        return [frame_length(size) + parts[0] + parts[1]]
    parts[0] = frame_length(size) + parts[0]
    return parts


def _unsupported(header: RequestHeader) -> list[Part]:
    """Costs the connection; but an ApiVersions of the future is answered, with the one range that helps (KIP-511)."""
    api = API_TABLE[header.request_api_key]
    if api.key != API_VERSIONS_KEY:
        raise ProtocolError(f"{api.name} version {header.request_api_version} is not served")
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last)],
    )
    return _framed([encode_response_header(header.correlation_id, api.key, 0), encode(response, 0)])
