"""The settings of topics and brokers: described, changed, listed."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


def _describe(kind: int, name: str, keys: list[str] | None, **more: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], **more)


def _set(kind: int, name: str, *changes: tuple[str, int, str | None], **more: bool) -> IncrementalAlterConfigsRequest:
    entries = [
        IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], **{"validate_only": False, **more})


def _replace(kind: int, name: str, *settings: tuple[str, str | None], **more: bool) -> AlterConfigsRequest:
    entries = [AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in settings]
    resource = AlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], **{"validate_only": False, **more})


def _by_name(answer: Any) -> Any:
    for result in answer.results:
        result.configs.sort(key=lambda entry: entry.name)
    return answer


@conversations.add
def configs_of_a_topic(side: Side) -> None:
    topic, _ = side.new_topic("configured", retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "compression.type", "no.such.key"]
    for version in range(1, 5):
        side.ask(_describe(TOPIC, topic, keys), version, note=_by_name)
        side.ask(_describe(TOPIC, topic, []), version, note=lambda answer: len(answer.results[0].configs) > 0)
        side.ask(_describe(TOPIC, side.name("never"), None), version, note=_by_name)
        side.ask(_describe(TOPIC, "what?", None), version, note=_by_name)
        side.ask(_describe(TOPIC, "", None), version, note=_by_name)
        side.ask(_describe(99, topic, None), version, note=_by_name)
        # Of retention.ms we name the broker's default as well (log.retention.hours), which Kafka leaves out.
        side.ask(_describe(TOPIC, topic, keys[1:], include_synonyms=True), version, note=_by_name)


@conversations.add
def configs_of_a_topic_change(side: Side) -> None:
    topic, _ = side.new_topic("altered")
    set_, delete, append, subtract = range(4)
    changes: list[tuple[tuple[str, int, str | None], ...]] = [
        (("retention.ms", set_, "1000"),),
        (("retention.ms", set_, "never"),),
        (("retention.ms", set_, None),),
        (("retention.ms", append, "1"),),
        (("no.such", set_, "1"),),
        (("cleanup.policy", append, "compact"),),
        (("cleanup.policy", append, "compact"),),
        (("cleanup.policy", subtract, "delete"),),
        (("cleanup.policy", subtract, "delete"),),
        (("cleanup.policy", append, "nonsense"),),
        (("retention.ms", set_, "1"), ("retention.ms", set_, "2")),
        (("retention.ms", delete, None),),
        (("retention.ms", delete, None),),
        (("segment.bytes", set_, "1"),),
        (("min.insync.replicas", set_, "0"),),
        (("max.message.bytes", set_, "-1"),),
    ]
    keys = ["retention.ms", "cleanup.policy"]
    for change in changes:
        side.ask(_set(TOPIC, topic, *change), 1)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, note=_by_name)
    side.ask(_set(TOPIC, topic, ("retention.ms", set_, "7"), validate_only=True), 0)
    side.ask(_set(TOPIC, side.name("never"), ("retention.ms", set_, "7")), 1)
    side.ask(_set(TOPIC, "", ("retention.ms", set_, "7")), 1)
    side.ask(_set(77, topic, ("retention.ms", set_, "7")), 1)
    for version in range(3):
        side.ask(_replace(TOPIC, topic, ("retention.ms", "8"), ("segment.bytes", "2000000")), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", "9"), validate_only=True), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", "x")), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", None)), version)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, note=_by_name)
        side.ask(_replace(TOPIC, topic), version)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, note=_by_name)
    side.ask(_replace(TOPIC, side.name("never"), ("retention.ms", "8")), 2)


@conversations.add
def configs_of_a_broker_change(side: Side) -> None:
    set_, delete = 0, 1
    keys = ["log.retention.ms", "log.cleaner.backoff.ms", "max.connections", "broker.id", "message.max.bytes"]
    for name in ("1", ""):
        side.ask(_set(BROKER, name, ("log.retention.ms", set_, "123456789")), 1)
        side.ask(_set(BROKER, name, ("broker.id", set_, "7")), 1)
        side.ask(_set(BROKER, name, ("max.connections", set_, "100000")), 1)
        side.settle()
        side.ask(_describe(BROKER, name, keys), 4, note=_by_name)
        side.ask(_describe(BROKER, name, keys, include_synonyms=True), 4, note=_by_name)
        side.ask(_set(BROKER, name, ("log.retention.ms", delete, None), ("max.connections", delete, None)), 1)
        side.settle()
        side.ask(_describe(BROKER, name, ["log.retention.ms", "max.connections"]), 4, note=_by_name)
    side.ask(_describe(BROKER, "9", None), 4)
    side.ask(_describe(BROKER, "abc", None), 4)
    side.ask(_set(BROKER, "9", ("log.retention.ms", set_, "1")), 1)
    side.ask(_set(BROKER, "abc", ("log.retention.ms", set_, "1")), 1)


TOPIC_VALUES = (
    *(("remote.storage.enable", value) for value in ("false", "true", "x")),
    *(("local.retention.ms", value) for value in ("-2", "1000", "-3", "99999999999999")),
    *(("local.retention.bytes", value) for value in ("-2", "5", "-3")),
    *(("remote.log.copy.disable", value) for value in ("true", "x")),
    ("remote.log.delete.on.disable", "true"),
    *(("internal.segment.bytes", value) for value in ("14", "13", "100")),
    *(("segment.bytes", value) for value in ("14", "1048575", "1048576")),
    *(("segment.index.bytes", value) for value in ("3", "4", "11", "12")),
    *(("retention.bytes", value) for value in ("-1", "-2", "0")),
    *(("retention.ms", value) for value in ("-1", "-2", "0")),
    *(("message.timestamp.after.max.ms", value) for value in ("-1", "0", "9223372036854775807")),
    ("message.downconversion.enable", "true"),
    ("message.format.version", "3.0"),
    ("index.interval.bytes", "-1"),
    ("segment.ms", "0"),
    ("segment.jitter.ms", "-1"),
    ("max.compaction.lag.ms", "0"),
    ("min.compaction.lag.ms", "-1"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.insync.replicas", "0"),
    ("preallocate", "maybe"),
    ("preallocate", "TRUE"),
    ("file.delete.delay.ms", "-1"),
    ("flush.messages", "0"),
    ("flush.ms", "-1"),
    ("delete.retention.ms", "-1"),
    ("max.message.bytes", "-1"),
    ("leader.replication.throttled.replicas", "0:1,1:0"),
    ("leader.replication.throttled.replicas", "x"),
)


@conversations.add
def values_of_topics(side: Side) -> None:
    topic, _ = side.new_topic("valued")
    for name, value in TOPIC_VALUES:
        side.ask(_set(TOPIC, topic, (name, 0, value)), 1)
        side.ask(_set(TOPIC, topic, (name, 1, None)), 1)
    side.ask(_set(TOPIC, topic, ("internal.segment.bytes", 0, "100")), 1)
    side.settle()
    side.ask(_describe(TOPIC, topic, ["internal.segment.bytes", "segment.bytes"]), 4, note=_by_name)
    side.ask(_describe(TOPIC, topic, None), 4, note=_by_name)
    group = side.name("group")
    side.ask(_describe(32, group, None), 4, note=_by_name)


@conversations.add
def all_brokers_agree_on_what_is_in_sync(side: Side) -> None:
    topic, _ = side.new_topic("agreed")
    name = "min.insync.replicas"
    set_, delete = 0, 1

    def look() -> None:
        side.settle()
        for kind, resource in ((TOPIC, topic), (BROKER, "1"), (BROKER, "")):
            side.ask(_describe(kind, resource, [name], include_synonyms=True), 4)

    look()
    for resource, operation, value in (
        ("1", set_, "2"),
        ("1", delete, None),
        ("", set_, "2"),
        ("", delete, None),
        ("", set_, "0"),
        ("", set_, "1"),
    ):
        side.ask(_set(BROKER, resource, (name, operation, value)), 1)
        look()


# Kafka changes its listeners while it runs.
LISTENERS = ("listeners", "listener.security.protocol.map", "advertised.listeners")


@conversations.add
def dynamic_settings_of_brokers(side: Side) -> None:
    dynamic = side.client.ask(_describe(BROKER, "1", None), 4).results[0].configs
    entries = [
        entry
        for entry in dynamic
        if not entry.read_only and entry.name not in LISTENERS and not entry.name.endswith("throttled.rate")
    ]
    entries = [entry for entry in entries if not entry.name.startswith("replica.alter.log.dirs")]  # Kafka hides it

    def told(entry: Any) -> Any:
        return entry.name, entry.config_type, entry.is_sensitive

    side.note("dynamic settings", sorted(map(told, entries)))
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.value is None or entry.name.startswith("ssl."):
            continue  # a file or a class that both would look for, if they looked
        for resource in ("1", ""):
            side.ask(_set(BROKER, resource, (entry.name, 0, entry.value), validate_only=True), 1)
    for name in ("num.io.threads", "num.network.threads", "background.threads"):
        for resource in ("1", ""):
            for value in ("-1", "0", "x"):
                side.ask(_set(BROKER, resource, (name, 0, value)), 1)
    for resource in ("1", ""):
        side.ask(_set(BROKER, resource, ("num.io.threads", 0, "3")), 1)
        side.settle()
        side.ask(_describe(BROKER, resource, ["num.io.threads"]), 4)
        side.ask(_set(BROKER, resource, ("num.io.threads", 1, None)), 1)
        for name, value in (("quota.window.num", "3"), ("num.partitions", "3"), ("log.retention.ms", "x")):
            side.ask(_set(BROKER, resource, (name, 0, value)), 1)


@conversations.add
def config_resources(side: Side) -> None:
    topic, _ = side.new_topic("listed")
    side.ask(ListConfigResourcesRequest(), 0)
    kinds = [2, 4, 8, 16, 32]
    for kind in kinds:
        side.ask(
            ListConfigResourcesRequest(resource_types=[kind]),
            1,
            note=lambda answer: [
                one for one in answer.config_resources if one.resource_type != TOPIC or one.resource_name == topic
            ],
        )
    side.ask(ListConfigResourcesRequest(resource_types=[1]), 1)
    side.ask(ListConfigResourcesRequest(resource_types=[2, 77]), 1)


@conversations.add
def levels_of_loggers(side: Side) -> None:
    """Of the root logger: all others have other names."""
    set_, delete, append, subtract = range(4)
    for name in ("", "2", "x", "-1"):
        side.ask(_describe(BROKER_LOGGER, name, ["root"]), 4)
        side.ask(_set(BROKER_LOGGER, name, ("root", set_, "INFO")), 1)
    for changes in (
        [("root", set_, "ERROR")],
        [("root", set_, "debug")],
        [("root", set_, "LOUD")],
        [("root", set_, "")],
        [("root", set_, None)],
        [("root", delete, None)],
        [("root", delete, "WARN")],
        [("root", append, "WARN")],
        [("root", subtract, "WARN")],
        [("no.such.logger", set_, "WARN")],
        [("no.such.logger", delete, None)],
        [("root", set_, "FATAL"), ("no.such.logger", set_, "WARN")],
        [("root", set_, "FATAL"), ("root", set_, "WARN")],
        [("root", set_, "WARN")],
    ):
        side.ask(_set(BROKER_LOGGER, "1", *changes), 1)
        side.ask(_describe(BROKER_LOGGER, "1", ["root", "no.such.logger"]), 4)
    side.ask(_set(BROKER_LOGGER, "1", ("root", set_, "FATAL"), validate_only=True), 1)
    side.ask(_describe(BROKER_LOGGER, "1", ["root"]), 1)
    side.ask(_replace(BROKER_LOGGER, "1", ("root", "ERROR")), 2)
    side.ask(_replace(BROKER_LOGGER, "2", ("root", "ERROR")), 2)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
