"""Encrypted passwords: Kafka's format, and what does not open."""

from __future__ import annotations

import pytest

from ottla.errors import ConfigError
from ottla.security.password_encoder import PasswordEncoder, UnreadablePasswordError, is_encoded

SALT, VECTOR = bytes(range(256)), bytes(range(16))
ENCODER = PasswordEncoder("the secret")


def test_what_was_encrypted_is_decrypted_with_the_same_secret_only():
    text = ENCODER.encode("a password, with: all \u20ac of it", SALT, VECTOR)
    assert is_encoded(text)
    assert "a password" not in text
    assert ENCODER.decode(text) == "a password, with: all \u20ac of it"
    with pytest.raises(UnreadablePasswordError):
        PasswordEncoder("another").decode(text)


def test_the_format_is_kafkas():
    parts = dict(part.split(":") for part in ENCODER.encode("password", SALT, VECTOR).split(","))
    assert parts.keys() == {
        "encryptedPassword",
        "keyLength",
        "cipherAlgorithm",
        "initializationVector",
        "keyFactoryAlgorithm",
        "passwordLength",
        "salt",
        "iterations",
    }
    assert (parts["cipherAlgorithm"], parts["keyFactoryAlgorithm"], parts["keyLength"], parts["iterations"]) == (
        "AES/CBC/PKCS5Padding",
        "PBKDF2WithHmacSHA512",
        "128",
        "4096",
    )
    shuffled = ",".join(f"{name}:{parts[name]}" for name in sorted(parts))
    assert is_encoded(shuffled)
    assert ENCODER.decode(shuffled) == "password"


@pytest.mark.parametrize("factory", ["PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA512"])
def test_other_settings_of_the_encoder_are_read_from_the_text(factory):
    text = PasswordEncoder("the secret", 2048, 256, factory).encode("password", SALT, VECTOR)
    assert ENCODER.decode(text) == "password"


@pytest.mark.parametrize(
    "change",
    [
        ("iterations:4096", "iterations:0"),
        ("iterations:4096", "iterations:99999999999"),
        ("keyLength:128", "keyLength:12"),
        ("passwordLength:8", "passwordLength:9"),
        ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        ("encryptedPassword:", "encryptedPassword:A"),
        ("PBKDF2WithHmacSHA512", "unknown"),
        (",salt:", ",salz:"),
    ],
)
def test_damage_is_noticed(change):
    text = ENCODER.encode("password", SALT, VECTOR).replace(*change)
    with pytest.raises(UnreadablePasswordError) as refused:
        ENCODER.decode(text)
    assert "password'" not in str(refused.value)


def test_a_password_is_not_taken_for_an_encrypted_one():
    for password in ("", "secret", "encryptedPassword", 'org.apache.X required username="a" password="b:c,d";'):
        assert not is_encoded(password)


@pytest.mark.parametrize(
    "encoder",
    [
        PasswordEncoder("s", key_factory="unknown"),
        PasswordEncoder("s", cipher="AES/GCM/NoPadding"),
        PasswordEncoder("s", key_bits=100),
    ],
)
def test_what_is_not_done_here_is_refused_at_the_start(encoder):
    with pytest.raises(ConfigError, match=r"password\.encoder\."):
        encoder.check()
