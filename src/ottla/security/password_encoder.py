"""Passwords among the settings in the metadata store, encrypted as Kafka does in ZooKeeper.

The key comes from `password.encoder.secret` by PBKDF2, with a salt for each password; the cipher is AES in CBC mode.
The text names everything but the secret, so that the settings of the encoder may change.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import ConfigError, OttlaError

SALT_BYTES: Final = 256
BLOCK_BYTES: Final = 16
ITERATIONS_MAX: Final = 10_000_000
CIPHER: Final = "AES/CBC/PKCS5Padding"
KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
# Every text of an encoder begins with the name of one of its parts.
_ENCODED: Final = re.compile(r"(?:[A-Za-z]+:[^,:]*,)*encryptedPassword:[^,:]+(?:,[A-Za-z]+:[^,:]*)*")
_HASHES: Final = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}


class UnreadablePasswordError(OttlaError):
    """An encrypted password that this secret does not open."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts with one secret. Each call takes milliseconds: in a thread."""

    secret: str = field(repr=False)
    iterations: int = 4096
    key_bits: int = 128
    key_factory: str = KEY_FACTORY
    cipher: str = CIPHER

    def check(self) -> None:
        """ConfigError for what is not done here."""
        if self.key_factory not in _HASHES:
            raise ConfigError(f"password.encoder.keyfactory.algorithm: must be one of {', '.join(_HASHES)}")
        if self.cipher != CIPHER:
            raise ConfigError(f"password.encoder.cipher.algorithm: must be {CIPHER}")
        if self.key_bits not in (128, 192, 256):
            raise ConfigError("password.encoder.key.length: must be 128, 192 or 256")
        _cipher_parts()

    def encode(self, password: str, salt: bytes, vector: bytes) -> str:
        """`salt` and `vector` are random, and never used twice."""
        ciphers, padding = _cipher_parts()
        padder = padding.PKCS7(8 * BLOCK_BYTES).padder()
        plain = padder.update(password.encode()) + padder.finalize()
        key = _key(self.secret, self.key_factory, salt, self.iterations, self.key_bits)
        encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(vector)).encryptor()
        parts = {
            "encryptedPassword": _base64(encryptor.update(plain) + encryptor.finalize()),
            "keyLength": self.key_bits,
            "cipherAlgorithm": self.cipher,
            "initializationVector": _base64(vector),
            "keyFactoryAlgorithm": self.key_factory,
            "passwordLength": len(password),
            "salt": _base64(salt),
            "iterations": self.iterations,
        }
        return ",".join(f"{name}:{value}" for name, value in parts.items())

    def decode(self, text: str) -> str:
        """UnreadablePasswordError where another secret was used, or the text is damaged."""
        ciphers, padding = _cipher_parts()
        parts = dict(part.rpartition(":")[::2] for part in text.split(","))
        try:
            if parts["cipherAlgorithm"] != CIPHER:
                raise UnreadablePasswordError(f"is encrypted with {parts['cipherAlgorithm']}; only {CIPHER} is read")
            iterations = int(parts["iterations"])
            if not 0 < iterations <= ITERATIONS_MAX:
                raise ValueError("iterations")
            salt = base64.b64decode(parts["salt"], validate=True)
            vector = base64.b64decode(parts["initializationVector"], validate=True)
            key = _key(self.secret, parts["keyFactoryAlgorithm"], salt, iterations, int(parts["keyLength"]))
            decryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(vector)).decryptor()
            encrypted = base64.b64decode(parts["encryptedPassword"], validate=True)
            unpadder = padding.PKCS7(8 * BLOCK_BYTES).unpadder()
            plain = unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()
            password = bytes(plain).decode()
            if len(password) != int(parts["passwordLength"]):
                raise ValueError("length")
        except (KeyError, ValueError, binascii.Error) as error:
            raise UnreadablePasswordError("cannot be decrypted with password.encoder.secret") from error
        return password


def is_encoded(text: str) -> bool:
    """Whether a text was made by an encoder; a password that was stored before there was a secret was not."""
    return _ENCODED.fullmatch(text) is not None


def _key(secret: str, key_factory: str, salt: bytes, iterations: int, key_bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASHES[key_factory], secret.encode(), salt, iterations, key_bits // 8)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cipher_parts() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import ciphers, padding
        from cryptography.hazmat.primitives.ciphers import algorithms, modes  # noqa: F401 (loads them)
    except ImportError as error:
        raise ConfigError(
            "password.encoder.secret needs cryptography to encrypt passwords: pip install 'ottla[security]'"
        ) from error
    return ciphers, padding
