"""OAUTHBEARER (RFC 7628), the client's side: a token that somebody else made, and what a refusal of it looks like."""

from __future__ import annotations

import re

from ottla.security.sasl.failure import LoginFailed

SEPARATOR = b"\x01"
_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]+=*")


def oauthbearer_token(token: str) -> bytes:
    """The client's only message."""
    if not _TOKEN.fullmatch(token):
        raise LoginFailed("the token provider returned something that is not a bearer token")
    return b"n,," + SEPARATOR + b"auth=Bearer " + token.encode() + SEPARATOR + SEPARATOR
