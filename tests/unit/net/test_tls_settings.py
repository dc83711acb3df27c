"""Keys and certificates that cannot be used: the error says what is wrong with them, and repeats nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError
from ottla.local_cluster.certificates import Authority
from ottla.net.tls import client_context, server_context

END = "-----END PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    found: dict[str, str] = {}
    for name in ("broker", "other"):
        text = Path(authority.create(name, ("localhost",)).keystore).read_text()
        key = text[text.index("-----BEGIN PRIVATE KEY") : text.index(END) + len(END)]
        found |= {f"{name} key": key, f"{name} certificates": text.replace(key, "")}
    private = load_pem_private_key(found["broker key"].encode(), None)
    encrypted = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
    return {**found, "encrypted": encrypted.decode(), "garbage": "hello"}


@pytest.mark.parametrize(
    ("parts", "password", "reason"),
    [
        (("broker certificates",), None, "there is no private key"),
        (("broker key",), None, "there is no certificate"),
        (("garbage",), None, "there is no private key"),
        ((), None, "there is no private key"),
        (("other key", "broker certificates"), None, "not that of the first certificate"),
        (("encrypted", "broker certificates"), None, "set ssl.key.password"),
        (("encrypted", "broker certificates"), "wrong", "ssl.key.password does not open the key"),
    ],
)
def test_a_key_store_that_cannot_be_used_says_why(
    pem: dict[str, str], tmp_path: Path, parts: tuple[str, ...], password: str | None, reason: str
) -> None:
    text = "".join(pem[part] for part in parts)
    path = tmp_path / "broker.pem"
    path.write_text(text)
    settings: dict[str, Any] = {"keystore_type": "PEM", "keystore_location": str(path), "key_password": password}
    with pytest.raises(ConfigError, match=reason) as refused:
        server_context(TlsConfig(**settings))
    assert str(path) in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_certificates_to_trust_that_are_none_are_told(pem: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(pem["broker key"])
    with pytest.raises(ConfigError, match="there is no certificate in it"):
        client_context(TlsConfig(truststore_type="PEM", truststore_location=str(path)))
