"""SCRAM credentials (RFC 5802): what a server keeps of a password, and how Kafka writes it down.

A password is hashed thousands of times to make one: `derive` takes milliseconds and belongs into a thread. A login
needs three more hashes and no password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ottla.errors import OttlaError

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384  # through the API; other tools may have stored more
SALT_BYTES = 20


class ScramMechanism(IntEnum):
    """Kafka's numbers on the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def digest(self) -> Callable[..., Any]:
        return hashlib.sha256 if self is ScramMechanism.SCRAM_SHA_256 else hashlib.sha512

    def hash(self, data: bytes) -> bytes:
        return bytes(self.digest(data).digest())

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)


BY_SASL_NAME = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class DamagedCredentialError(OttlaError):
    """What is stored is not a credential."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What proves a password without holding it. Never shown."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def to_text(self) -> str:
        """As Kafka stores it."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def from_text(cls, text: str) -> ScramCredential:
        """DamagedCredentialError where the text does not hold exactly the four parts."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise DamagedCredentialError("a stored SCRAM credential does not have its four parts")
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(parts["iterations"]))
        except (binascii.Error, ValueError) as error:
            raise DamagedCredentialError("a stored SCRAM credential cannot be read") from error


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: in a thread. No SASLprep, as in Kafka."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def from_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    client_key = mechanism.hmac(salted, b"Client Key")
    return ScramCredential(salt, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"), iterations)


def derive(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """The credential of a password. Takes milliseconds: in a thread."""
    return from_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def fake_credential(mechanism: ScramMechanism, secret: bytes, user: str) -> ScramCredential:
    """For a user that does not exist: the same salt each time, and no password fits. So nobody learns who exists."""
    salt = hmac.digest(secret, f"salt {user}".encode(), "sha256")[:SALT_BYTES]
    key = mechanism.hmac(secret, f"key {user}".encode())
    return ScramCredential(salt, key, key, ITERATIONS_MIN)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
