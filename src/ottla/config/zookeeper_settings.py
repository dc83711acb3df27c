"""Settings of a broker about its connection to ZooKeeper: how many requests, TLS, the login, who may change nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import Kind, setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ZooKeeperSettings:
    """Kafka's names, but for the login: Kafka takes that from a file of the Java virtual machine."""

    zookeeper_max_in_flight_requests: int = setting(
        Kind.INT,
        10,
        "How many requests to ZooKeeper may be on their way. A controller that takes over reads a node for each "
        "partition: with more of them it is there sooner.",
        minimum=1,
    )
    zookeeper_ssl_client_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether the connection to ZooKeeper is encrypted; `zookeeper.connect` names TLS ports then.",
    )
    zookeeper_ssl_truststore_location: str | None = setting(
        Kind.STRING, None, "The certificates that ZooKeeper's are checked with, as a PEM file."
    )
    zookeeper_ssl_truststore_type: str | None = setting(Kind.STRING, None, "The format of that file: PEM.")
    zookeeper_ssl_keystore_location: str | None = setting(
        Kind.STRING, None, "The broker's key and certificates for ZooKeeper, as a PEM file."
    )
    zookeeper_ssl_keystore_password: str | None = setting(Kind.PASSWORD, None, "The password of the key in that file.")
    zookeeper_ssl_keystore_type: str | None = setting(Kind.STRING, None, "The format of that file: PEM.")
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        Kind.STRING,
        "HTTPS",
        "How ZooKeeper's host name is checked against its certificate: `HTTPS`, or empty for not at all.",
    )
    zookeeper_sasl_username: str | None = setting(
        Kind.STRING, None, "The user as whom the broker logs in to ZooKeeper, by SASL DIGEST-MD5."
    )
    zookeeper_sasl_password: str | None = setting(Kind.PASSWORD, None, "The password of that user.")
    zookeeper_set_acl: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether only this user may change what brokers write to ZooKeeper, and read its secrets.",
    )
