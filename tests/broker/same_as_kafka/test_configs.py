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

TOPIC, BROKER = 2, 4


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


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
