"""How a broker shows other brokers who it is."""

from __future__ import annotations

import pytest

from ottla.broker.inter_broker import inter_broker_connector
from ottla.config.broker import BrokerConfig
from ottla.errors import ConfigError
from ottla.net.client import connect_tcp
from ottla.net.login import SecureConnector

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = 'username="broker" password="secret"'


def config(login: str = LOGIN, mechanism: str = "PLAIN") -> BrokerConfig:
    """Clients come without a login, brokers by a listener of their own."""
    loaded, _ = BrokerConfig.load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": f'{MODULE} required {login} user_broker="secret";',
            "sasl.mechanism.inter.broker.protocol": mechanism,
        }
    )
    return loaded


def test_the_inter_broker_listener_says_how_brokers_log_in() -> None:
    connector = inter_broker_connector(config(), connect_tcp)
    assert isinstance(connector, SecureConnector)
    assert connector.credentials is not None
    assert (connector.credentials.mechanism, connector.credentials.username) == ("PLAIN", "broker")
    assert "secret" not in repr(connector.credentials)


def test_a_plain_listener_needs_no_login() -> None:
    plain, _ = BrokerConfig.load({})
    assert inter_broker_connector(plain, connect_tcp) is connect_tcp


def test_a_login_that_is_missing_or_not_enabled_is_an_error() -> None:
    with pytest.raises(ConfigError, match="username and password"):
        inter_broker_connector(config(login=""), connect_tcp)
    with pytest.raises(ConfigError, match="not enabled on listener INSIDE"):
        inter_broker_connector(config(mechanism="SCRAM-SHA-256"), connect_tcp)
