"""The first message of OAUTHBEARER, and what is none."""

from __future__ import annotations

import random

import pytest

from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.oauthbearer import oauthbearer_token, parse_bearer


def test_what_a_client_sends_is_read():
    message = parse_bearer(oauthbearer_token("abc.def-_~+/=="))
    assert (message.token, message.authorization_id) == ("abc.def-_~+/==", None)


def test_extensions_are_accepted_and_the_scheme_in_any_case():
    message = parse_bearer(b"n,a=al=2Cice,\x01traceId=1 2\x01auth=bEARER abc\x01other=\x01\x01")
    assert (message.token, message.authorization_id) == ("abc", "al,ice")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01\x01more",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer abc\x01\x01",
        b"n,,\x01key1=x\x01auth=Bearer abc\x01\x01",
        b"n,,\x01key=\x00\x01auth=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"p=x,,\x01auth=Bearer abc\x01\x01",
        "n,,\x01auth=Bearer \u00e9\x01\x01".encode(),
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_what_is_none_is_refused_and_not_repeated(data):
    with pytest.raises(LoginFailed) as refused:
        parse_bearer(data)
    assert "abc" not in str(refused.value)


def test_random_bytes_are_refused_and_nothing_worse():
    rng = random.Random(3)
    whole = oauthbearer_token("abc.def")
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            parse_bearer(bytes(data))
        except LoginFailed:
            continue


def test_a_provider_that_returns_no_token_is_found_out():
    with pytest.raises(LoginFailed):
        oauthbearer_token("a b")
