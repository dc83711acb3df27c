"""What a broker's settings say of ZooKeeper, before it is asked."""

import asyncio

import pytest

from ottla.broker.zookeeper_connection import connect_zookeeper
from ottla.config.broker import BrokerConfig
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.sasl.username"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/a.jks"}, "only PEM"),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/a.pem",
                "zookeeper.ssl.truststore.type": "PKCS12",
            },
            "zookeeper.ssl.truststore.type=PEM",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(settings: dict[str, str], reason: str) -> None:
    config, _ = BrokerConfig.load({"zookeeper.connect": "127.0.0.1:1", **settings})
    with pytest.raises(ConfigError, match=reason):
        asyncio.run(connect_zookeeper(config))
