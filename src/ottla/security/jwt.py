"""Signed tokens (JWT in the compact form of JWS, RFC 7515 and 7519) and the keys that verify them (JWKS, RFC 7517).

A token is accepted if a public key of the set has signed it, by an algorithm of the table below that fits the type of
that key, and if its claims hold. There is no way around the signature: `none` and symmetric algorithms are not in the
table, so that nobody can sign with a public key, and a header that asks for anything special (`crit`) is refused.
Reasons are for the log; they never repeat the token.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import ConfigError, OttlaError

RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 100
DATE_MAX: Final = 253_402_300_799  # the end of the year 9999, in seconds
# By the name of an algorithm: the type of its keys, their curve, and the hash.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None, str]]] = {
    "RS256": ("RSA", None, "SHA256"),
    "RS384": ("RSA", None, "SHA384"),
    "RS512": ("RSA", None, "SHA512"),
    "ES256": ("EC", "P-256", "SHA256"),
    "ES384": ("EC", "P-384", "SHA384"),
    "ES512": ("EC", "P-521", "SHA512"),
}
COORDINATE_BYTES: Final = {"P-256": 32, "P-384": 48, "P-521": 66}

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")


class InvalidTokenError(OttlaError):
    """A token that is not accepted, and why."""


class UnknownKeyError(InvalidTokenError):
    """No key of the set can have signed the token: the set may have changed."""


class InvalidKeysError(OttlaError):
    """What should be a set of keys is none."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. `public`: as the library has it."""

    key_id: str | None
    kind: str
    curve: str | None
    algorithm: str | None  # the only one it is for, where the set says so
    public: Any = field(repr=False)

    def fits(self, algorithm: str, key_id: str | None) -> bool:
        kind, curve, _ = ALGORITHMS[algorithm]
        return (
            self.kind == kind
            and self.curve == curve
            and self.algorithm in (None, algorithm)
            and (key_id is None or self.key_id == key_id)
        )


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must say. Empty: it is not looked at."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Whom an accepted token stands for, and until when, in seconds since 1970."""

    subject: str
    expires_s: float


def parse_keys(data: bytes) -> tuple[Key, ...]:
    """The keys of a JWKS that can verify; others are left out. InvalidKeysError where there is none."""
    document = _json(data, InvalidKeysError, "the set of keys")
    entries = document.get("keys")
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise InvalidKeysError(f"the set of keys has no list of at most {KEYS_MAX} keys")
    keys = tuple(key for entry in entries if isinstance(entry, dict) and (key := _key(entry)) is not None)
    if not keys:
        raise InvalidKeysError("no key of the set can verify a signature (RSA of 2048 bits or more, or EC)")
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig":
        return None
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if algorithm is not None and algorithm not in ALGORITHMS:
        return None
    try:
        public, curve = _public_key(entry)
    except (KeyError, ValueError, TypeError, InvalidTokenError):
        return None
    if public is None:
        return None
    return Key(None if key_id is None else str(key_id), str(entry["kty"]), curve, algorithm, public)


def _public_key(entry: Mapping[str, Any]) -> tuple[Any, str | None]:
    _, _, ec, rsa, _ = cryptography_parts()
    if entry["kty"] == "RSA":
        public = rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()
        return (public if public.key_size >= RSA_BITS_MIN else None), None
    if entry["kty"] == "EC":
        curve = str(entry["crv"])
        curves = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
        numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curves[curve]())
        return numbers.public_key(), curve
    return None, None


def verify(token: str, keys: Iterable[Key], expected: Expected, now_s: float) -> TokenIdentity:
    """Whom the token stands for; InvalidTokenError where it is not accepted. Takes a fraction of a millisecond."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise InvalidTokenError("a signed token has three parts")
    header = _json(_bytes(parts[0]), InvalidTokenError, "the header of the token")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidTokenError("the token is not signed by an algorithm that is accepted")
    if "crit" in header:
        raise InvalidTokenError("the header of the token asks for an extension")
    key_id = header.get("kid")
    fitting = [key for key in keys if key.fits(algorithm, None if key_id is None else str(key_id))]
    if not fitting:
        raise UnknownKeyError("no key of the set can have signed the token")
    signed = f"{parts[0]}.{parts[1]}".encode()
    signature = _bytes(parts[2])
    if not any(_is_signed(key, algorithm, signed, signature) for key in fitting):
        raise InvalidTokenError("the signature of the token is wrong")
    return _identity(_json(_bytes(parts[1]), InvalidTokenError, "the claims of the token"), expected, now_s)


def _is_signed(key: Key, algorithm: str, signed: bytes, signature: bytes) -> bool:
    invalid_signature, hashes, ec, _, padding = cryptography_parts()
    kind, curve, hash_name = ALGORITHMS[algorithm]
    digest = getattr(hashes, hash_name)()
    try:
        if kind == "RSA":
            key.public.verify(signature, signed, padding.PKCS1v15(), digest)
            return True
        assert curve is not None
        size = COORDINATE_BYTES[curve]
        if len(signature) != 2 * size:
            return False
        numbers = (int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
        key.public.verify(_encode_dss_signature()(*numbers), signed, ec.ECDSA(digest))
        return True
    except invalid_signature:
        return False


def _identity(claims: Mapping[str, Any], expected: Expected, now_s: float) -> TokenIdentity:
    expires_s = _date(claims, "exp")
    issued_s = _date(claims, "iat")
    if now_s - expected.clock_skew_s >= expires_s:
        raise InvalidTokenError("the token has expired")
    if issued_s > now_s + expected.clock_skew_s:
        raise InvalidTokenError("the token was issued in the future")
    if "nbf" in claims and _date(claims, "nbf") > now_s + expected.clock_skew_s:
        raise InvalidTokenError("the token is not valid yet")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise InvalidTokenError("the token is of another issuer")
    _check_audience(claims.get("aud"), expected.audience)
    subject = claims.get(expected.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidTokenError(f"the token has no claim {expected.subject_claim!r} that names somebody")
    return TokenIdentity(subject.strip(), expires_s)


def _check_audience(given: Any, wanted: tuple[str, ...]) -> None:
    """A token that is meant for somebody is refused unless we are that; one for nobody in particular where we are."""
    audience = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if wanted and not any(each in wanted for each in audience):
        raise InvalidTokenError("the token is meant for another audience")
    if not wanted and given is not None:
        raise InvalidTokenError(
            "the token is meant for an audience, and sasl.oauthbearer.expected.audience does not say which is ours"
        )


def _date(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= DATE_MAX:
        raise InvalidTokenError(f"the token has no claim {name!r} that is a time")
    return float(value)


def _bytes(text: str) -> bytes:
    """Base64 for addresses, without padding. Python's own skips what it does not know."""
    if not _BASE64URL.fullmatch(text):
        raise InvalidTokenError("a part of the token is not base64")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise InvalidTokenError("a part of the token is not base64") from error


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text))


def _json(data: bytes, error_type: type[OttlaError], what: str) -> Mapping[str, Any]:
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{what} is not JSON") from error
    if not isinstance(document, dict):
        raise error_type(f"{what} is not a JSON object")
    return document


def _refuse_constant(name: str) -> float:
    """NaN is not a time: no comparison with it is true."""
    raise ValueError(name)


def cryptography_parts() -> tuple[Any, Any, Any, Any, Any]:
    """What is used of the library; ConfigError where it is not installed."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    except ImportError as error:
        raise ConfigError("OAUTHBEARER needs cryptography to verify tokens: pip install 'ottla[security]'") from error
    return InvalidSignature, hashes, ec, rsa, padding


def _encode_dss_signature() -> Any:
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    return encode_dss_signature
