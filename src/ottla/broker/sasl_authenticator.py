"""What stands before the dispatcher on listeners whose peers log in: nobody passes before that, by Kafka's states.

    start ──ApiVersions──> versions known ──SaslHandshake──> handshake ──SaslAuthenticate…──> complete

Whoever breaks the order is answered as Kafka answers, or not at all. A failed login waits before its answer, and costs
nobody else anything. Where logins have a lifetime (KIP-368), a complete connection may log in again, as the same user
by the same mechanism; once the lifetime is over, whatever else it sends closes it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.error_answers import error_answer
from ottla.broker.login_state import LoginInProgress, State
from ottla.broker.logins import LoginSources, Step, begin_login
from ottla.broker.session import Session
from ottla.config.broker import BrokerConfig
from ottla.config.listener_security import ListenerSecurity
from ottla.errors import ErrorCode, ProtocolError
from ottla.net.connection import Connection, Handled, Reply
from ottla.protocol.codec import decode, decode_bounded, encode
from ottla.protocol.frames import framed
from ottla.protocol.headers import API_VERSIONS_KEY, decode_request_header, encode_response_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.versions import API_TABLE
from ottla.runtime.turns import done_at_once
from ottla.security.sasl.failure import LoginFailed

if TYPE_CHECKING:
    from ottla.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)

HANDSHAKE_KEY = 17
AUTHENTICATE_KEY = 36
OUT_OF_ORDER_ELEMENTS_MAX = 100  # of a request that is answered though it may not be sent
REASON_LENGTH_MAX = 500  # of a failure in the log: a name that somebody tries may have half a million characters
REAUTHENTICATION_PAUSE_MS = 1000  # between two starts of a login on one connection
USER_PREFIX = "User:"

_ERROR_CODE_AT = 8  # in a framed answer without tags: behind length and correlation id
_INT16 = struct.Struct(">h")


class SaslAuthenticator:
    """The handler of a listener whose peers log in."""

    def __init__(
        self,
        listener_name: str,
        dispatcher: Dispatcher,
        config: Callable[[], BrokerConfig],
        sources: LoginSources,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is monotonic: it measures the lifetime of logins."""
        self._listener_name = listener_name
        self._dispatcher = dispatcher
        self._config = config
        self._sources = sources
        self._now_ms = now_ms

    @property
    def _security(self) -> ListenerSecurity:
        return self._config().security_of_listeners[self._listener_name]

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        session: Session = connection.session
        progress = session.login
        if progress is not None:
            return self._log_in(connection, frame, session, progress)
        if session.ends_ms is None:
            return self._dispatcher(connection, frame)
        return self._in_limited_session(connection, frame, session, session.ends_ms)

    # -- before the login is complete ----------------------------------------------------------------------------------

    def _log_in(
        self, connection: Connection, frame: memoryview, session: Session, progress: LoginInProgress
    ) -> Handled:
        if progress.state is State.FAILED:
            raise ProtocolError("a request behind a login that failed")
        security = self._security
        if len(frame) > security.receive_bytes_max:
            raise ProtocolError(f"a frame of {len(frame)} bytes before the login (sasl.server.max.receive.size)")
        if progress.state is State.HANDSHAKE and progress.is_raw:
            return self._step(connection, session, progress, bytes(frame), None)
        header, position = decode_request_header(frame)
        key = header.request_api_key
        if progress.state is State.HANDSHAKE:
            if key != AUTHENTICATE_KEY:
                return self._out_of_order(connection, session, progress, header, frame, position)
            request = self._decoded(SaslAuthenticateRequest, header, frame, position)
            return self._step(connection, session, progress, bytes(request.auth_bytes), header)
        if key == HANDSHAKE_KEY:
            request = self._decoded(SaslHandshakeRequest, header, frame, position)
            return self._shake_hands(connection, session, progress, header, request.mechanism, security)
        if key == API_VERSIONS_KEY and progress.state is State.START:
            answer = self._dispatcher(connection, frame)
            # One that was refused may be tried again.
            if isinstance(answer, list) and _INT16.unpack_from(answer[0], _ERROR_CODE_AT)[0] == ErrorCode.NONE:  # type: ignore[arg-type]
                progress.state = State.VERSIONS_KNOWN
            return answer
        raise ProtocolError(f"{API_TABLE[key].name} before the login")

    def _decoded(self, cls: type, header: RequestHeader, frame: memoryview, position: int) -> Any:
        self._check_version(cls, header)
        return decode(cls, frame, header.request_api_version, position)

    @staticmethod
    def _check_version(request: type, header: RequestHeader) -> None:
        if header.request_api_version not in API_TABLE[header.request_api_key].versions:
            raise ProtocolError(f"{request.__name__} version {header.request_api_version} is not served")

    def _shake_hands(
        self,
        connection: Connection,
        session: Session,
        progress: LoginInProgress,
        header: RequestHeader,
        name: str,
        security: ListenerSecurity,
    ) -> Reply | Awaitable[Reply]:
        mechanism = security.mechanisms.get(name)
        if mechanism is not None and mechanism.oauth is not None and self._sources.keys is None:
            mechanism = None  # enabled while the broker runs; the keys are fetched when it starts
        code = ErrorCode.NONE if mechanism is not None else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = _encoded(header, SaslHandshakeResponse(error_code=code, mechanisms=list(security.mechanisms)))
        if mechanism is None:
            logger.info("%s: asks for a mechanism that is not enabled", connection)
            return self._fail(connection, progress, answer)
        progress.state = State.HANDSHAKE
        progress.mechanism = mechanism
        progress.is_raw = header.request_api_version == 0
        progress.login = begin_login(mechanism, self._sources)
        return answer

    def _out_of_order(
        self,
        connection: Connection,
        session: Session,
        progress: LoginInProgress,
        header: RequestHeader,
        frame: memoryview,
        position: int,
    ) -> Awaitable[Reply]:
        api = API_TABLE[header.request_api_key]
        version = header.request_api_version
        self._check_version(api.request, header)
        request: Any = decode_bounded(api.request, frame, version, position, OUT_OF_ORDER_ELEMENTS_MAX)
        logger.info("%s: %s in the middle of a login", connection, api.name)
        answer = done_at_once(error_answer(api, request, version, ErrorCode.ILLEGAL_SASL_STATE))
        return self._fail(connection, progress, _encoded(header, answer))

    async def _step(
        self,
        connection: Connection,
        session: Session,
        progress: LoginInProgress,
        data: bytes,
        header: RequestHeader | None,
    ) -> Reply:
        """One message of the mechanism. Without a header both sides send it bare."""
        assert progress.login is not None
        assert progress.mechanism is not None
        mechanism = progress.mechanism.name
        if progress.is_again and mechanism != session.mechanism:
            logger.info("%s: %s logged in by another mechanism before", connection, session.principal)
            return await self._fail(connection, progress, None)
        try:
            step = await progress.login.step(data)
            lifetime_ms = self._complete(connection, session, progress, step) if step.user is not None else 0
        except LoginFailed as failure:
            logger.info("%s: login by %s failed: %s", connection, mechanism, _shortened(failure))
            what = "re-authentication" if progress.is_again else "authentication"
            message = failure.public_reason or (
                f"Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism}"
            )
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b""
            )
            return await self._fail(connection, progress, None if header is None else _encoded(header, refused))
        if header is None:
            return [framed(step.answer)]
        return _encoded(
            header,
            SaslAuthenticateResponse(
                auth_bytes=step.answer,
                session_lifetime_ms=lifetime_ms if header.request_api_version >= 1 else 0,
            ),
        )

    def _complete(self, connection: Connection, session: Session, progress: LoginInProgress, step: Step) -> int:
        """The peer is somebody from here on; returns for how long, in milliseconds (0: without limit)."""
        assert progress.mechanism is not None
        principal = f"{USER_PREFIX}{step.user}"
        if progress.is_again and principal != session.principal:
            raise LoginFailed(
                f"{session.principal} cannot become {principal}",
                "Cannot change principals during re-authentication",
            )
        lifetime_ms = _lifetime_ms(progress.mechanism.reauth_ms, step.ends_ms, self._sources.now_ms())
        session.logged_in(
            principal,
            progress.mechanism.name,
            None if lifetime_ms is None else self._now_ms() + lifetime_ms,
            is_by_token=step.is_by_token,
        )
        connection.login_bytes_max = None
        logger.debug("%s: %s logged in by %s", connection, principal, progress.mechanism.name)
        return lifetime_ms or 0

    async def _fail(self, connection: Connection, progress: LoginInProgress, answer: Reply) -> Reply:
        """The answer, if any, and the end of the connection; later, to slow down whoever tries passwords."""
        progress.state = State.FAILED
        await asyncio.sleep(self._config().connection_failed_authentication_delay_ms / 1000)
        connection.stop()
        return answer

    # -- logins with a lifetime ----------------------------------------------------------------------------------------

    def _in_limited_session(self, connection: Connection, frame: memoryview, session: Session, ends_ms: int) -> Handled:
        now_ms = self._now_ms()
        is_handshake = len(frame) >= _INT16.size and _INT16.unpack_from(frame)[0] == HANDSHAKE_KEY
        if is_handshake and now_ms - session.login_started_ms >= REAUTHENTICATION_PAUSE_MS:
            session.login_started_ms = now_ms
            session.login = LoginInProgress(State.VERSIONS_KNOWN, is_again=True)
            return self._log_in(connection, frame, session, session.login)
        if now_ms >= ends_ms and not is_handshake:
            raise ProtocolError(f"the login of {session.principal} has ended")
        return self._dispatcher(connection, frame)


def _lifetime_ms(reauth_ms: int, ends_ms: int | None, now_ms: int) -> int | None:
    """How long a login lasts: as long as the setting and the credential allow; None: without limit.

    A credential that has just expired gives 0, which clients take for no limit, and closes with the next request.
    """
    limits = [reauth_ms] if reauth_ms else []
    if ends_ms is not None:
        limits.append(max(0, ends_ms - now_ms))
    return min(limits, default=None)


def _shortened(failure: LoginFailed) -> str:
    reason = str(failure)
    return reason if len(reason) <= REASON_LENGTH_MAX else f"{reason[:REASON_LENGTH_MAX]}…"


def _encoded(header: RequestHeader, response: Any) -> Reply:
    head = encode_response_header(header.correlation_id, header.request_api_key, header.request_api_version)
    return [framed(head, encode(response, header.request_api_version))]
