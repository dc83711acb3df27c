"""What groups are told of the cluster."""

from __future__ import annotations

from uuid import UUID

from ottla.broker.group_coordinator import topics_view
from ottla.cluster.image import PartitionState, TopicState

TOPIC_ID = UUID(int=7)


def topic(*replicas: tuple[int, ...]) -> TopicState:
    return TopicState("t", TOPIC_ID, tuple(PartitionState(each, each[0], 0, each) for each in replicas))


def test_groups_are_told_the_racks_of_each_partition_in_order() -> None:
    view = topics_view([topic((1, 2), (2, 3), (3,))], {1: "west", 2: "east", 3: None})
    assert view.topics["t"].partition_racks == (("east", "west"), ("east",), ())
    assert (view.topics["t"].partition_count, view.names[TOPIC_ID]) == (3, "t")


def test_the_order_of_replicas_is_no_matter() -> None:
    racks = {1: "west", 2: "east"}
    assert topics_view([topic((1, 2))], racks) == topics_view([topic((2, 1))], racks)


def test_brokers_without_racks_are_all_in_one_place() -> None:
    assert topics_view([topic((1, 2))], {1: None, 2: None}).topics["t"].partition_racks == ()
