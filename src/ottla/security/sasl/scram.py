"""The messages of SCRAM (RFC 5802, RFC 7677), both sides, without channel binding.

A server takes the client's first message, is given the credential of the user it names, answers, and judges the proof
in the second. A client checks that the server knows the password too. Comparisons take the same time for every input.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass

from ottla.security.sasl.failure import LoginFailed
from ottla.security.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    from_salted,
    salted_password,
)

# What a client hashes for a server at most: a million takes half a second, and a hostile one asks for two billion.
CLIENT_ITERATIONS_MAX = 1_000_000

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>(?:m=[^,\0]+,)?n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]*)*))"
)
_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?:,[A-Za-z]+=[^,\0]*)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST = re.compile(r"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>\d{1,9})")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    user: str
    authorization_id: str | None
    nonce: str
    bare: str
    is_token: bool  # the name is that of a delegation token


def parse_client_first(data: bytes) -> ClientFirst:
    match = _FIRST.fullmatch(_text(data))
    if match is None:
        raise LoginFailed("the first message of SCRAM cannot be read")
    authorization_id = match["authorization_id"]
    extensions = dict(part.partition("=")[::2] for part in match["extensions"].split(",") if part)
    return ClientFirst(
        user=_unescaped(match["user"]),
        authorization_id=None if authorization_id is None else _unescaped(authorization_id),
        nonce=match["nonce"],
        bare=match["bare"],
        is_token=extensions.get("tokenauth", "").lower() == "true",
    )


class ScramServer:
    """One login, after the client's first message."""

    def __init__(
        self, mechanism: ScramMechanism, first: ClientFirst, credential: ScramCredential, server_nonce: str
    ) -> None:
        if credential.iterations < ITERATIONS_MIN:
            raise LoginFailed(f"the credential of {first.user!r} has fewer than {ITERATIONS_MIN} iterations")
        self._mechanism = mechanism
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + server_nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"

    @property
    def challenge(self) -> bytes:
        return self._server_first.encode()

    def finish(self, data: bytes) -> bytes:
        """The server's last message, if the proof is right; LoginFailed otherwise."""
        match = _FINAL.fullmatch(_text(data))
        if match is None:
            raise LoginFailed("the last message of SCRAM cannot be read")
        # The whole of it: one that only ends alike could come from another login (CVE-2024-56128).
        if not hmac.compare_digest(match["nonce"], self._nonce):
            is_repeated = match["nonce"] == self._first.nonce + self._nonce
            hint = "; librdkafka before 2.6.1 repeats its own: use a newer one, or PLAIN" if is_repeated else ""
            raise LoginFailed(f"the nonce of the last message is not the one of this login{hint}")
        try:
            base64.b64decode(match["binding"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise LoginFailed("the last message of SCRAM is not base64") from error
        message = f"{self._first.bare},{self._server_first},{match['without_proof']}".encode()
        mechanism, credential = self._mechanism, self._credential
        signature = mechanism.hmac(credential.stored_key, message)
        if len(proof) != len(signature):
            raise LoginFailed(f"the proof of {self._first.user!r} has {len(proof)} bytes")
        if not hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key):
            raise LoginFailed(f"no user {self._first.user!r} with this password")
        if self._first.authorization_id not in (None, self._first.user):  # CVE-2017-12610
            raise LoginFailed(f"{self._first.user!r} asks to be {self._first.authorization_id!r}")
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, message))


class ScramClient:
    """One login, as a client."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extension}"
        self._expected = b""

    @property
    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def prove(self, challenge: bytes) -> bytes:
        """The last message. Hashes thousands of times: in a thread. LoginFailed where the server breaks the rules."""
        text = _text(challenge)
        match = _SERVER_FIRST.match(text)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginFailed("the first message of the server cannot be read")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise LoginFailed(
                f"the server asks for {iterations} iterations; {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are accepted"
            )
        try:
            salt = base64.b64decode(match["salt"], validate=True)
        except binascii.Error as error:
            raise LoginFailed("the salt of the server is not base64") from error
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, iterations)
        credential = from_salted(mechanism, salted, salt, iterations)
        without_proof = f"c=biws,r={match['nonce']}"
        message = f"{self._bare},{text},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, message)
        proof = _xor(mechanism.hmac(salted, b"Client Key"), signature)
        self._expected = mechanism.hmac(credential.server_key, message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, last: bytes) -> None:
        """LoginFailed unless the server has shown that it knows the password."""
        text = _text(last)
        try:
            signature = base64.b64decode(text.removeprefix("v=").partition(",")[0], validate=True)
        except binascii.Error as error:
            raise LoginFailed("the last message of the server cannot be read") from error
        if not text.startswith("v=") or not hmac.compare_digest(signature, self._expected):
            raise LoginFailed("the server does not know the password either: it is not the one that was meant")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LoginFailed("a message of SCRAM is not UTF-8") from error


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
