"""What the controller decides about topics."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster.image import BrokerNode, ClusterImage, TopicState
from ottla.cluster.topics import PARTITIONS_MAX, Assignment, check_name, decide_more_partitions, decide_topic
from ottla.errors import ApiError, ErrorCode

TOPIC_ID = UUID(int=1)


def image(*topics: str, brokers: int = 3) -> ClusterImage:
    nodes = [BrokerNode(number, {}) for number in range(brokers)]
    made = ClusterImage("c").with_brokers(nodes, controller_id=0)
    for number, name in enumerate(topics):
        made = made.with_topics([TopicState(name, UUID(int=100 + number), ())])
    return made


def decide(name: str = "t", at: ClusterImage | None = None, **requested: Any) -> TopicState:
    settings = {"partition_count": 2, "replication_factor": 2, "assignments": (), **requested}
    return decide_topic(at or image(), name, topic_id=TOPIC_ID, rng=random.Random(1), **settings)


def refusal(**requested: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        decide(**requested)
    return caught.value.code


BY_HAND: dict[str, Any] = {"partition_count": -1, "replication_factor": -1}


def by_hand(assignments: list[tuple[int, list[int]]]) -> list[Assignment]:
    return [Assignment(*one) for one in assignments]


def test_a_new_topic_is_led_by_its_first_replicas_in_epoch_0() -> None:
    topic = decide()
    assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", TOPIC_ID, 2)
    for state in topic.partitions:
        assert (state.leader, state.leader_epoch, state.isr) == (state.replicas[0], 0, state.replicas)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\n"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    assert refusal(name=name) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_can_be(name: str) -> None:
    check_name(image(), name)


def test_a_taken_name_and_one_that_metrics_could_not_tell_apart_are_refused() -> None:
    assert refusal(name="t", at=image("t")) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal(name="a.b", at=image("a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(name="a_b.c", at=image("a.b_c")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert decide(name="ab", at=image("a.b")).name == "ab"


@pytest.mark.parametrize("count", [0, -1, -5, PARTITIONS_MAX + 1])
def test_a_count_of_partitions_that_cannot_be_is_refused(count: int) -> None:
    assert refusal(partition_count=count) == ErrorCode.INVALID_PARTITIONS


def test_more_replicas_than_brokers_are_refused() -> None:
    assert refusal(replication_factor=4) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_count_of_replicas_that_cannot_be_is_told_before_one_of_partitions() -> None:
    assert refusal(replication_factor=0, partition_count=0) == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "assignments",
    [
        [(0, [0]), (2, [1])],
        [(1, [0])],
        [(0, [])],
        [(0, [1, 1])],
        [(0, [7])],
        [(0, [0, 1]), (1, [0])],
        [(0, [0]), (0, [1])],
    ],
    ids=["a gap", "not from 0", "nobody", "one twice", "a stranger", "different counts", "a partition twice"],
)
def test_an_assignment_by_hand_that_cannot_be_is_refused(assignments: list[tuple[int, list[int]]]) -> None:
    assert refusal(assignments=by_hand(assignments), **BY_HAND) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_by_hand_is_taken_and_excludes_counts() -> None:
    topic = decide(assignments=by_hand([(1, [2, 0]), (0, [1, 2])]), **BY_HAND)
    assert [state.replicas for state in topic.partitions] == [(1, 2), (2, 0)]
    assert refusal(assignments=by_hand([(0, [1])])) == ErrorCode.INVALID_REQUEST


def test_partitions_are_added_behind_those_that_are_there() -> None:
    topic = decide()
    grown = decide_more_partitions(image(), topic, 5, None)
    assert grown.partitions[:2] == topic.partitions
    assert [len(state.replicas) for state in grown.partitions] == [2] * 5
    by_hand = decide_more_partitions(image(), topic, 3, [[2, 1]])
    assert by_hand.partitions[2].replicas == (2, 1)


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (PARTITIONS_MAX + 1, None, ErrorCode.INVALID_PARTITIONS),
        (PARTITIONS_MAX + 1, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0, 1], [1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_growth_that_cannot_be_is_refused(total: int, assignments: Any, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        decide_more_partitions(image(), decide(), total, assignments)
    assert caught.value.code == code
