"""Elections and moves of partitions are asked of one broker alone: nothing has to change, or why it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

PREFERRED, UNCLEAN = 0, 1
INTERNAL = "__consumer_offsets"
MINUTE_MS = 60_000


def elect(*topics: tuple[str, list[int]], kind: int = PREFERRED) -> ElectLeadersRequest:
    named = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return ElectLeadersRequest(election_type=kind, topic_partitions=named, timeout_ms=MINUTE_MS)


def move(
    topic: str, *partitions: tuple[int, list[int] | None], may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    entries = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in partitions]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=MINUTE_MS,
        allow_replication_factor_change=may_change_factor,
        topics=[ReassignableTopic(name=topic, partitions=entries)],
    )


def moving(*topics: tuple[str, list[int]]) -> ListPartitionReassignmentsRequest:
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
    return ListPartitionReassignmentsRequest(timeout_ms=MINUTE_MS, topics=named)


@conversations.add
def elections_of_partitions_that_have_their_leader(side: Side) -> None:
    topic, _ = side.new_topic("led", 3)
    for version, kind in ((0, PREFERRED), (1, PREFERRED), (1, UNCLEAN), (2, PREFERRED), (2, UNCLEAN)):
        side.ask(elect((topic, [0]), kind=kind), version)
        side.ask(elect((topic, [2, 0, 1]), kind=kind), version)
        side.ask(elect((topic, [3, -1, 0]), kind=kind), version)
        side.ask(elect((topic, []), kind=kind), version)
        side.ask(elect(kind=kind), version)
        side.ask(elect((side.name("never"), [0, 1]), (topic, [0]), ("", [0]), ("what name?", [0]), kind=kind), version)
        side.ask(elect((topic, [0, 0]), (topic, [1]), (topic, [0]), kind=kind), version)
        side.ask(elect((INTERNAL, [999]), ("__cluster_metadata", [0]), kind=kind), version)


@conversations.add
def elections_of_a_kind_that_there_is_not(side: Side) -> None:
    topic, _ = side.new_topic("odd")
    for version in (1, 2):
        for kind in (2, -1, 127):
            side.ask(elect((topic, [0, 7]), (side.name("never"), [0]), kind=kind), version)
            side.ask(elect((topic, []), kind=kind), version)
            side.ask(elect(kind=kind), version)
            everything = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=MINUTE_MS)
            side.ask(everything, version)


@conversations.add
def elections_of_all_partitions(side: Side) -> None:
    topic, _ = side.new_topic("one-of-all", 2)

    def of_the_topic(answer: Any) -> Any:
        """Other conversations have topics of their own."""
        answer.replica_election_results = [one for one in answer.replica_election_results if one.topic == topic]
        return answer

    for version, kind in ((0, PREFERRED), (1, UNCLEAN), (2, PREFERRED), (2, UNCLEAN)):
        everything = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=MINUTE_MS)
        side.ask(everything, version, note=of_the_topic)


@conversations.add
def moves_to_where_the_partition_is_and_to_where_nobody_is(side: Side) -> None:
    topic, _ = side.new_topic("moved", 2)
    targets: tuple[list[int] | None, ...] = ([1], [9], [1, 9], [9, 1], [], [1, 1], [9, 9], [-1], [1, -1], None)
    for version, may_change_factor in ((0, True), (1, True), (1, False)):
        for replicas in targets:
            side.ask(move(topic, (0, replicas), may_change_factor=may_change_factor), version)
            side.ask(move(topic, (2, replicas), may_change_factor=may_change_factor), version)
            side.ask(move(side.name("never"), (0, replicas), may_change_factor=may_change_factor), version)
        side.ask(move("", (0, [1]), may_change_factor=may_change_factor), version)
        side.ask(move("what name?", (0, [1]), may_change_factor=may_change_factor), version)
        several = ((0, [1]), (1, [9]), (1, [1]), (0, [1]), (7, [1]), (-1, None))
        side.ask(move(topic, *several, may_change_factor=may_change_factor), version)
        side.ask(move(topic, may_change_factor=may_change_factor), version)
        side.ask(move(INTERNAL, (999, [1]), (-1, None), may_change_factor=may_change_factor), version)
        nothing = AlterPartitionReassignmentsRequest(allow_replication_factor_change=may_change_factor, topics=[])
        side.ask(nothing, version)
        side.ask(moving((topic, [0, 1])), 0)


@conversations.add
def the_moves_that_go_on(side: Side) -> None:
    topic, _ = side.new_topic("listed")
    side.ask(moving((topic, [0])), 0)
    side.ask(moving((topic, [0, 7, -1]), (side.name("never"), [0]), ("", [])), 0)
    side.ask(moving(), 0)
    side.ask(ListPartitionReassignmentsRequest(timeout_ms=MINUTE_MS, topics=None), 0)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
