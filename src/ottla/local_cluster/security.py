"""What `ottla up --secure` adds to a cluster: TLS, logins by SCRAM, ACLs, and a ZooKeeper that only brokers may change.

Everything is in the directory `security` of the cluster, which only its owner may enter:

ca.pem, ca.key, broker.pem  an authority and the certificate of the brokers
admin.properties            the settings of a client that logs in as the administrator
zookeeper-jaas.conf         the user of the brokers in ZooKeeper
secrets.json                all passwords
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.config.jaas import SCRAM_MODULE
from ottla.config.security_settings import SCRAM_SHA_512
from ottla.errors import ConfigError
from ottla.local_cluster.certificates import Authority
from ottla.local_cluster.private_files import write_private

PROTOCOL: Final = "SASL_SSL"
ADMIN, BROKER, ZOOKEEPER_USER = "admin", "broker", "ottla"
HOSTS: Final = ("localhost", "127.0.0.1")
SECRET_BYTES: Final = 24
DAYS: Final = 3650  # nobody renews them, and they are good for this machine only
OWNER_MAY_ENTER: Final = 0o700
ZOOKEEPER_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
ADMIN_FILE: Final = "admin.properties"
JAAS_FILE: Final = "zookeeper-jaas.conf"
SECRETS_FILE: Final = "secrets.json"
TRUSTSTORE: Final = "ca.pem"


@dataclass(frozen=True, slots=True)
class Secrets:
    admin_password: str = field(repr=False)
    broker_password: str = field(repr=False)
    zookeeper_password: str = field(repr=False)
    delegation_token_key: str = field(repr=False)
    password_encoder_secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Secrets:
        return cls(*(secrets.token_urlsafe(SECRET_BYTES) for _ in dataclasses.fields(cls)))


class ClusterSecurity:
    """The secrets of one cluster."""

    def __init__(self, directory: Path) -> None:
        """Opens what `make_security` has made."""
        self.admin_file = directory / ADMIN_FILE
        self._jaas_file = directory / JAAS_FILE
        self._keystore = directory / f"{BROKER}.pem"
        self._truststore = directory / TRUSTSTORE
        path = directory / SECRETS_FILE
        try:
            self._secrets = Secrets(**json.loads(path.read_text()))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; without it this cluster cannot be reached") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}: does not hold the secrets of a cluster") from error

    @property
    def admin_password(self) -> str:
        return self._secrets.admin_password

    def broker_settings(self) -> dict[str, str]:
        """The settings of every broker."""
        passwords = {ADMIN: self._secrets.admin_password, BROKER: self._secrets.broker_password}
        users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
        login = f'username="{BROKER}" password="{self._secrets.broker_password}"'
        return {
            "security.inter.broker.protocol": PROTOCOL,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._truststore),
            "sasl.enabled.mechanisms": SCRAM_SHA_512,
            "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
            f"listener.name.{PROTOCOL.lower()}.{SCRAM_SHA_512.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required "
            f"{login} {users};",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
            "delegation.token.secret.key": self._secrets.delegation_token_key,
            "password.encoder.secret": self._secrets.password_encoder_secret,
        }

    def of_zookeeper(self) -> dict[str, str]:
        """The settings of brokers about ZooKeeper: their login, and that only they may change what they write."""
        return {
            "zookeeper.sasl.username": ZOOKEEPER_USER,
            "zookeeper.sasl.password": self._secrets.zookeeper_password,
            "zookeeper.set.acl": "true",
        }

    def zookeeper_settings(self) -> dict[str, str]:
        """The settings of ZooKeeper itself: without a login there is no session."""
        return {
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": "true",
        }

    def java_options(self, directory: Path) -> list[str]:
        """For a ZooKeeper that runs in this directory of the same cluster, which may have a name that Java mistakes."""
        return [f"-Djava.security.auth.login.config={os.path.relpath(self._jaas_file, directory)}"]


def make_security(directory: Path) -> None:
    """Makes the keys and passwords of a new cluster."""
    directory.mkdir(mode=OWNER_MAY_ENTER, parents=True, exist_ok=True)
    made = Secrets.new()
    Authority(directory, "ottla up", days=DAYS).create(BROKER, HOSTS)
    jaas = f'Server {{\n  {ZOOKEEPER_MODULE} required\n  user_{ZOOKEEPER_USER}="{made.zookeeper_password}";\n}};\n'
    write_private(directory / JAAS_FILE, jaas.encode())
    settings = {
        "security.protocol": PROTOCOL,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / TRUSTSTORE),
        "sasl.mechanism": SCRAM_SHA_512,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{ADMIN}" password="{made.admin_password}";',
    }
    write_private(directory / ADMIN_FILE, "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
    write_private(directory / SECRETS_FILE, json.dumps(dataclasses.asdict(made)).encode())
