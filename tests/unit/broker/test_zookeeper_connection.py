"""What a broker's settings say of ZooKeeper, before it is asked."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from ottla.broker.zookeeper_connection import connect_zookeeper
from ottla.config.broker import BrokerConfig
from ottla.errors import ConfigError
from ottla.store import zookeeper
from ottla.store.zookeeper import ZooKeeperOptions


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


def test_times_and_limits_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = AsyncMock()
    monkeypatch.setattr(zookeeper, "connect", made)

    def options(**settings: str) -> ZooKeeperOptions:
        config, _ = BrokerConfig.load({"zookeeper.connect": "127.0.0.1:1/a", **settings})
        asyncio.run(connect_zookeeper(config))
        assert made.await_args is not None
        asked: ZooKeeperOptions = made.await_args.args[0]
        return asked

    assert options() == ZooKeeperOptions("127.0.0.1:1/a", 18.0, 18.0, 10)
    assert options(**{"zookeeper.session.timeout.ms": "6000"}) == ZooKeeperOptions("127.0.0.1:1/a", 6.0, 6.0, 10)
    settings = {"zookeeper.connection.timeout.ms": "2000", "zookeeper.max.in.flight.requests": "64"}
    assert options(**settings) == ZooKeeperOptions("127.0.0.1:1/a", 18.0, 2.0, 64)
