"""How we log in to a broker: credentials, the exchange of a mechanism, and the way to the network that goes with both.

A `SecureConnector` is passed in place of a `Connector`: it encrypts, if it has a context, and `connect` logs in with
its credentials, if it has any.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode
from ottla.net.tokens import TokenSource
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.oauthbearer import SEPARATOR, oauthbearer_token
from ottla.security.sasl.plain import plain_token
from ottla.security.sasl.scram import ScramClient
from ottla.security.scram import BY_SASL_NAME

Answer = TypeVar("Answer")
Ask = Callable[[object, type[Any]], Awaitable[Any]]

NONCE_BYTES: Final = 18
# When to log in again, as a share of the lifetime that the broker sent: not all clients at once.
RENEWED_FROM, RENEWED_TO = 0.85, 0.95


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are and how we show it. `tokens` are for OAUTHBEARER."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)
    is_token: bool = False  # the user is a delegation token


class LoginRefused(LoginFailed):
    """The broker does not let us in; `code` is its reason."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def log_in(ask: Ask, credentials: Credentials, token_timeout_s: float) -> float | None:
    """Logs in over a connection, for the first time or again; after how many seconds to do it again, if ever.

    A token, where the mechanism needs one, is there before the broker is asked anything: it does not wait for it.
    """
    token = "" if credentials.tokens is None else await credentials.tokens.token(token_timeout_s)
    hands = await ask(SaslHandshakeRequest(mechanism=credentials.mechanism), SaslHandshakeResponse)
    if hands.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(hands.mechanisms) or "none"
        raise LoginRefused(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{credentials.mechanism} is not enabled there; enabled: {enabled}"
        )
    if hands.error_code:
        raise LoginRefused(ErrorCode.of(hands.error_code), "this listener does not ask for a login")

    async def exchange(message: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await ask(
            SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
        )
        if answer.error_code:
            raise LoginRefused(ErrorCode.of(answer.error_code), answer.error_message or "the login was refused")
        return answer

    if credentials.mechanism == "OAUTHBEARER":
        last = await _oauthbearer(exchange, token)
    else:
        last = await _MECHANISMS[credentials.mechanism](exchange, credentials)
    lifetime_s = last.session_lifetime_ms / 1000
    return lifetime_s * random.uniform(RENEWED_FROM, RENEWED_TO) if lifetime_s > 0 else None


Exchange = Callable[[bytes], Awaitable[SaslAuthenticateResponse]]


async def _plain(exchange: Exchange, credentials: Credentials) -> SaslAuthenticateResponse:
    return await exchange(plain_token(credentials.username, credentials.password))


async def _scram(exchange: Exchange, credentials: Credentials) -> SaslAuthenticateResponse:
    client = ScramClient(
        BY_SASL_NAME[credentials.mechanism],
        credentials.username,
        credentials.password,
        secrets.token_urlsafe(NONCE_BYTES),
        is_token=credentials.is_token,
    )
    challenge = bytes((await exchange(client.first)).auth_bytes)
    last = await exchange(await asyncio.to_thread(client.prove, challenge))
    client.check(bytes(last.auth_bytes))
    return last


async def _oauthbearer(exchange: Exchange, token: str) -> SaslAuthenticateResponse:
    answer = await exchange(oauthbearer_token(token))
    if answer.auth_bytes:  # the reason, as JSON; what must be sent in return gets the refusal itself
        await exchange(SEPARATOR)
        raise LoginRefused(ErrorCode.SASL_AUTHENTICATION_FAILED, "the token was refused")
    return answer


_MECHANISMS = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
}


class SecureConnector:
    """A `Connector` that encrypts, if it has a context; who connects through it logs in, if it has credentials."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        credentials: Credentials | None,
        inner: Callable[..., Awaitable[Any]],
    ) -> None:
        """`inner`: the way to the network without TLS."""
        self._context = context
        self.credentials = credentials
        self._inner = inner

    async def __call__(self, make_protocol: Callable[[], asyncio.BufferedProtocol], address: Any) -> Any:
        if self._context is None:
            return await self._inner(make_protocol, address)
        transport, _ = await asyncio.get_running_loop().create_connection(
            make_protocol, address.host, address.port, ssl=self._context, server_hostname=address.host
        )
        return transport
