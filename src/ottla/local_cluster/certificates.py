"""Certificates for trying TLS out: an authority, and certificates that it signs. Not a way to run one for real.

Keys are of the curve P-256: they sign a handshake in a tenth of the time of RSA. Files hold PEM; those with a key are
readable by their owner only.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.errors import ConfigError
from ottla.local_cluster.private_files import write_private

DAYS_DEFAULT = 365
DAYS_MAX = 100 * 365  # a certificate knows years up to 9999; some readers of it fewer
AUTHORITY = "ca"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """What a broker or a client needs: its key and certificate in one file, and whom to trust."""

    keystore: Path
    truststore: Path


class Authority:
    """Signs certificates. Its key is in the directory, for later ones."""

    def __init__(self, directory: Path, name: str = "ottla test authority", days: int = DAYS_DEFAULT) -> None:
        """Opens the authority of a directory, or makes one."""
        x509, ec, hashes, serialization = _cryptography()
        self._x509, self._ec, self._hashes, self._serialization = x509, ec, hashes, serialization
        self._directory = directory
        self._days = days
        directory.mkdir(parents=True, exist_ok=True)
        self.truststore = directory / f"{AUTHORITY}.pem"
        key_file = directory / f"{AUTHORITY}.key"
        if key_file.exists():
            try:
                self._key = serialization.load_pem_private_key(key_file.read_bytes(), None)
                self._certificate = x509.load_pem_x509_certificate(self.truststore.read_bytes())
            except (ValueError, TypeError) as error:  # a TypeError where the key is encrypted
                raise ConfigError(
                    f"{key_file} and {self.truststore} are not the key and the certificate of an authority that was "
                    "made here; name another directory"
                ) from error
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(self._name(name), self._key, None, is_authority=True)
        write_private(key_file, self._pem_of_key(self._key))
        self.truststore.write_bytes(self._pem_of(self._certificate))

    def create(self, name: str, hosts: Sequence[str] = (), *, days: int | None = None) -> CertificateFiles:
        """A certificate with this name; of a broker, for these host names and addresses. `days` < 0: expired."""
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        certificate = self._signed(self._name(name), key, hosts, days=days)
        keystore = self._directory / f"{name}.pem"
        write_private(keystore, self._pem_of_key(key) + self._pem_of(certificate) + self._pem_of(self._certificate))
        return CertificateFiles(keystore, self.truststore)

    def _signed(
        self,
        subject: Any,
        key: Any,
        hosts: Sequence[str] | None,
        *,
        is_authority: bool = False,
        days: int | None = None,
    ) -> Any:
        x509 = self._x509
        now = datetime.datetime.now(datetime.UTC)
        until = now + datetime.timedelta(days=self._days if days is None else days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, until) - datetime.timedelta(days=1))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            usage = dict.fromkeys(
                (
                    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
                    "key_agreement", "encipher_only", "decipher_only",
                ),
                False,
            )  # fmt: skip
            builder = builder.add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        if hosts:
            names = x509.SubjectAlternativeName([self._host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, self._hashes.SHA256())

    def _name(self, name: str) -> Any:
        oid = self._x509.oid.NameOID
        return self._x509.Name(
            [
                self._x509.NameAttribute(oid.ORGANIZATION_NAME, "Ottla"),
                self._x509.NameAttribute(oid.COMMON_NAME, name),
            ]
        )

    def _host(self, host: str) -> Any:
        try:
            return self._x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            return self._x509.DNSName(host)

    def _pem_of(self, certificate: Any) -> bytes:
        return bytes(certificate.public_bytes(self._serialization.Encoding.PEM))

    def _pem_of_key(self, key: Any) -> bytes:
        serialization = self._serialization
        return bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigError("to make certificates, cryptography is needed: pip install 'ottla[security]'") from error
    return x509, ec, hashes, serialization
