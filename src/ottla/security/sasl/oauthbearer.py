"""OAUTHBEARER (RFC 7628), both sides: a token that somebody else made, and what a refusal of it looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ottla.security.sasl.failure import LoginFailed

SEPARATOR = b"\x01"
# What a broker answers to a token that it does not accept; the client sends the separator, and gets it once more.
INVALID_TOKEN = b'{"status":"invalid_token"}'

_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_FIRST = re.compile(
    r"n,(?:a=(?P<authorization_id>(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x20-\x7E\t\r\n]*\x01)+)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """The client's first message. Extensions are not kept: nothing here would look at them."""

    token: str = field(repr=False)
    authorization_id: str | None


def parse_bearer(data: bytes) -> BearerMessage:
    """LoginFailed where the message is not one of this mechanism."""
    try:
        match = _FIRST.fullmatch(data.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise LoginFailed("the first message of OAUTHBEARER cannot be read")
    pairs = [pair.partition("=")[::2] for pair in match["pairs"].split(SEPARATOR.decode()) if pair]
    credentials = [value for name, value in pairs if name == "auth"]
    bearer = _BEARER.fullmatch(credentials[0]) if len(credentials) == 1 else None
    if bearer is None:
        raise LoginFailed("the first message of OAUTHBEARER has no token")
    name = match["authorization_id"]
    return BearerMessage(bearer["token"], None if name is None else name.replace("=2C", ",").replace("=3D", "="))


def oauthbearer_token(token: str) -> bytes:
    """The client's only message."""
    if not _TOKEN.fullmatch(token):
        raise LoginFailed("the token provider returned something that is not a bearer token")
    return b"n,," + SEPARATOR + b"auth=Bearer " + token.encode() + SEPARATOR + SEPARATOR
