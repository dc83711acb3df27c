"""One connection to a broker, seen from the client: requests out, answers matched to them, in order.

A broker answers the requests of a connection in the order in which it got them, so what waits is a queue and many
requests may be in flight. Bytes of an answer are received straight into the buffer that is handed out, and decoded
there: records of a Fetch are views of it.

The state is the queue, the frame that is arriving and the versions that the broker announced. Limits: a frame is at
most `frame_bytes_max`, and memory grows with the bytes that came, not with those a peer announced. Time is the loop's
and the network is reached through a `Connector`, so that a simulation can replace both.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import ottla
from ottla.errors import ApiError, ErrorCode, OttlaError, ProtocolError
from ottla.net.expected_answers import AnswerReceiver, Awaited, ExpectedAnswer
from ottla.net.login import Credentials, LoginRefused, SecureConnector, log_in
from ottla.net.spare_frames import SpareFrames
from ottla.net.tokens import NoTokenError
from ottla.protocol.codec import decode, encode_pieces
from ottla.protocol.frames import FRAME_BYTES_MAX, LENGTH_BYTES, frame_bytes, frame_length
from ottla.protocol.headers import API_VERSIONS_KEY, decode_response_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import Versions, message_schema_of
from ottla.protocol.versions import API_TABLE, Api
from ottla.security.sasl.failure import LoginFailed

Answer = TypeVar("Answer")
Result = TypeVar("Result")

SMALL_BUFFER_BYTES: Final = 64 * 1024
FRAME_START_BYTES: Final = 1024 * 1024  # reserved for a large frame before more of it has arrived
CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
API_VERSIONS_VERSION: Final = 3  # the first with the client's name and version; every broker since 2.4 has it

CORRELATION_ID_BYTES = 4  # with which every response begins
_ERROR_CODE = struct.Struct(">h")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionFailedError(OttlaError):
    """A broker could not be talked to. What was in flight may or may not have been done."""

    def __init__(self, address: Address, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class CannotConnectError(ConnectionFailedError):
    """No connection was made: nothing was asked of the broker."""


class ConnectionLostError(ConnectionFailedError):
    """The connection ended while answers were due."""


class ClosedUnansweredError(ConnectionLostError):
    """The connection ended before the broker sent its versions.

    A listener that speaks something else ends so, and a broker that goes down at this moment: another try tells them
    apart.
    """


class RequestTimedOutError(ConnectionFailedError):
    """The broker did not answer in time. Its connection is closed: a late answer would be taken for the next one."""


class NotABrokerError(ConnectionFailedError):
    """Something answers there, but not in the words of Kafka's protocol."""


class LoginRefusedError(ConnectionFailedError):
    """The broker does not let us in, or is not the one that was meant. `code` is the reason, where it gave one."""

    def __init__(self, address: Address, message: str, code: ErrorCode) -> None:
        super().__init__(address, message)
        self.code = code


class TlsRefusedError(LoginRefusedError):
    """No TLS with who is there, and why: one of the two does not accept the other's certificate, or speaks no TLS."""

    def __init__(self, address: Address, error: ssl.SSLError) -> None:
        reason = _tls_reason(error)
        code = getattr(error, "verify_code", 0)
        hint = next((hint for codes, hint in _TLS_HINTS_OF_CODES if code in codes), "")
        hint = hint or next((hint for part, hint in _TLS_HINTS if part in reason), "")
        message = f"the TLS handshake failed: {reason}" + (f"; {hint}" if hint else "")
        super().__init__(address, message, ErrorCode.SASL_AUTHENTICATION_FAILED)


def _tls_reason(error: ssl.SSLError) -> str:
    """What OpenSSL says, in lower case; of a certificate that it does not accept, why."""
    name = getattr(error, "reason", None) or "no reason is given"
    return getattr(error, "verify_message", None) or name.lower().replace("_", " ")


# What to do about it, by OpenSSL's result of the verification, or by a part of the reason.
_TLS_HINTS_OF_CODES = (
    ((2, 18, 19, 20, 21), "set ssl.truststore.location to the certificate of the authority that signed the broker's"),
    ((9, 10), "the broker's certificate has to be renewed, or a clock is wrong"),
    ((62, 64), "connect to a name that is in the broker's certificate, or have it made for this one"),
)
_TLS_HINTS = (
    ("wrong version number", "the listener speaks no TLS; look at security.protocol"),
    ("record layer failure", "the listener speaks no TLS; look at security.protocol"),
    ("certificate required", "the listener asks for a certificate of the client; set ssl.keystore.location"),
    ("unknown ca", "the broker does not trust the certificate of ssl.keystore.location"),
    ("certificate expired", "the certificate of ssl.keystore.location has to be renewed"),
)


class UnsupportedByBrokerError(ApiError):
    """The broker does not have the API, or none of the versions that we can speak."""

    def __init__(self, address: Address, api: Api, needed: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"the broker {address} does not have {api.name} {needed}")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    client_id: str = "ottla"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    frame_bytes_max: int = FRAME_BYTES_MAX
    frame_start_bytes: int = FRAME_START_BYTES


class ClientTransport(Protocol):
    """What is needed of an `asyncio.Transport`."""

    def write(self, data: bytes | memoryview) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Connector(Protocol):
    """Connects a protocol to an address, as `loop.create_connection` does."""

    def __call__(
        self, make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address
    ) -> Awaitable[ClientTransport]: ...


async def connect_tcp(make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address) -> ClientTransport:
    transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, address.host, address.port)
    return transport


class _Deadline(NamedTuple):
    """When the time for an answer is over."""

    at: float
    timeout_s: float


def _deadline(timeout_s: float) -> _Deadline:
    return _Deadline(asyncio.get_running_loop().time() + timeout_s, timeout_s)


async def connect(
    address: Address, options: ConnectionOptions | None = None, connector: Connector = connect_tcp
) -> BrokerConnection:
    """A connection on which the versions are agreed on, ready for requests."""
    connection = BrokerConnection(address, options or ConnectionOptions())
    timeout_s = connection.options.connect_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            connection.attach(await connector(lambda: connection, address))
    except TimeoutError as error:
        raise CannotConnectError(address, f"no connection within {timeout_s:g} s") from error
    except ssl.SSLError as error:
        raise TlsRefusedError(address, error) from error
    except OSError as error:
        raise CannotConnectError(address, f"no connection: {_reason(error)}") from error
    try:
        await connection.negotiate()
        if isinstance(connector, SecureConnector) and connector.credentials is not None:
            await connection.log_in(connector.credentials)
    except BaseException:
        connection.abort()
        raise
    return connection


def _reason(error: OSError) -> str:
    """What the system says, without the address: every message has that already."""
    if isinstance(error, ssl.SSLError):  # its number is none of the system's
        return _tls_reason(error)
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    # asyncio says nothing at all about a peer that closes in the handshake.
    return str(error.strerror or error).lower() or "closed in the TLS handshake; does this listener speak TLS?"


class BrokerConnection(asyncio.BufferedProtocol):
    """Made by `connect`. Once it is closed, for whatever reason, it stays closed."""

    def __init__(self, address: Address, options: ConnectionOptions) -> None:
        self.address = address
        self.options = options
        self.versions: Mapping[int, Versions] = {}
        self.features: Mapping[str, int] = {}
        self._transport: ClientTransport | None = None
        self._correlation_id = 0
        self._expected: deque[ExpectedAnswer] = deque()
        self._small = bytearray(SMALL_BUFFER_BYTES)
        self._small_filled = 0
        self._frame: bytearray | None = None  # a frame too large for the small buffer, without its length
        self._frame_bytes = 0
        self._filled = 0
        self._spares = SpareFrames()
        self._failure: ConnectionFailedError | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._ended = asyncio.Event()
        self._credentials: Credentials | None = None
        self._login_ends_at: float | None = None  # when to log in again, where the broker limits that
        self._logging_in = asyncio.Lock()

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    # -- asking --------------------------------------------------------------------------------------------------------

    def version_of(self, api: Api, version_max: int | None = None) -> int:
        """The highest version that both sides have, not above `version_max`."""
        if api.key not in self.versions:
            raise UnsupportedByBrokerError(self.address, api, "at all")
        theirs, ours = self.versions[api.key], api.versions
        if version_max is not None:
            ours = Versions(ours.first, min(ours.last, version_max))
        version = min(ours.last, theirs.last)
        if version not in ours or version not in theirs:
            raise UnsupportedByBrokerError(self.address, api, f"in a version that fits: {theirs} there, {ours} here")
        return version

    def version_for(self, message: object) -> int:
        """The highest version of a request that both sides have."""
        return self.version_of(_api_of(message))

    async def request(
        self,
        message: object,
        answer: type[Answer],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Sends a request and waits for its answer. Others may be sent meanwhile."""
        return await (await self.post(message, answer, version_max=version_max, timeout_s=timeout_s))

    async def post(
        self,
        message: object,
        answer: type[Answer],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, Answer]:
        """Sends a request and returns what waits for its answer: who posts one after the other keeps their order."""
        deadline = _deadline(self.options.request_timeout_s if timeout_s is None else timeout_s)
        if self._login_ends_at is not None:
            await self._within(deadline, _api_of(message).key, self._stay_logged_in(self._login_ends_at))
        return await self._post(message, answer, deadline, version_max)

    async def _post(
        self, message: object, answer: type[Answer], deadline: _Deadline, version_max: int | None = None
    ) -> Coroutine[Any, Any, Answer]:
        api = _api_of(message)
        assert answer is api.response, f"{api.name} is answered by {api.response.__name__}"
        version = self.version_of(api, version_max)
        awaited = await self._within(deadline, api.key, self._write(message, api.key, version))
        assert awaited is not None

        async def answered() -> Answer:
            buffer, position = await self._within(deadline, api.key, awaited.arrived)
            try:
                return decode(answer, buffer, version, position)
            except ProtocolError as error:
                raise self._fail(
                    NotABrokerError(self.address, f"the answer to {api.name} cannot be read: {error}")
                ) from error

        return answered()

    async def send(self, message: object, *, version_max: int | None = None) -> None:
        """Sends a request that is not answered, such as Produce with acks=0."""
        if self._login_ends_at is not None:
            await self._stay_logged_in(self._login_ends_at)
        api = _api_of(message)
        await self._write(message, api.key, self.version_of(api, version_max), is_answered=False)

    async def _exchange(self, message: object, api_key: int, version: int, timeout_s: float) -> tuple[memoryview, int]:
        deadline = _deadline(timeout_s)
        awaited = await self._within(deadline, api_key, self._write(message, api_key, version))
        assert awaited is not None
        return await self._within(deadline, api_key, awaited.arrived)

    def exchange(
        self, make_frame: Callable[[int], bytes], api_key: int, version: int, receiver: AnswerReceiver
    ) -> None:
        """Sends a frame that is made with its correlation id, and has the answer handed over where it arrives.

        For who sends one request after the other without end: it takes no task and no timer. How long to wait is for
        the receiver to say, by `timed_out`.
        """
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        correlation_id = self._take_correlation_id()
        frame = make_frame(correlation_id)
        self._expected.append(ExpectedAnswer(correlation_id, api_key, version, receiver))
        self._transport.write(frame_length(len(frame)) + frame)

    def frame_of(self, message: object, version: int) -> bytes:
        """The bytes of a request without their length, as they would be sent, with a correlation id of 0."""
        key = _api_of(message).key
        return b"".join(self._pieces_of(message, key, version, correlation_id=0))

    def timed_out(self, api_key: int, timeout_s: float) -> ConnectionFailedError:
        """An answer did not come within its time."""
        name = API_TABLE[api_key].name
        return self._fail(RequestTimedOutError(self.address, f"no answer to {name} within {timeout_s:.3g} s"))

    @property
    def is_login_due(self) -> bool:
        """Whether the next request has to wait until we have logged in again."""
        return self._login_ends_at is not None and asyncio.get_running_loop().time() >= self._login_ends_at

    async def _within(self, deadline: _Deadline, api_key: int, work: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout_at(deadline.at):
                return await work
        except TimeoutError as error:
            raise self.timed_out(api_key, deadline.timeout_s) from error

    async def _write(self, message: object, api_key: int, version: int, *, is_answered: bool = True) -> Awaited | None:
        while not self._may_write.is_set():
            await self._may_write.wait()
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        correlation_id = self._take_correlation_id()
        pieces = self._pieces_of(message, api_key, version, correlation_id)
        pieces[0] = frame_length(sum(map(len, pieces))) + pieces[0]
        awaited = None
        if is_answered:
            awaited = Awaited()
            self._expected.append(ExpectedAnswer(correlation_id, api_key, version, awaited))
        for piece in pieces:
            self._transport.write(piece)
        return awaited

    def _take_correlation_id(self) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        return correlation_id

    def _pieces_of(self, message: object, api_key: int, version: int, correlation_id: int) -> list[bytes | memoryview]:
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.options.client_id,
        )
        return encode_pieces(encode_request_header(header), message, version)

    async def negotiate(self) -> None:
        """Learns what the broker speaks: the first thing that is asked on a connection."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=ottla.__version__)
        version = API_VERSIONS_VERSION
        timeout_s = self.options.connect_timeout_s
        try:
            buffer, position = await self._exchange(request, API_VERSIONS_KEY, version, timeout_s)
            # A broker that does not have the version answers in version 0, whatever was asked.
            if _error_code_at(buffer, position) is ErrorCode.UNSUPPORTED_VERSION:
                version = 0
                buffer, position = await self._exchange(request, API_VERSIONS_KEY, version, timeout_s)
            response = decode(ApiVersionsResponse, buffer, version, position)
        except ConnectionLostError as error:
            raise ClosedUnansweredError(
                self.address, "the connection was closed when versions were asked for; does this listener want TLS?"
            ) from error
        except ProtocolError as error:
            raise NotABrokerError(self.address, f"the answer is not Kafka's: {error}") from error
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), f"{self.address} refuses to report its API versions")
        self.versions = {each.api_key: Versions(each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    # -- logging in ----------------------------------------------------------------------------------------------------

    async def log_in(self, credentials: Credentials) -> None:
        """Shows who we are; LoginRefusedError where that does not suffice."""
        self._credentials = credentials

        async def ask(message: object, answer: type[Any]) -> Any:
            return await (await self._post(message, answer, _deadline(self.options.request_timeout_s)))

        try:
            renewed_after_s = await log_in(ask, credentials, self.options.connect_timeout_s)
        except NoTokenError as error:
            raise self._fail(CannotConnectError(self.address, f"no login: {error}")) from error
        except LoginFailed as failure:
            code = failure.code if isinstance(failure, LoginRefused) else ErrorCode.SASL_AUTHENTICATION_FAILED
            reason = f"no login as {credentials.username!r}" if credentials.username else "no login"
            raise self._fail(LoginRefusedError(self.address, f"{reason}: {failure}", code)) from failure
        now = asyncio.get_running_loop().time()
        self._login_ends_at = None if renewed_after_s is None else now + renewed_after_s

    async def _stay_logged_in(self, ends_at: float) -> None:
        """Logs in again where it is time (KIP-368). Nothing else is sent meanwhile: a broker would refuse it."""
        if asyncio.get_running_loop().time() < ends_at and not self._logging_in.locked():
            return
        async with self._logging_in:
            if self._login_ends_at is not None and asyncio.get_running_loop().time() >= self._login_ends_at:
                assert self._credentials is not None
                await self.log_in(self._credentials)

    # -- answers: called by the transport ------------------------------------------------------------------------------

    def attach(self, transport: ClientTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return memoryview(self._small)[self._small_filled :]
        # Grown here and not when bytes have come: the transport still holds its view of the buffer then.
        if self._filled == len(self._frame):
            self._frame += bytes(min(len(self._frame), self._frame_bytes - self._filled))
        return memoryview(self._frame)[self._filled : self._frame_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._frame is None:
                self._small_filled += nbytes
                self._cut()
            else:
                self._filled += nbytes
                if self._filled == self._frame_bytes:
                    whole, self._frame = self._frame, None
                    self._spares.handed_out(whole)
                    self._arrived(memoryview(whole)[: self._frame_bytes])
        except ProtocolError as error:
            self._fail(
                NotABrokerError(
                    self.address, f"the answer is not Kafka's: {error}; does it speak TLS or another protocol?"
                )
            )

    def _cut(self) -> None:
        """Hands out the frames that are whole in the small buffer; a large one moves to a buffer of its own."""
        position, end = 0, self._small_filled
        with memoryview(self._small) as small:
            while end - position >= LENGTH_BYTES:
                size = frame_bytes(small, position, self.options.frame_bytes_max, bytes_min=CORRELATION_ID_BYTES)
                start = position + LENGTH_BYTES
                if end - start >= size:
                    position = start + size
                    self._spares.clear()  # whatever made large answers is over
                    self._arrived(memoryview(bytes(small[start:position])))
                    continue
                if size + LENGTH_BYTES > SMALL_BUFFER_BYTES:
                    self._begin_large(small[start:end], size)
                    position = end
                break
            rest = bytes(small[position:end])
            small[: len(rest)] = rest
        self._small_filled = len(rest)

    def _begin_large(self, beginning: memoryview, size: int) -> None:
        large = self._spares.take(len(beginning))
        if large is None:
            large = bytearray(min(size, max(self.options.frame_start_bytes, len(beginning))))
        large[: len(beginning)] = beginning
        self._frame, self._frame_bytes, self._filled = large, size, len(beginning)

    def _arrived(self, buffer: memoryview) -> None:
        if not self._expected:
            raise ProtocolError("an answer that nobody asked for")
        expected = self._expected[0]
        header, position = decode_response_header(buffer, expected.api_key, expected.version)
        if header.correlation_id != expected.correlation_id:
            raise ProtocolError(f"answer {header.correlation_id} where {expected.correlation_id} was due")
        self._expected.popleft()
        expected.receiver.response_arrived(buffer, position)

    def eof_received(self) -> None:
        self._fail(ConnectionLostError(self.address, "the broker closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and not self.versions:
            # In TLS 1.3 a broker judges our certificate after the handshake, as we see it, is over.
            self._fail(TlsRefusedError(self.address, exc))
        else:
            reason = _reason(exc) if isinstance(exc, OSError) else "the broker closed the connection"
            self._fail(ConnectionLostError(self.address, reason))
        self._ended.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # -- ending --------------------------------------------------------------------------------------------------------

    def _fail(self, failure: ConnectionFailedError) -> ConnectionFailedError:
        """Closes; every request that waits fails, with the first failure."""
        if self._failure is None:
            self._failure = failure
            self._frame = None
            self._may_write.set()
            while self._expected:
                self._expected.popleft().receiver.connection_failed(failure)
            if self._transport is not None:
                self._transport.close()
        return failure

    async def close(self) -> None:
        """Sends what was written, then closes."""
        self._fail(ConnectionLostError(self.address, "the connection was closed by this client"))
        if self._transport is not None:
            try:
                async with asyncio.timeout(self.options.connect_timeout_s):
                    await self._ended.wait()
            except BaseException as error:  # also where whoever closes is cancelled
                self._transport.abort()
                if not isinstance(error, TimeoutError):
                    raise

    def abort(self) -> None:
        """Closes at once."""
        self._fail(ConnectionLostError(self.address, "the connection was closed by this client"))
        if self._transport is not None:
            self._transport.abort()


def _api_of(message: object) -> Api:
    key = message_schema_of(type(message)).key
    assert key is not None, f"{type(message).__name__} is not a request"
    return API_TABLE[key]


def _error_code_at(buffer: memoryview, position: int) -> ErrorCode:
    try:
        (code,) = _ERROR_CODE.unpack_from(buffer, position)
        return ErrorCode(code)
    except (struct.error, ValueError) as error:
        raise ProtocolError("an answer without an error code") from error
