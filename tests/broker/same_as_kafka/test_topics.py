"""Topics are created, deleted and given more partitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.testing.raw_requests import creatable, create_topic
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)


@conversations.add
def topics_that_cannot_be_created(side: Side) -> None:
    topic, _ = side.new_topic("taken")
    for version in (2, 4, 5, 6, 7):
        side.ask(create_topic(topic), version)
        side.ask(create_topic(side.name("no-partitions"), 0), version)
        side.ask(create_topic(side.name("negative"), -3), version)
        side.ask(create_topic(side.name("wide"), 1, 3), version)
        side.ask(create_topic(side.name("thin"), 1, 0), version)
        side.ask(create_topic("what name?"), version)
        side.ask(create_topic(""), version)
        side.ask(create_topic(side.name("config"), config={"retention.ms": "soon"}), version)
        side.ask(create_topic(side.name("config"), config={"no.such.thing": "1"}), version)
        side.ask(create_topic(side.name("config"), config={"retention.ms": None}), version)
        side.ask(create_topic(side.name("hand"), 1, 1, assignments={0: [1]}), version)
        side.ask(create_topic(side.name("hand"), -1, -1, assignments={0: [1], 2: [1]}), version)
        side.ask(create_topic(side.name("hand"), -1, -1, assignments={0: [1, 1]}), version)
        side.ask(create_topic(side.name("hand"), -1, -1, assignments={0: [5]}), version)
        side.ask(create_topic(side.name("hand"), -1, -1, assignments={0: []}), version)
        twice = CreateTopicsRequest(topics=[creatable(side.name("twice")), creatable(side.name("twice"))])
        side.ask(twice, version)
    side.new_topic("dotted.name")
    side.ask(create_topic(side.name("dotted_name")), 7)
    side.ask(create_topic(side.name("dotted.name")), 7)


def _without_configs(answer: Any) -> Any:
    for topic in answer.topics:
        topic.configs = "compared below"
    return answer


@conversations.add
def topics_that_can_be_created(side: Side) -> None:
    for version in (2, 3, 4, 5, 6, 7):
        name = f"made-{version}"
        side.ask(create_topic(side.name(name), 3, validate_only=True), version, note=_without_configs)
        side.ask(create_topic(side.name(name), 3), version, note=_without_configs)
        side.ask(create_topic(side.name(f"default-{version}"), -1, -1), version, note=_without_configs)
        by_hand = create_topic(side.name(f"hand-{version}"), -1, -1, assignments={0: [1], 1: [1]})
        side.ask(by_hand, version, note=_without_configs)


@conversations.add
def the_configs_of_a_new_topic(side: Side) -> None:
    answer = side.client.ask(create_topic(side.name("described"), config={"retention.ms": "1000"}), 7)
    configs = {entry.name: entry for entry in answer.topics[0].configs}
    entry = configs["retention.ms"]
    side.note("retention.ms", entry.value, entry.read_only, entry.config_source, entry.is_sensitive)
    # Storage on two tiers is not ours.
    values = {name: entry.value for name, entry in sorted(configs.items()) if "remote" not in name}
    side.note("configs", {name: value for name, value in values.items() if not name.startswith("local.")})


@conversations.add
def topics_are_deleted_by_name_and_by_id(side: Side) -> None:
    for version in (1, 4, 5):
        topic, _ = side.new_topic(f"doomed-{version}")
        side.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), version)
        side.ask(DeleteTopicsRequest(topic_names=[side.name("never")], timeout_ms=5000), version)
    topic, _ = side.new_topic("doomed-6")
    unknown = UUID(int=5)
    side.ask(_delete(DeleteTopicState(name=topic, topic_id=UUID(int=0))), 6)
    topic, topic_id = side.new_topic("doomed-by-id")
    side.ask(_delete(DeleteTopicState(name=topic, topic_id=topic_id)), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=UUID(int=0))), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=unknown)), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=topic_id)), 6)
    topic, _ = side.new_topic("doomed-twice")
    both = [DeleteTopicState(name=topic, topic_id=UUID(int=0)), DeleteTopicState(name=topic, topic_id=UUID(int=0))]
    side.ask(_delete(*both), 6, note=lambda answer: sorted({one.error_code for one in answer.responses}))


def _delete(*topics: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=list(topics), timeout_ms=5000)


@conversations.add
def partitions_are_added_and_never_taken(side: Side) -> None:
    topic, _ = side.new_topic("grown", 2)
    for version in range(4):
        growths: tuple[tuple[int, list[list[int]] | None], ...] = (
            (2, None),
            (1, None),
            (0, None),
            (-1, None),
            (3, []),
            (3, [[1], [1]]),
            (3, [[9]]),
            (3, [[1, 1]]),
            (3, [[]]),
        )
        for count, assignments in growths:
            side.ask(_grow(topic, count, assignments, validate_only=True), version)
        side.ask(_grow(topic, 3, [[1]], validate_only=True), version)
        side.ask(_grow(side.name("never"), 3), version)
    side.ask(_grow(topic, 4), 3)
    twice = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=9, assignments=None)] * 2, timeout_ms=5000, validate_only=True
    )
    side.ask(twice, 3)


def _grow(
    topic: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    wanted = None if assignments is None else [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=wanted)],
        timeout_ms=5000,
        validate_only=validate_only,
    )


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
