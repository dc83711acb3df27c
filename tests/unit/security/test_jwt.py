"""Signed tokens: what is accepted, and everything that is not (CVE-2026-33557)."""

from __future__ import annotations

import hmac
import json
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.security.jwt import (
    Expected,
    InvalidKeysError,
    InvalidTokenError,
    TokenIdentity,
    UnknownKeyError,
    parse_keys,
    verify,
)
from ottla.testing.token_issuer import TokenIssuer, base64url, encoded, jwks

NOW = 1_700_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 600}
RSA, EC, STRANGER = TokenIssuer("RS256", "rsa"), TokenIssuer("ES256", "ec"), TokenIssuer("ES256", "ec")
KEYS = parse_keys(jwks(RSA, EC))


def accepted(token: str, expected: Expected | None = None, now_s: float = NOW) -> TokenIdentity:
    return verify(token, KEYS, expected or Expected(), now_s)


@pytest.mark.parametrize("issuer", [RSA, EC], ids=["RS256", "ES256"])
def test_a_signed_token_stands_for_its_subject_until_it_expires(issuer: TokenIssuer) -> None:
    assert accepted(issuer.token(CLAIMS)) == TokenIdentity("alice", NOW + 600)
    assert accepted(issuer.token({**CLAIMS, "user": "a"}), Expected(subject_claim="user")).subject == "a"


def test_a_token_without_the_name_of_a_key_is_tried_with_those_of_its_type() -> None:
    signed = f"{encoded({'alg': 'ES256'})}.{encoded(CLAIMS)}"
    assert accepted(f"{signed}.{base64url(EC.sign(signed.encode()))}").subject == "alice"


@pytest.mark.parametrize(
    "token",
    [
        f"{encoded({'alg': 'none'})}.{encoded(CLAIMS)}.",
        f"{encoded({'alg': 'none'})}.{encoded(CLAIMS)}.{base64url(b'x')}",
        f"{encoded({'alg': 'NONE', 'kid': 'ec'})}.{encoded(CLAIMS)}.{base64url(b'x')}",
        f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{encoded(CLAIMS)}.",
        f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{encoded(CLAIMS)}.{base64url(bytes(64))}",
        f"{encoded({'alg': ['ES256'], 'kid': 'ec'})}.{encoded(CLAIMS)}.{base64url(bytes(64))}",
        f"{encoded({'kid': 'ec'})}.{encoded(CLAIMS)}.{base64url(bytes(64))}",
        STRANGER.token(CLAIMS),
        EC.token(CLAIMS, alg="RS256"),
        EC.token(CLAIMS, kid="rsa"),
        EC.token(CLAIMS, crit=["exp"], exp=1),
        EC.token(CLAIMS) + "x",
        EC.token(CLAIMS) + ".x",
        EC.token(CLAIMS).replace(".", ".\n", 1),
        "a.b.c",
        "..",
        "",
        f"{encoded([])}.{encoded(CLAIMS)}.{base64url(bytes(64))}",
        f"{base64url(b'[' * 100_000)}.{encoded(CLAIMS)}.{base64url(bytes(64))}",
    ],
)
def test_nothing_unverified_is_accepted(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        accepted(token)


def test_the_public_key_is_no_secret_to_sign_with() -> None:
    pem = RSA.key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, json.dumps(RSA.jwk()).encode()):
        signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(CLAIMS)}"
        with pytest.raises(InvalidTokenError):
            accepted(f"{signed}.{base64url(hmac.digest(secret, signed.encode(), 'sha256'))}")


def test_a_changed_token_is_refused_wherever_the_change_is() -> None:
    token = EC.token(CLAIMS)
    rng = random.Random(7)
    for _ in range(200):
        position = rng.randrange(len(token) - 1)  # the last character has bits that mean nothing
        other = rng.choice([letter for letter in "ABCabc012-_." if letter != token[position]])
        with pytest.raises(InvalidTokenError):
            accepted(token[:position] + other + token[position + 1 :])


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({"exp": NOW - 30}, Expected(), "expired"),
        ({"exp": None}, Expected(), "'exp'"),
        ({"exp": "soon"}, Expected(), "'exp'"),
        ({"exp": True}, Expected(), "'exp'"),
        ({"exp": 1e300}, Expected(), "'exp'"),
        ({"exp": 10**400}, Expected(), "'exp'"),
        ({"iat": None}, Expected(), "'iat'"),
        ({"iat": NOW + 31}, Expected(), "future"),
        ({"nbf": NOW + 31}, Expected(), "not valid yet"),
        ({"iss": "https://other"}, Expected(issuer="https://issuer"), "issuer"),
        ({}, Expected(issuer="https://issuer"), "issuer"),
        ({"aud": ["x", "y"]}, Expected(audience=("kafka",)), "another audience"),
        ({}, Expected(audience=("kafka",)), "another audience"),
        ({"aud": "kafka"}, Expected(), "does not say which is ours"),
        ({"sub": None}, Expected(), "'sub'"),
        ({"sub": " "}, Expected(), "'sub'"),
        ({"sub": 5}, Expected(), "'sub'"),
    ],
)
def test_claims_must_hold(changes: dict[str, Any], expected: Expected, reason: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    with pytest.raises(InvalidTokenError, match=reason):
        accepted(EC.token(claims), expected)


def test_no_number_that_is_none_passes_for_a_time() -> None:
    claims = base64url(b'{"sub": "a", "iat": 1, "exp": NaN}')
    signed = f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{claims}"
    with pytest.raises(InvalidTokenError, match="not JSON"):
        accepted(f"{signed}.{base64url(EC.sign(signed.encode()))}")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": NOW - 29}, Expected()),
        ({"iat": NOW + 30}, Expected()),
        ({"aud": "kafka"}, Expected(audience=("other", "kafka"))),
        ({"aud": ["x", "kafka"]}, Expected(audience=("kafka",))),
        ({"iss": "https://issuer"}, Expected(issuer="https://issuer")),
    ],
)
def test_what_holds_is_accepted(changes: dict[str, Any], expected: Expected) -> None:
    assert accepted(EC.token({**CLAIMS, **changes}), expected).subject == "alice"


def test_an_unknown_key_is_told_from_a_wrong_signature() -> None:
    with pytest.raises(UnknownKeyError):
        accepted(TokenIssuer("ES256", "new").token(CLAIMS))
    with pytest.raises(InvalidTokenError) as refused:
        accepted(STRANGER.token(CLAIMS))
    assert not isinstance(refused.value, UnknownKeyError)


def test_no_reason_repeats_the_token() -> None:
    token = STRANGER.token(CLAIMS)
    with pytest.raises(InvalidTokenError) as refused:
        accepted(token)
    assert token[:20] not in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        json.dumps({"keys": [RSA.jwk(use="enc")]}).encode(),
        json.dumps({"keys": [EC.jwk(x="AA")]}).encode(),
        json.dumps({"keys": [EC.jwk(alg="HS256")]}).encode(),
        json.dumps({"keys": [EC.jwk(crv="P-0")]}).encode(),
        json.dumps({"keys": [EC.jwk()] * 101}).encode(),
    ],
)
def test_a_set_without_a_key_that_verifies_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidKeysError):
        parse_keys(document)


def test_a_short_key_of_rsa_is_left_out() -> None:
    short = TokenIssuer("RS256")
    short.key = rsa.generate_private_key(65537, 1024)
    with pytest.raises(InvalidKeysError):
        parse_keys(jwks(short))


def test_a_key_for_one_algorithm_is_for_no_other() -> None:
    keys = parse_keys(json.dumps({"keys": [RSA.jwk(alg="RS512")]}).encode())
    with pytest.raises(UnknownKeyError):
        verify(RSA.token(CLAIMS), keys, Expected(), NOW)
