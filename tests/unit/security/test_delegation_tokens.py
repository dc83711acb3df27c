"""The arithmetic of delegation tokens: Kafka's, in ZooKeeper mode."""

from __future__ import annotations

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.security.delegation_tokens import TokenLifetimes, expired, new_token, renewed, token_hmac, token_password

LIFETIMES = TokenLifetimes(expiry_ms=100, max_ms=1000)
NOW = 5000
TOKEN = new_token("id", "User:alice", "User:alice", ("User:bob",), -1, LIFETIMES, NOW)


@pytest.mark.parametrize(
    ("wanted_ms", "expires_ms", "max_ms"),
    [(-1, 100, 1000), (0, 100, 1000), (50, 50, 50), (500, 100, 500), (5000, 100, 1000)],
)
def test_a_token_lasts_as_long_as_was_asked_for_and_no_longer_than_allowed(wanted_ms, expires_ms, max_ms):
    token = new_token("id", "User:a", "User:a", (), wanted_ms, LIFETIMES, NOW)
    assert (token.expires_ms, token.max_ms) == (NOW + expires_ms, NOW + max_ms)


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(-1, 150), (300, 350), (0, 50), (5000, 1000)])
def test_a_renewed_token_lasts_longer_up_to_its_limit(period_ms, expires_ms):
    assert renewed(TOKEN, "User:bob", period_ms, LIFETIMES, NOW + 50).expires_ms == NOW + expires_ms


def test_an_expired_token_is_not_renewed_and_can_be_removed():
    with pytest.raises(ApiError) as refused:
        renewed(TOKEN, "User:alice", -1, LIFETIMES, NOW + 101)
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
    with pytest.raises(ApiError):
        expired(TOKEN, "User:alice", 10, NOW + 101)
    assert expired(TOKEN, "User:alice", -1, NOW + 101) is None


def test_a_token_ends_when_its_owner_or_a_renewer_says_so():
    sooner = expired(TOKEN, "User:bob", 10, NOW)
    assert sooner is not None
    assert sooner.expires_ms == NOW + 10
    for change in (
        lambda: expired(TOKEN, "User:carol", -1, NOW),
        lambda: renewed(TOKEN, "User:carol", 1, LIFETIMES, NOW),
    ):
        with pytest.raises(ApiError) as refused:
            change()
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_the_secret_follows_from_the_key_and_the_id():
    secret = token_hmac("key", "id")
    assert (len(secret), secret) == (64, token_hmac("key", "id"))
    assert secret != token_hmac("other", "id")
    assert token_password(b"\xfb\xff") == "+/8="
