"""What groups are told of the cluster."""

from __future__ import annotations

from uuid import UUID

from ottla.broker.group_coordinator import topic_infos
from ottla.cluster.image import PartitionState, TopicState
from ottla.groups.shard import TopicsView

TOPIC_ID = UUID(int=7)


def topic(*replicas: tuple[int, ...]) -> TopicState:
    return TopicState("t", TOPIC_ID, tuple(PartitionState(each, each[0], 0, each) for each in replicas))


def test_groups_are_told_the_racks_of_each_partition_in_order() -> None:
    infos = topic_infos([topic((1, 2), (2, 3), (3,))], {1: "west", 2: "east", 3: None})
    assert infos["t"].partition_racks == (("east", "west"), ("east",), ())
    assert infos["t"].partition_count == 3
    assert TopicsView().changed(infos, ()).names == {TOPIC_ID: "t"}


def test_the_order_of_replicas_is_no_matter() -> None:
    racks = {1: "west", 2: "east"}
    assert topic_infos([topic((1, 2))], racks) == topic_infos([topic((2, 1))], racks)


def test_brokers_without_racks_are_all_in_one_place() -> None:
    assert topic_infos([topic((1, 2))], {1: None, 2: None})["t"].partition_racks == ()
