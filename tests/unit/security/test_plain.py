"""PLAIN: right, wrong and malformed tokens."""

from __future__ import annotations

import pytest

from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.plain import check_plain, plain_token

USERS = {"alice": "secret", "bob": "pässword"}


def test_user_and_password() -> None:
    assert check_plain(plain_token("alice", "secret"), USERS) == "alice"
    assert check_plain(plain_token("bob", "pässword"), USERS) == "bob"
    assert check_plain(b"alice\0alice\0secret", USERS) == "alice"


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer() -> None:
    reasons = set()
    for token in (plain_token("alice", "wrong"), plain_token("eve", "secret")):
        with pytest.raises(LoginFailed) as refused:
            check_plain(token, USERS)
        reasons.add(refused.value.public_reason)
    assert len(reasons) == 1


def test_cve_2017_12610_another_authorization_id() -> None:
    with pytest.raises(LoginFailed):
        check_plain(b"admin\0alice\0secret", {**USERS, "admin": "x"})


@pytest.mark.parametrize("token", [b"", b"\0alice", b"\0alice\0secret\0", b"\0\0secret", b"\0alice\0", b"\0a\0\xff"])
def test_malformed_tokens_are_refused_with_a_reason(token: bytes) -> None:
    with pytest.raises(LoginFailed) as refused:
        check_plain(token, USERS)
    assert refused.value.public_reason is not None
