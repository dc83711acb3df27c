"""Tokens of OAUTHBEARER, delegation tokens, and real clients: ours, librdkafka and the Java client."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import KafkaError
from confluent_kafka import Producer as LibrdkafkaProducer

from ottla import Admin, Consumer, Producer
from ottla.client.admin.users import Principal
from ottla.client.errors import ConfigurationError
from ottla.errors import ApiError, ErrorCode
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.security import Security
from ottla.testing.token_issuer import TokenIssuer, jwks
from ottla.testing.waiting import WAIT_S

ISSUER = TokenIssuer("RS256")
STRANGER = TokenIssuer("RS256")


def token(issuer: TokenIssuer = ISSUER, lifetime_s: int = 600) -> str:
    now_s = int(time.time())
    return issuer.token(
        {
            "sub": "alice",
            "scope": "kafka",
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "aud": "kafka",
            "iss": "https://issuer",
        }
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(jwks(ISSUER))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    with Broker(settings, security=Security("SASL_SSL")) as running:
        yield running


def common(broker: Broker) -> dict[str, Any]:
    settings: dict[str, Any] = broker.client_settings()
    del settings["sasl.jaas.config"]
    return {**settings, "sasl.mechanism": "OAUTHBEARER"}


def test_our_clients_log_in_by_a_token_and_get_new_ones_in_time(broker: Broker) -> None:
    given: list[str] = []

    def provider() -> str:
        given.append(token(lifetime_s=3))
        return given[-1]

    settings = {**common(broker), "sasl_token_provider": provider}
    sent = 0
    with Producer(settings) as producer:
        while len(given) < 4:  # the session is renewed
            producer.send("ours", b"%d" % sent).result(WAIT_S)
            sent += 1
    with Consumer({**settings, "group.id": "ours", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["ours"])
        found = 0
        while found < sent:
            found += sum(len(records) for records in consumer.poll(WAIT_S).values())
    refused = {**settings, "sasl_token_provider": lambda: token(STRANGER)}
    with pytest.raises(ConfigurationError), Producer(refused) as producer:
        producer.send("ours", b"x").result(WAIT_S)


def test_librdkafka(broker: Broker) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": broker.client_settings()["ssl.truststore.location"],
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 600),
    }
    producer = LibrdkafkaProducer(settings)
    producer.produce("rd", b"value")
    assert producer.flush(WAIT_S) == 0
    consumer = Librdkafka({**settings, "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    record = consumer.poll(WAIT_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"value"
    errors: list[Any] = []
    refused = LibrdkafkaProducer(
        {**settings, "oauth_cb": lambda _: (token(STRANGER), time.time() + 600), "error_cb": errors.append}
    )
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        refused.poll(0.1)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}")
def test_the_java_client(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token())
    config = tmp_path / "client.properties"
    settings = {
        **common(broker),
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def topics() -> subprocess.CompletedProcess[str]:
        command = ApacheKafka.resolve(KAFKA_4).java(
            "org.apache.kafka.tools.TopicCommand",
            "128m",
            ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config), "--list"],
            {"defaultLogLevel": "error"},
        )
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}")
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}")
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)

    with Producer({**common(broker), "sasl_token_provider": token}) as producer:
        producer.send("java", b"x").result(WAIT_S)
    done = topics()
    assert (done.returncode, "java" in done.stdout.split()) == (0, True), done
    file.write_text(token(STRANGER))
    refused = topics()
    assert refused.returncode != 0
    assert "invalid_token" in refused.stdout + refused.stderr


# -- delegation tokens -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_delegation() -> Iterator[Broker]:
    settings = {"delegation.token.secret.key": "the same on all brokers"}
    with Broker(settings, security=Security("SASL_SSL")) as running:
        yield running


def test_our_clients_make_a_delegation_token_and_log_in_by_it(with_delegation: Broker) -> None:
    settings: dict[str, Any] = with_delegation.client_settings("alice")
    with Admin(settings) as admin:
        made = admin.create_delegation_token(renewers=[Principal("User", "bob")])
        assert [each.token_id for each in admin.describe_delegation_tokens()] == [made.token_id]
    password = base64.b64encode(made.hmac).decode()
    by_token = {
        **settings,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{made.token_id}" password="{password}" tokenauth="true";',
    }
    with Producer(by_token) as producer:
        producer.send("delegated", b"x").result(WAIT_S)
    with Admin(by_token) as admin, pytest.raises(ApiError) as refused:
        admin.create_delegation_token()
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with Admin(with_delegation.client_settings("bob")) as admin:
        admin.expire_delegation_token(made.hmac)
    with pytest.raises(ConfigurationError), Producer(by_token) as producer:
        producer.send("delegated", b"x").result(WAIT_S)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}")
def test_kafkas_own_tool_and_client(with_delegation: Broker, tmp_path: Path) -> None:
    config = tmp_path / "alice.properties"

    def tool(main: str, *arguments: str) -> str:
        command = ApacheKafka.resolve(KAFKA_4).java(
            main,
            "128m",
            ["--bootstrap-server", with_delegation.bootstrap_servers, "--command-config", str(config), *arguments],
            {"defaultLogLevel": "error"},
        )
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done
        return done.stdout

    def write(settings: dict[str, str]) -> None:
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    settings = with_delegation.client_settings("alice")
    write(settings)
    tokens = "org.apache.kafka.tools.DelegationTokenCommand"
    made = tool(tokens, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = [word for word in made.splitlines()[-1].split() if word]
    token_id, password = row[0], row[1]
    assert token_id in tool(tokens, "--describe", "--owner-principal", "User:alice")
    tool(tokens, "--renew", "--renew-time-period", "-1", "--hmac", password)
    write(
        {
            **settings,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token_id}" password="{password}" tokenauth="true";',
        }
    )
    tool("org.apache.kafka.tools.TopicCommand", "--list")
    write(settings)
    tool(tokens, "--expire", "--expiry-time-period", "-1", "--hmac", password)
    assert token_id not in tool(tokens, "--describe")
