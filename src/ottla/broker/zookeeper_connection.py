"""From a broker's settings to its connection to ZooKeeper."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.errors import ConfigError
from ottla.store.api import Store

PEM = "PEM"


async def connect_zookeeper(config: BrokerConfig) -> Store:
    """The store of a cluster, as `zookeeper.connect` and what belongs to it say."""
    try:
        from ottla.store import zookeeper  # not at the top: a broker that is alone does not need kazoo
    except ImportError as error:
        raise ConfigError(
            "zookeeper.connect is set, and kazoo is not installed: pip install 'ottla[cluster]'"
        ) from error

    assert config.zookeeper_connect is not None
    session_timeout_s = config.zookeeper_session_timeout_ms / 1000
    connection_timeout_ms = config.zookeeper_connection_timeout_ms
    tls, digest = None, None
    if config.zookeeper_ssl_client_enable:
        _check_pem("zookeeper.ssl.keystore", config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_type)
        _check_pem(
            "zookeeper.ssl.truststore", config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_truststore_type
        )
        tls = zookeeper.ZooKeeperTls(
            config.zookeeper_ssl_truststore_location,
            config.zookeeper_ssl_keystore_location,
            config.zookeeper_ssl_keystore_location,
            config.zookeeper_ssl_keystore_password,
            verify_host_name=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        )
    if config.zookeeper_sasl_username is not None:
        digest = zookeeper.Digest(config.zookeeper_sasl_username, config.zookeeper_sasl_password or "")
    elif config.zookeeper_set_acl:
        raise ConfigError(
            "zookeeper.set.acl=true: nodes are for whoever logs in to ZooKeeper; set zookeeper.sasl.username and "
            "zookeeper.sasl.password"
        )
    return await zookeeper.connect(
        zookeeper.ZooKeeperOptions(
            config.zookeeper_connect,
            session_timeout_s=session_timeout_s,
            connection_timeout_s=session_timeout_s if connection_timeout_ms is None else connection_timeout_ms / 1000,
            in_flight_max=config.zookeeper_max_in_flight_requests,
            tls=tls,
            digest=digest,
            set_acl=config.zookeeper_set_acl,
        )
    )


def _check_pem(prefix: str, location: str | None, kind: str | None) -> None:
    """Kafka recognises the format by the type, or else by the name of the file."""
    is_pem = kind.upper() == PEM if kind else location is None or location.endswith(".pem")
    if not is_pem:
        raise ConfigError(
            f"{prefix}.location: only PEM files are read; convert it with `openssl pkcs12 -in store.p12 -nodes -out "
            f"store.pem` (a JKS with `keytool -importkeystore -deststoretype PKCS12` first), and set {prefix}.type=PEM"
        )
