"""Listeners with TLS and logins, and clients that use them: ours, librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla import Consumer, Producer
from ottla.cli.main import main
from ottla.client.errors import ConfigurationError
from ottla.errors import ConfigError, ErrorCode
from ottla.local_cluster.certificates import Authority
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequestAlterConfigsResource as AlterConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.security import Security, password

WAIT_S = 60
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
def secured(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(security=Security(request.param)) as broker:
        yield broker


@pytest.fixture(scope="module")
def sasl_ssl() -> Iterator[Broker]:
    with Broker(security=Security("SASL_SSL")) as broker:
        yield broker


def exchange_records(settings: dict[str, Any]) -> None:
    topic = f"t-{next(_numbers)}"
    values = [b"%d" % number + bytes(number) for number in range(0, 200_000, 10_000)]
    with Producer(settings) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()
    with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for records in consumer.poll(WAIT_S).values() for record in records]
    assert found == values


def test_our_clients_write_and_read_by_every_protocol(secured: Broker) -> None:
    exchange_records(secured.client_settings("alice"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_our_clients_log_in_by_every_mechanism(sasl_ssl: Broker, mechanism: str) -> None:
    settings = sasl_ssl.client_settings("alice")
    del settings["sasl.jaas.config"]
    exchange_records(
        {**settings, "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password("alice")}
    )


def test_a_wrong_password_is_an_error_and_not_a_long_wait(sasl_ssl: Broker) -> None:
    settings = sasl_ssl.client_settings("alice")
    wrong = settings["sasl.jaas.config"].replace(password("alice"), "wrong")
    with (
        pytest.raises(ConfigurationError) as refused,
        Producer({**settings, "sasl.jaas.config": wrong}) as producer,
    ):
        producer.send("t", b"x").result(WAIT_S)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong" not in str(refused.value)


def test_a_broker_that_is_not_the_one_that_was_meant_gets_no_password(tmp_path: Path) -> None:
    with Broker(security=Security("SASL_SSL", hosts=("elsewhere.example",))) as broker:
        settings = broker.client_settings("alice")
        other_name = r"TLS handshake failed: .*127.0.0.1.*; connect to a name that is in the broker's certificate"
        with pytest.raises(ConfigurationError, match=other_name), Producer(settings) as producer:
            producer.send("t", b"x").result(WAIT_S)
        exchange_records({**settings, "ssl.endpoint.identification.algorithm": ""})
        del settings["ssl.truststore.location"], settings["ssl.truststore.type"]
        unknown = (
            r"TLS handshake failed: self-signed .*; set ssl\.truststore\.location to the certificate of the authority"
        )
        with pytest.raises(ConfigurationError, match=unknown), Producer(settings) as producer:
            producer.send("t", b"x").result(WAIT_S)


def test_a_client_without_the_certificate_that_a_listener_asks_for_learns_what_to_set() -> None:
    with Broker(security=Security("SSL", client_auth="required")) as broker:
        settings = broker.client_settings("alice")
        del settings["ssl.keystore.location"], settings["ssl.keystore.type"]
        with (
            pytest.raises(ConfigurationError, match="the listener asks for a certificate of the client"),
            Producer(settings) as producer,
        ):
            producer.send("t", b"x").result(WAIT_S)


def test_the_command_line_logs_in(sasl_ssl: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    settings = sasl_ssl.client_settings("alice")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if name != "bootstrap.servers"))
    where = ["--bootstrap-server", sasl_ssl.bootstrap_servers, "--command-config", str(file)]
    assert main(["topics", "create", "made-here", *where]) == 0
    assert main(["topics", "list", *where]) == 0
    assert "made-here" in capsys.readouterr().out
    file.write_text(file.read_text().replace(password("alice"), "wrong"))
    assert main(["topics", "list", *where]) == 6
    assert "--command-config" in capsys.readouterr().err


# -- other clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka(sasl_ssl: Broker, mechanism: str) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    truststore = sasl_ssl.client_settings()["ssl.truststore.location"]
    settings = {
        "bootstrap.servers": sasl_ssl.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": truststore,
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": password("alice"),
    }
    topic = f"librdkafka-{mechanism.lower()}"
    producer = kafka.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(WAIT_S) == 0
    consumer = kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(WAIT_S)
    consumer.close()
    assert record.value() == b"value"
    errors: list[Any] = []
    refused = kafka.Producer({**settings, "sasl.password": "wrong", "error_cb": errors.append})
    while not any(error.code() == kafka.KafkaError._AUTHENTICATION for error in errors):
        refused.poll(1)


@pytest.mark.usefixtures("leaves_sockets")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_python(sasl_ssl: Broker, mechanism: str) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=sasl_ssl.bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=sasl_ssl.client_settings()["ssl.truststore.location"],
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password("alice"),
    )
    assert producer.send("kafka-python", b"value").get(WAIT_S).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_aiokafka(sasl_ssl: Broker, mechanism: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    truststore = sasl_ssl.client_settings()["ssl.truststore.location"]

    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=sasl_ssl.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=truststore),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password("alice"),
        )
        await producer.start()
        try:
            offset: int = (await producer.send_and_wait("aiokafka", b"value")).offset
            return offset
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


# -- certificates ------------------------------------------------------------------------------------------------------


def principals(broker: Broker) -> set[str]:
    async def look() -> set[str]:
        return {connection.session.principal for connection in broker.running.server.connections}

    return broker.call(look())


def tls_client(broker: Broker, truststore: str, keystore: str | None = None) -> RawClient:
    client = RawClient(broker.bootstrap_servers)
    context = ssl.create_default_context(cafile=truststore)
    if keystore is not None:
        context.load_cert_chain(keystore)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def test_a_certificate_is_a_login_and_rules_make_its_name_short() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=([^,]*),O=Ottla$/$1/L,DEFAULT"}
    for settings, name in (({}, "User:CN=Carol,O=Ottla"), (rules, "User:carol")):
        security = Security("SSL", client_auth="required")
        with Broker(settings, security=security) as broker:
            files = security.authority.create("Carol")
            with tls_client(broker, str(files.truststore), str(files.keystore)) as client:
                assert client.ask(MetadataRequest(topics=[]), 9).brokers
                assert principals(broker) == {name}
            with (
                pytest.raises((ssl.SSLError, ConnectionError)),
                tls_client(broker, str(files.truststore)) as client,
            ):
                client.ask(MetadataRequest(topics=[]), 9)
            expired = security.authority.create("late", days=-1)
            with (
                pytest.raises((ssl.SSLError, ConnectionError)),
                tls_client(broker, str(files.truststore), str(expired.keystore)) as client,
            ):
                client.ask(MetadataRequest(topics=[]), 9)


def test_a_certificate_that_no_rule_is_for_is_nobody() -> None:
    security = Security("SSL", client_auth="requested")
    with Broker({"ssl.principal.mapping.rules": "RULE:^CN=only$/$0/"}, security=security) as broker:
        files = security.authority.create("other")
        with tls_client(broker, str(files.truststore), str(files.keystore)) as client:
            client.send(MetadataRequest(topics=[]), 9)
            assert client.is_ended()
        with tls_client(broker, str(files.truststore)) as client:
            assert client.ask(MetadataRequest(topics=[]), 9).brokers
            assert principals(broker) == {"User:ANONYMOUS"}


def set_keystore(client: RawClient, path: str) -> int:
    change = AlterableConfig(name="ssl.keystore.location", config_operation=0, value=path)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return int(answer.responses[0].error_code)


def certificate_of(broker: Broker, truststore: str) -> Any:
    with tls_client(broker, truststore) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert()


def test_a_new_certificate_is_taken_while_connections_go_on(tmp_path: Path) -> None:
    security = Security("SSL")
    with Broker(security=security) as broker:
        truststore = str(security.authority.truststore)
        before = certificate_of(broker, truststore)
        with tls_client(broker, truststore) as client:
            new = security.authority.create("renewed", ("localhost", "127.0.0.1"))
            assert set_keystore(client, str(new.keystore)) == 0
            assert certificate_of(broker, truststore) != before
            assert client.ask(MetadataRequest(topics=[]), 9).brokers
            current = certificate_of(broker, truststore)
            (tmp_path / "bad.pem").write_text("nothing")
            for bad in (tmp_path / "bad.pem", tmp_path / "missing.pem"):
                assert set_keystore(client, str(bad)) == ErrorCode.INVALID_REQUEST
            assert certificate_of(broker, truststore) == current


def test_a_new_certificate_is_still_used_after_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    new = authority.create("renewed", ("localhost", "127.0.0.1"))
    security = Security("SSL")
    with Broker(security=security, directory=tmp_path / "data") as broker:
        with tls_client(broker, str(security.authority.truststore)) as client:
            assert set_keystore(client, str(new.keystore)) == 0
        changed = certificate_of(broker, str(authority.truststore))
    with Broker(security=Security("SSL"), directory=tmp_path / "data") as broker:
        assert certificate_of(broker, str(authority.truststore)) == changed


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_bytes_of_another_protocol_end_a_connection_and_nothing_else(protocol: str) -> None:
    security = Security(protocol)
    with Broker(security=security) as broker:
        for first in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(64),
            b"\xff" * 64,
        ):
            address = broker.host, broker.port
            # It ends with an alert before it, or without, and may have ended before its writing half is shut down.
            with socket.create_connection(address, WAIT_S) as sock, suppress(OSError):
                sock.sendall(first)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
        exchange_records(broker.client_settings("alice"))


def test_a_key_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_text("nothing")
    for settings in (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "missing.pem")},
        {"ssl.keystore.location": str(store)},
    ):
        broker = Broker(settings, security=Security("SSL"))
        with pytest.raises(ConfigError), broker:
            pass


def test_certs_create_makes_what_a_broker_and_its_clients_need(tmp_path: Path) -> None:
    assert main(["certs", "create", str(tmp_path), "--broker", "b1=127.0.0.1,localhost", "--client", "carol"]) == 0
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*") if path.name != "ca.pem"} == {
        "ca.key": 0o600,
        "b1.pem": 0o600,
        "carol.pem": 0o600,
    }
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "b1.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    with Broker(settings, security=Security("SSL")) as broker:
        exchange_records(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.truststore.location": str(tmp_path / "ca.pem"),
            }
        )
