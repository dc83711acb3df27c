"""Delegation tokens: credentials that stand for their owner for a while, made by a broker and shared with helpers.

The id of a token is public. Its secret is a keyed hash of the id under a key that all brokers share, so it is never
stored. Whoever knows it logs in by SCRAM with the id as the name and the secret in base64 as the password.
Rules are values in and out; `broker/token_store.py` keeps the tokens.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, replace

from ottla.errors import ApiError, ErrorCode

USER_PREFIX = "User:"
HASH = "sha512"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret. Principals in Kafka's form, `User:alice`; times in milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def may_be_changed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def is_visible_to(self, principal: str) -> bool:
        """Without any right of its own."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """How long tokens last: until they must be renewed, and at most."""

    expiry_ms: int
    max_ms: int


def token_hmac(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), HASH)


def token_password(secret: bytes) -> str:
    """What SCRAM takes for the password."""
    return base64.b64encode(secret).decode()


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: tuple[str, ...],
    wanted_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """`wanted_ms`: how long it is to last at most; what is not positive stands for as long as possible."""
    max_ms = now_ms + (min(wanted_ms, lifetimes.max_ms) if wanted_ms > 0 else lifetimes.max_ms)
    expires_ms = min(max_ms, now_ms + lifetimes.expiry_ms)
    return DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)


def renewed(
    token: DelegationToken, principal: str, period_ms: int, lifetimes: TokenLifetimes, now_ms: int
) -> DelegationToken:
    """The token with a new expiry; ApiError where it cannot have one. A negative period stands for the usual one."""
    _check_changeable(token, principal)
    _check_alive(token, now_ms)
    period_ms = lifetimes.expiry_ms if period_ms < 0 else period_ms
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def expired(token: DelegationToken, principal: str, period_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with an earlier expiry; None: it ends now, which a negative period asks for."""
    _check_changeable(token, principal)
    if period_ms < 0:
        return None
    _check_alive(token, now_ms)
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def _check_changeable(token: DelegationToken, principal: str) -> None:
    if not token.may_be_changed_by(principal):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "the token belongs to somebody else")


def _check_alive(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the token has expired")
