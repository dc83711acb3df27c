"""Committed offsets over the wire: every way to say it, what is refused, and what a restart keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import commit, delete_offsets
from ottla.testing.raw_requests import create_topic, metadata
from ottla.testing.waiting import WAIT_S

NewTopic = Callable[..., tuple[str, UUID]]
NEWEST_NAMED = 9  # the last version of commit and fetch in which topics have names


@pytest.fixture(autouse=True)
def _coordinated(client: RawClient) -> None:
    client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 6)


def codes(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def all_offsets(client: RawClient, group: str) -> dict[tuple[str, int], int]:
    """All that a group has committed, once its coordinator is there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 9)
        (found,) = answer.groups
        if found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert not found.error_code
            return {
                (topic.name, each.partition_index): each.committed_offset
                for topic in found.topics
                for each in topic.partitions
            }
        assert time.monotonic() < deadline, "the groups were never loaded"
        time.sleep(0.01)


@pytest.mark.parametrize("version", range(1, NEWEST_NAMED + 1))
def test_what_was_committed_in_one_version_is_fetched_in_every_other(
    version: int, client: RawClient, new_topic: NewTopic
) -> None:
    topic, topic_id = new_topic(2)
    group = f"group-{topic}"
    assert codes(client.ask(commit(group, topic, {0: 5, 1: 7}, "a note"), version)) == [0, 0]
    for fetch_version in range(1, 8):
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[1, 0])]
        )
        (found,) = client.ask(request, fetch_version).topics
        assert [(each.partition_index, each.committed_offset, each.metadata) for each in found.partitions] == [
            (1, 7, "a note"),
            (0, 5, "a note"),
        ]
    for fetch_version in (8, 9, 10):
        by: dict[str, Any] = {"topic_id": topic_id} if fetch_version == 10 else {"name": topic}
        entry = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(partition_indexes=[0], **by)])
        (found,) = client.ask(OffsetFetchRequest(groups=[entry]), fetch_version).groups
        assert found.topics[0].partitions[0].committed_offset == 5


def test_version_0_keeps_its_offsets_apart_from_the_others(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(2)
    group = f"group/of {topic}"
    assert codes(client.ask(commit(group, topic, {0: 5}), 0)) == [0]
    assert codes(client.ask(commit(group, topic, {0: 9}), 1)) == [0]
    assert codes(client.ask(commit(group, topic, {0: 6, 5: 1}), 0)) == [3, 0]
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1, 5])]
    )
    (found,) = client.ask(request, 0).topics
    assert [(each.committed_offset, each.error_code) for each in found.partitions] == [(6, 0), (-1, 3), (-1, 3)]
    assert all_offsets(client, group) == {(topic, 0): 9}


def test_topics_by_id_are_committed_and_fetched_and_unknown_ids_are_named(
    client: RawClient, new_topic: NewTopic
) -> None:
    _, topic_id = new_topic()
    stranger = UUID(int=7)
    assert codes(client.ask(commit("by-id", "", {0: 3}, topic_id=topic_id), 10)) == [0]
    answer = client.ask(commit("by-id", "", {0: 3}, topic_id=stranger), 10)
    assert (answer.topics[0].topic_id, codes(answer)) == (stranger, [ErrorCode.UNKNOWN_TOPIC_ID])
    entry = OffsetFetchRequestGroup(
        group_id="by-id",
        topics=[OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (stranger, topic_id)],
    )
    (found,) = client.ask(OffsetFetchRequest(groups=[entry]), 10).groups
    seen = {each.topic_id: each.partitions[0] for each in found.topics}
    assert seen[topic_id].committed_offset == 3
    assert seen[stranger].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    entry = OffsetFetchRequestGroup(group_id="by-id", topics=None)
    (found,) = client.ask(OffsetFetchRequest(groups=[entry]), 10).groups
    assert [each.topic_id for each in found.topics] == [topic_id]


def test_partitions_that_are_not_there_are_refused_and_the_others_committed(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic(2)
    answer = client.ask(commit("some", topic, {0: 1, 9: 1, 1: 2}), NEWEST_NAMED)
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {9: 3, 0: 0, 1: 0}
    assert all_offsets(client, "some") == {(topic, 0): 1, (topic, 1): 2}


def test_a_note_that_is_too_long_is_refused(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    answer = client.ask(commit("noted", topic, {0: 1}, "x" * 4097), NEWEST_NAMED)
    assert codes(answer) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert codes(client.ask(commit("noted", topic, {0: 1}, None), NEWEST_NAMED)) == [0]


def test_a_commit_that_does_not_fit_the_topic_is_refused_and_changes_nothing(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic(300)
    answer = client.ask(commit("large", topic, dict.fromkeys(range(300), 1), "x" * 4096), NEWEST_NAMED)
    assert set(codes(answer)) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert all_offsets(client, "large") == {}


def test_several_groups_are_fetched_at_once_and_one_that_nobody_knows_is_empty(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic()
    names = [f"at-once-{number}" for number in range(20)]  # on many partitions of the offsets topic
    for number, name in enumerate(names):
        assert codes(client.ask(commit(name, topic, {0: number}), NEWEST_NAMED)) == [0]
    entries = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in [*names, "nobody"]]
    groups = client.ask(OffsetFetchRequest(groups=entries), 8).groups
    assert [group.group_id for group in groups] == [*names, "nobody"]
    assert [group.topics[0].partitions[0].committed_offset for group in groups[:-1]] == list(range(20))
    assert (groups[-1].topics, groups[-1].error_code) == ([], 0)


def test_offsets_are_deleted_one_by_one(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic(2)
    client.ask(commit("deleting", topic, {0: 1, 1: 2}), NEWEST_NAMED)
    answer = client.ask(delete_offsets("deleting", {topic: [0, 9]}), 0)
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {0: 0, 9: 3}
    assert all_offsets(client, "deleting") == {(topic, 1): 2}
    for group, code in (("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)):
        assert client.ask(delete_offsets(group, {topic: [0]}), 0).error_code == code


def test_the_offsets_of_a_deleted_topic_go_with_it(client: RawClient, new_topic: NewTopic) -> None:
    doomed, _ = new_topic()
    other, _ = new_topic()
    for topic in (doomed, other):
        client.ask(commit("reader", topic, {0: 4}), NEWEST_NAMED)
    client.ask(DeleteTopicsRequest(topic_names=[doomed], timeout_ms=5000), 5)
    client.ask(create_topic(doomed), 7)
    assert all_offsets(client, "reader") == {(other, 0): 4}


def test_the_offsets_topic_is_made_on_first_use_as_kafka_makes_it() -> None:
    with Broker() as fresh, RawClient(fresh.bootstrap_servers) as client:
        assert client.ask(metadata("__consumer_offsets", auto_create=False), 12).topics[0].error_code == 3
        found = client.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert (found.error_code, found.node_id, found.port) == (0, 1, fresh.port)
        (topic,) = client.ask(metadata("__consumer_offsets"), 12).topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 50)
        resource = DescribeConfigsResource(resource_type=2, resource_name="__consumer_offsets", configuration_keys=None)
        (described,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
        settings = {each.name: each.value for each in described.configs}
        assert settings["cleanup.policy"] == "compact"
        assert settings["compression.type"] == "producer"
        assert settings["segment.bytes"] == "104857600"


def test_a_coordinator_is_looked_for_by_several_names_and_share_groups_have_none(client: RawClient) -> None:
    answer = client.ask(FindCoordinatorRequest(coordinator_keys=["a", "b", ""], key_type=0), 6)
    assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [
        ("a", 0, 1),
        ("b", 0, 1),
        ("", 0, 1),
    ]
    for key_type in (2, 9):
        answer = client.ask(FindCoordinatorRequest(coordinator_keys=["a:b:0"], key_type=key_type), 6)
        assert [(one.error_code, one.node_id) for one in answer.coordinators] == [(ErrorCode.INVALID_REQUEST, -1)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_offsets_are_there_after_a_restart(is_killed: bool) -> None:
    with Broker(in_process=False) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", 3), 7)
            client.ask(FindCoordinatorRequest(key="g"), 3)
            for offset in range(100):
                for group in ("g", "h"):
                    assert codes(client.ask(commit(group, "t", {offset % 3: offset}), 8)) == [0]
            client.ask(delete_offsets("h", {"t": [0]}), 0)
        if is_killed:
            broker.kill()
        broker.restart()
        with RawClient(broker.bootstrap_servers) as client:
            assert all_offsets(client, "g") == {("t", 0): 99, ("t", 1): 97, ("t", 2): 98}
            assert all_offsets(client, "h") == {("t", 1): 97, ("t", 2): 98}
