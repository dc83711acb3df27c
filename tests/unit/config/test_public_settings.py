"""Our tables against the public facts about Kafka's settings."""

import json
from pathlib import Path

import pytest

from ottla.config import BROKER_SETTINGS, GROUP_SETTINGS, KNOWN_UNSUPPORTED, Setting
from ottla.config.unsupported import is_known_unsupported

FACTS = Path(__file__).parents[4] / "shared" / "protocol" / "configs.json"

# Where we differ from Kafka 4.3 on purpose, and why.
OTHER_DEFAULTS = {
    "listeners": "a broker that was not told otherwise is reached from this machine only",
    "log.dir": "data under the current directory survives a reboot, data in /tmp does not",
    "node.id": "not required: a number is chosen at the first start, as with broker.id",
    "controller.listener.names": "not required: there are no separate controllers",
    "group.coordinator.rebalance.protocols": "streams groups are not served",
    "ssl.keymanager.algorithm": "told as the usual virtual machine of Java has it",
    "ssl.trustmanager.algorithm": "told as the usual virtual machine of Java has it",
}
# Of Kafka's authorizers, which are classes of their own and not in the list of the broker's settings.
OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
# How the broker reaches ZooKeeper: of 3.9, or ours where Kafka takes a file of the Java virtual machine.
OF_ZOOKEEPER = {
    name for name in BROKER_SETTINGS if name.startswith(("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.set."))
}
# Settings of 3.9, gone or never there in 4.3.
ONLY_IN_3_9 = {
    "password.encoder.cipher.algorithm",
    "password.encoder.iterations",
    "password.encoder.key.length",
    "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "broker.id.generation.enable",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "leader.imbalance.per.broker.percentage",
    "reserved.broker.max.id",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.max.in.flight.requests",
    "zookeeper.session.timeout.ms",
}


@pytest.fixture(scope="module")
def facts() -> list[dict[str, object]]:
    if not FACTS.exists():
        pytest.skip(f"{FACTS.name} with the public settings is not here")
    found: list[dict[str, object]] = json.loads(FACTS.read_text())
    return found


def in_scope(facts: list[dict[str, object]], *scopes: str) -> dict[str, dict[str, object]]:
    return {str(fact["name"]): fact for fact in facts if fact["scope"] in scopes}


def as_ours(setting: Setting, default: object) -> object:
    if isinstance(setting.default, tuple) or isinstance(default, list):
        items = default.split(",") if isinstance(default, str) else default
        return None if items is None else tuple(items)  # type: ignore[arg-type]
    return default


def test_every_broker_setting_has_the_type_and_default_of_kafka(facts: list[dict[str, object]]) -> None:
    public = in_scope(facts, "broker", "broker-dynamic")
    assert set(BROKER_SETTINGS) - set(public) - OF_ZOOKEEPER == ONLY_IN_3_9 | OF_THE_AUTHORIZER
    different = set()
    for name in BROKER_SETTINGS.keys() & public.keys():
        setting, fact = BROKER_SETTINGS[name], public[name]
        assert str(setting.kind) == str(fact["type"]).lower(), name
        if setting.default != as_ours(setting, fact["default"]):
            different.add(name)
    assert different == set(OTHER_DEFAULTS)


def test_every_group_setting_has_the_type_and_default_of_kafka(facts: list[dict[str, object]]) -> None:
    public = in_scope(facts, "group")
    assert {name: (str(setting.kind), setting.default) for name, setting in GROUP_SETTINGS.items()} == {
        name: (str(fact["type"]).lower(), fact["default"]) for name, fact in public.items()
    }


def test_every_broker_setting_of_kafka_is_honoured_or_accepted(facts: list[dict[str, object]]) -> None:
    names = in_scope(facts, "broker", "broker-dynamic")
    assert [name for name in names if name not in BROKER_SETTINGS and not is_known_unsupported(name)] == []


def test_no_setting_is_both_honoured_and_without_effect() -> None:
    assert [name for name in BROKER_SETTINGS if is_known_unsupported(name)] == []
    assert not KNOWN_UNSUPPORTED & set(BROKER_SETTINGS)
