"""A secured broker for tests: certificates, users and, if asked for, ACLs, in one value.

    with Broker(security=Security("SASL_SSL")) as broker:
        producer = Producer(broker.client_settings("alice"))

Users have the passwords that `password` tells. `admin` is a super user, and the one by whom brokers know each other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.config.jaas import MODULES
from ottla.local_cluster.certificates import Authority

if TYPE_CHECKING:
    from ottla.local_cluster.certificates import CertificateFiles

ADMIN = "admin"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def password(user: str) -> str:
    return f"{user}-secret"


@dataclass(slots=True)
class Security:
    """What a broker asks of its clients. Certificates are made in `directory` when first needed."""

    protocol: str
    mechanism: str = "SCRAM-SHA-512"  # of clients that do not say otherwise; the broker has all of them
    users: Sequence[str] = (ADMIN, "alice", "bob")
    client_auth: str = "none"
    hosts: Sequence[str] = ("localhost", "127.0.0.1")
    _scratch: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False, repr=False)
    _authority: Authority | None = field(default=None, init=False, repr=False)

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def authority(self) -> Authority:
        if self._authority is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="ottla-certificates-")
            self._authority = Authority(Path(self._scratch.name))
        return self._authority

    def broker_settings(self) -> dict[str, str]:
        name = self.protocol.lower()
        settings = {"security.inter.broker.protocol": self.protocol}
        if self.has_tls:
            files = self.authority.create("broker", self.hosts)
            settings |= tls_settings(files) | {f"listener.name.{name}.ssl.client.auth": self.client_auth}
        if self.has_sasl:
            settings |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": self.mechanism,
                **{
                    f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config": self._jaas(mechanism)
                    for mechanism in MECHANISMS
                },
            }
        return settings

    def _jaas(self, mechanism: str) -> str:
        users = " ".join(f'user_{user}="{password(user)}"' for user in self.users)
        return f'{MODULES[mechanism]} required username="{ADMIN}" password="{password(ADMIN)}" {users};'

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """In Java's names."""
        settings = {"security.protocol": self.protocol}
        if self.has_tls:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.truststore)}
            if self.client_auth != "none":
                files = self.authority.create(user)
                settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.keystore)}
        if self.has_sasl:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f'{MODULES[self.mechanism]} required username="{user}" '
                f'password="{password(user)}";',
            }
        return settings

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = self._authority = None


def tls_settings(files: CertificateFiles) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.truststore),
    }
