"""Authentication by SASL."""

from ottla.protocol.schema import message, wire
from ottla.protocol.wire import Bytes, Int16, Int64, String


@message(key=17, versions=(0, 1), listeners=("broker", "controller"))
class SaslHandshakeRequest:
    """Names the SASL mechanism to use."""

    mechanism: String


@message(key=17, versions=(0, 1))
class SaslHandshakeResponse:
    """Whether it is served, and which ones are."""

    error_code: Int16 = wire(default=0)
    mechanisms: list[String]


@message(key=36, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class SaslAuthenticateRequest:
    """Carries the bytes of one SASL step to the broker."""

    auth_bytes: Bytes


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """Carries the answer of one SASL step."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = wire(since=1, default=0, ignorable=True)
