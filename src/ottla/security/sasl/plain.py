"""PLAIN (RFC 4616): user and password as they are. Only worth anything inside TLS."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.sasl.failure import LoginFailed

NUL = "\0"
PARTS = 3  # authorization id, user, password
REFUSED = "Authentication failed: Invalid username or password"


def check_plain(token: bytes, passwords: Mapping[str, str]) -> str:
    """The user whose password the token holds; LoginFailed otherwise, alike for unknown users and wrong passwords."""
    try:
        parts = token.decode().split(NUL)
    except UnicodeDecodeError as error:
        raise LoginFailed("the token of PLAIN is not UTF-8", "Invalid SASL/PLAIN token: not UTF-8") from error
    if len(parts) != PARTS:
        raise _malformed(f"expected {PARTS} parts, got {len(parts)}")
    authorization_id, user, password = parts
    if not user:
        raise _malformed("no user name")
    if not password:
        raise _malformed("no password")
    expected = passwords.get(user)
    # An unknown user takes as long as a wrong password, and one of another length as long as any other.
    is_equal = hmac.compare_digest(_hash(password), _hash(password + NUL if expected is None else expected))
    if expected is None or not is_equal:
        raise LoginFailed(f"no user {user!r} with this password", REFUSED)
    if authorization_id not in ("", user):  # after the password: others learn nothing of it (CVE-2017-12610)
        raise LoginFailed(
            f"{user!r} asks to be {authorization_id!r}",
            "Authentication failed: Client requested an authorization id that is different from username",
        )
    return user


def plain_token(user: str, password: str) -> bytes:
    """What a client sends."""
    return f"{NUL}{user}{NUL}{password}".encode()


def _hash(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _malformed(reason: str) -> LoginFailed:
    return LoginFailed(f"the token of PLAIN: {reason}", f"Invalid SASL/PLAIN token: {reason}")
