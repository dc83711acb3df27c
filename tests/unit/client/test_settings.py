"""Settings under three spellings, with Java's defaults; names that nobody knows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import SettingsError
from ottla.client.settings import NOT_HERE, AdminSettings, ConsumerSettings, ProducerSettings, _names_of

CONFIGS = Path(__file__).parents[4] / "shared" / "protocol" / "clients" / "client_configs.json"
KINDS: dict[str, Any] = {"producer": ProducerSettings, "consumer": ConsumerSettings, "admin": AdminSettings}
SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}

# Java's default is another word for the same, or is Java's own.
SAID_DIFFERENTLY = {
    "acks", "bootstrap.servers", "metric.reporters", "partition.assignment.strategy", "sasl.mechanism",
    "connections.max.idle.ms", "ssl.cipher.suites", "ssl.enabled.protocols",
    "ssl.keystore.type", "ssl.truststore.type",
    "ssl.endpoint.identification.algorithm", "interceptor.classes",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_are_javas(kind):
    if not CONFIGS.exists():
        pytest.skip(f"{CONFIGS.name} with the settings of Java's clients is not here")
    settings = KINDS[kind].read(SERVERS)
    names = _names_of(KINDS[kind])
    compared = 0
    for entry in json.loads(CONFIGS.read_text())[kind]:
        if entry["name"] not in names or entry["name"] in SAID_DIFFERENTLY:
            continue
        if entry["name"] == "enable.auto.commit":
            continue  # it is off without a group
        field_name, definition, _ = names[entry["name"]]
        default = entry["default"] / 1000 if definition.is_time else entry["default"]
        assert getattr(settings, field_name) == default, entry["name"]
        compared += 1
    assert compared > 15


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap.servers": "a:1,b:2", "linger.ms": "20", "max.in.flight": 3},
        {"bootstrap_servers": ["a:1", "b:2"], "linger_ms": 20, "max_in_flight_requests_per_connection": 3},
        {"bootstrap_servers": "a:1, b:2", "linger_s": 0.02, "max.in.flight.requests.per.connection": "3"},
        {"metadata.broker.list": "a:1,b:2", "queue.buffering.max.ms": 20, "max_in_flight": 3},
    ],
)
def test_three_spellings_mean_the_same(given):
    settings = ProducerSettings.read(given)
    assert settings.bootstrap_servers == ("a:1", "b:2")
    assert settings.linger_s == 0.02
    assert settings.max_in_flight_requests_per_connection == 3
    assert ProducerSettings.read(None, **{name.replace(".", "_"): value for name, value in given.items()}) == settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"linger.mss": 5}, "did you mean linger.ms?"),
        ({"lingers": 5}, "did you mean linger"),
        ({"group.id": "g"}, "a producer has no setting group.id"),
        ({"linger.ms": 5, "linger_s": 1}, "are the same setting"),
        ({"acks": 2}, "acks cannot be 2: one of all, -1, 0, 1 is wanted"),
        ({"linger.ms": "soon"}, "linger.ms cannot be 'soon': a number is wanted"),
        ({"linger_s": "soon"}, "linger_s cannot be 'soon'"),
        ({"batch.size": -1}, "it must be 0 to"),
        ({"max.request.size": 1 << 40}, "it must be 0 to 2147483647"),
        ({"enable.idempotence": 1}, "true or false is wanted"),
        ({"compression.type": "brotli"}, "one of none, gzip, snappy, lz4, zstd is wanted"),
        ({"acks": 1, "enable.idempotence": True}, "idempotence is not possible with acks=1"),
        ({"max.in.flight": 6}, "at most 5 requests in flight, not 6"),
        ({"acks": 0, "transactional.id": "t"}, "idempotence is not possible with acks=0"),
        ({"enable.idempotence": False, "transactional.id": "t"}, "transactions need idempotence"),
        ({"delivery.timeout.ms": 1000}, "must be at least linger_s + request_timeout_s (30.005)"),
        ({"sasl.password": 5}, "sasl.password cannot be [hidden]"),
    ],
)
def test_what_is_wrong_is_said(given, message):
    with pytest.raises(SettingsError) as caught:
        ProducerSettings.read({**SERVERS, **given})
    assert message in str(caught.value)


def test_an_address_alone_is_answered_with_the_keyword_for_it() -> None:
    with pytest.raises(SettingsError, match=r"such as bootstrap_servers='localhost:9092'; not 'localhost:9092' alone"):
        ProducerSettings.read("localhost:9092")  # type: ignore[arg-type]


def test_a_broker_has_to_be_named():
    with pytest.raises(SettingsError, match="bootstrap_servers is missing"):
        ProducerSettings.read(linger_ms=1)


def test_what_follows_from_other_settings_follows():
    assert not ProducerSettings.read(SERVERS, acks=1).enable_idempotence
    assert not ProducerSettings.read(SERVERS, retries=0).enable_idempotence
    assert ProducerSettings.read(SERVERS, request_timeout_s=200).delivery_timeout_s == 200.005
    assert ProducerSettings.read(SERVERS, reconnect_backoff_ms=3000).reconnect_backoff_max_s == 3
    assert ProducerSettings.read(SERVERS, retry_backoff_ms=3000).retry_backoff_s == 1
    assert not ConsumerSettings.read(SERVERS).enable_auto_commit
    assert ConsumerSettings.read(SERVERS, group_id="g").enable_auto_commit


def test_group_protocols_have_settings_of_their_own():
    with pytest.raises(SettingsError, match="session_timeout_s does not go with group_protocol=consumer"):
        ConsumerSettings.read(SERVERS, group_protocol="consumer", session_timeout_ms=1000)
    with pytest.raises(SettingsError, match="must be below session_timeout_s"):
        ConsumerSettings.read(SERVERS, session_timeout_ms=1000)


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_name_belongs_to_one_setting(kind):
    names = [
        name
        for field in dataclasses.fields(kind)
        if (definition := field.metadata.get("setting"))
        for name in {field.name, definition.java_name, *definition.aliases}
    ]
    assert len(names) == len(set(names))
    assert not set(names) & set(NOT_HERE)


def test_secrets_are_not_shown_with_the_settings():
    given = {"sasl.password": "hunter1", "ssl.key.pem": "hunter2", "ssl.keystore.password": "hunter3"}
    shown = repr(ProducerSettings.read({"bootstrap.servers": "x:1", "sasl.username": "alice", **given}))
    assert "alice" in shown
    assert "hunter" not in shown
