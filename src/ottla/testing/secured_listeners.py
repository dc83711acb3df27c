"""The settings of a broker with several secured listeners, for ours and for Apache Kafka alike.

Certificates are made by the authority that is given; users have the passwords that `ottla.testing.security` tells.
ANONYMOUS is a super user, so that a listener without login is the place to set everything up; others need ACLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.config.jaas import MODULES
from ottla.local_cluster.certificates import Authority
from ottla.net.ports import free_ports
from ottla.testing.security import ADMIN, MECHANISMS, password, tls_settings

LOOPBACK = "127.0.0.1"
HOSTS = ("localhost", LOOPBACK)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(slots=True)
class SecuredListeners:
    """Listeners by name with their protocols, each on a free port; the first is the one of the brokers."""

    protocols: Mapping[str, str]
    authority: Authority
    users: tuple[str, ...] = (ADMIN, "alice", "bob")
    mechanisms: tuple[str, ...] = MECHANISMS
    ports: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ports = dict(zip(self.protocols, free_ports(len(self.protocols)), strict=True))

    def address(self, name: str) -> str:
        return f"{LOOPBACK}:{self.ports[name]}"

    def settings(self, *, has_acls: bool = True) -> dict[str, str]:
        first = next(iter(self.protocols))
        settings = {
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in self.protocols),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in self.protocols.items()),
            "inter.broker.listener.name": first,
            "sasl.enabled.mechanisms": ",".join(self.mechanisms),
            **tls_settings(self.authority.create("broker", HOSTS)),
        }
        for name, protocol in self.protocols.items():
            if protocol.startswith("SASL_"):
                settings |= {
                    f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": self._jaas(mechanism)
                    for mechanism in self.mechanisms
                }
        if has_acls:
            settings |= {"authorizer.class.name": AUTHORIZER, "super.users": f"User:ANONYMOUS;User:{ADMIN}"}
        return settings

    def _jaas(self, mechanism: str) -> str:
        if mechanism not in MECHANISMS:
            return f"{MODULES[mechanism]} required;"
        users = " ".join(f'user_{user}="{password(user)}"' for user in self.users)
        return f'{MODULES[mechanism]} required username="{ADMIN}" password="{password(ADMIN)}" {users};'
