"""SaslHandshake and SaslAuthenticate: no listener asks for either, so whoever comes with them is in the wrong state.

The connection stays open: a client that authenticates where it need not gets an error that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_handshake(broker: Broker, request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


async def handle_authenticate(
    broker: Broker, request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener does not authenticate",
        auth_bytes=b"",
    )
