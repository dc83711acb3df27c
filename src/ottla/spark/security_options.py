"""`kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`: how the client of a source or a sink logs in.

The settings are those of every Ottla client, under their names in Java with `kafka.` before them. They travel to the
executors as a value that shows its protocol and nothing else, so no log, error or plan repeats a secret.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.spark.option_reader import OptionError, OptionReader

if TYPE_CHECKING:
    from ottla.client.settings import ClientSettings
    from ottla.net.client import Connector

PREFIX: Final = "kafka."
PROTOCOL: Final = "security.protocol"
PLAINTEXT: Final = "PLAINTEXT"
FAMILIES: Final = ("ssl.", "sasl.")
# Settings that name a file, which must be on every machine that connects.
FILES: Final = (
    "ssl.truststore.location",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
)
STORES: Final = ("ssl.truststore", "ssl.keystore")
PKCS12_ENDINGS: Final = (".p12", ".pfx")


@dataclass(frozen=True, slots=True)
class Security:
    """What a client shows and asks of its brokers, where that is more than nothing."""

    protocol: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)  # by their names in Java

    def check_files(self) -> None:
        """An OptionError for a file that this machine does not have."""
        for name, value in self.settings:
            if name in FILES and not os.path.isfile(value):
                raise OptionError(
                    f"{PREFIX}{name} is {value}, and {socket.gethostname()} has no such file: the driver and every "
                    "executor need it at the same place. Certificates and keys may also be given as PEM text, in "
                    "kafka.ssl.truststore.certificates, kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
                )

    def connector(self) -> Connector:
        """The way to brokers; an OptionError where the files or the login are no good."""
        from ottla.client.security import secure_connector
        from ottla.net.client import connect_tcp

        self.check_files()
        try:
            return secure_connector(_client_settings(dict(self.settings)), connect_tcp)
        except ConfigError as error:
            raise OptionError(f"kafka.security.protocol {self.protocol}: {error}") from error


def take_security(reader: OptionReader) -> Security | None:
    """What the options say of it, checked as far as it can be without files; None for plain connections."""
    protocol = reader.take(PREFIX + PROTOCOL, str, PLAINTEXT).strip().upper()
    names = [name for name in reader.left() if name.removeprefix(PREFIX).startswith(FAMILIES)]
    if protocol == PLAINTEXT and not names:
        return None
    from ottla.client.settings import ClientSettings

    given = {PROTOCOL: protocol}
    for name in names:
        java_name = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and ClientSettings.has_setting(java_name):
            given[java_name] = reader.take(name, str, "")
    return None if protocol == PLAINTEXT else security_of(given)


def security_of(settings: Mapping[str, str]) -> Security:
    """The same for settings without `kafka.`: those of any Ottla client."""
    given = dict(settings)
    for store in STORES:
        if given.get(f"{store}.location", "").lower().endswith(PKCS12_ENDINGS):
            given.setdefault(f"{store}.type", "PKCS12")
    checked = _client_settings(given)
    if checked.security_protocol.startswith("SASL_"):
        _check_login(checked)
    return Security(checked.security_protocol, tuple(sorted(given.items())))


def _client_settings(given: Mapping[str, str]) -> ClientSettings:
    from ottla.client.settings import ClientSettings

    try:
        # Where brokers are is not asked here.
        return ClientSettings.read({**given, "bootstrap.servers": "127.0.0.1:9092"})
    except ConfigError as error:
        raise OptionError(f"{PREFIX}{error}") from error


def _check_login(settings: ClientSettings) -> None:
    if settings.sasl_mechanism == "OAUTHBEARER":
        raise OptionError(
            "kafka.sasl.mechanism OAUTHBEARER needs a function that returns tokens, and an option is text: log in with "
            "SCRAM, PLAIN or a delegation token"
        )
    if settings.sasl_jaas_config is None and (settings.sasl_username is None or settings.sasl_password is None):
        raise OptionError(
            f"kafka.security.protocol {settings.security_protocol} needs kafka.sasl.jaas.config, such as: "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'
        )
