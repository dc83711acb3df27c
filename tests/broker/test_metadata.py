"""Metadata and topics: what is created by being asked for, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import creatable, create_topic, fetch, list_offsets, metadata, one_batch, produce

NewTopic = Callable[..., tuple[str, UUID]]


def codes(client: RawClient, request: MetadataRequest, version: int = 12) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in client.ask(request, version).topics}


def test_an_empty_list_means_all_topics_in_version_0_and_none_later(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    assert topic in codes(client, MetadataRequest(topics=[]), 0)
    assert codes(client, MetadataRequest(topics=[]), 1) == {}
    assert topic in codes(client, MetadataRequest(topics=None), 1)
    assert topic in codes(client, MetadataRequest(topics=None), 13)


def test_an_unknown_topic_is_created_and_soon_there(client: RawClient) -> None:
    assert codes(client, metadata("by-itself")) == {"by-itself": ErrorCode.LEADER_NOT_AVAILABLE}
    assert codes(client, metadata("by-itself")) == {"by-itself": ErrorCode.NONE}
    made = client.ask(metadata("by-itself"), 12).topics[0]
    assert (len(made.partitions), made.partitions[0].leader_id) == (1, 1)
    assert not client.ask(produce("by-itself", one_batch(b"x")), 9).responses[0].partition_responses[0].error_code


def test_old_versions_create_without_asking_and_new_ones_only_if_they_say_so(client: RawClient) -> None:
    assert codes(client, metadata("of-version-3"), 3) == {"of-version-3": ErrorCode.LEADER_NOT_AVAILABLE}
    for _ in range(2):
        unwanted = metadata("unwanted", auto_create=False)
        assert codes(client, unwanted, 4) == {"unwanted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_neither_bad_names_nor_internal_topics_are_created(client: RawClient) -> None:
    answer = codes(client, metadata("__consumer_offsets", "__transaction_state", "no name", "..", "x" * 250))
    assert answer["__consumer_offsets"] == answer["__transaction_state"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer["no name"] == answer[".."] == answer["x" * 250] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not set(answer) & set(codes(client, metadata(all_topics=True)))


def test_a_produce_or_fetch_alone_creates_nothing(client: RawClient) -> None:
    assert client.ask(produce("unasked", one_batch(b"x")), 9).responses[0].partition_responses[0].error_code == 3
    assert client.ask(fetch("unasked"), 11).responses[0].partitions[0].error_code == 3
    assert "unasked" not in codes(client, metadata(all_topics=True))


def test_a_topic_is_found_by_its_id(client: RawClient, new_topic: NewTopic) -> None:
    topic, topic_id = new_topic(3)
    found, unknown = client.ask(metadata(topic_id, UUID(int=1)), 12).topics
    assert (found.name, found.topic_id, len(found.partitions)) == (topic, topic_id, 3)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    neither = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 12).topics[0]
    assert neither.error_code == ErrorCode.INVALID_REQUEST


def test_an_internal_topic_is_marked(client: RawClient) -> None:
    client.ask(create_topic("__consumer_offsets", 2), 7)
    assert client.ask(metadata("__consumer_offsets"), 9).topics[0].is_internal


def test_no_topic_is_created_where_the_broker_forbids_it() -> None:
    settings = {"auto.create.topics.enable": "false", "delete.topic.enable": "false", "num.partitions": "5"}
    with Broker(settings) as broker, RawClient(broker.bootstrap_servers) as client:
        assert codes(client, metadata("nothing")) == {"nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        made = client.ask(create_topic("made", -1, -1), 5).topics[0]
        assert made.num_partitions == 5
        for version, code in ((5, ErrorCode.TOPIC_DELETION_DISABLED), (2, ErrorCode.INVALID_REQUEST)):
            refused = client.ask(DeleteTopicsRequest(topic_names=["made"], timeout_ms=1), version).responses[0]
            assert refused.error_code == code  # in version 2 nobody knows the other


def test_validating_changes_nothing(client: RawClient) -> None:
    answer = client.ask(create_topic("just-asking", 4, validate_only=True), 7).topics[0]
    assert (answer.error_code, answer.num_partitions) == (0, 4)
    assert "just-asking" not in codes(client, metadata(all_topics=True))


def test_a_creation_that_nobody_waits_for_goes_on(client: RawClient) -> None:
    answer = client.ask(create_topic("in-a-hurry", timeout_ms=0), 7).topics[0]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    while codes(client, metadata("in-a-hurry", auto_create=False)) != {"in-a-hurry": 0}:
        pass


def test_each_topic_of_a_request_has_its_own_outcome(client: RawClient, new_topic: NewTopic) -> None:
    taken, _ = new_topic()
    entries = [creatable("good"), creatable(taken), creatable("b@d"), creatable("twice"), creatable("twice")]
    answer = client.ask(CreateTopicsRequest(topics=entries), 7)
    assert {one.name: one.error_code for one in answer.topics} == {
        "good": 0,
        taken: ErrorCode.TOPIC_ALREADY_EXISTS,
        "b@d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
    }


def test_a_topic_of_the_same_name_is_empty_and_has_another_id(client: RawClient, new_topic: NewTopic) -> None:
    topic, first_id = new_topic()
    client.ask(produce(topic, one_batch(b"old")), 9)
    for _ in range(3):
        client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
        made = client.ask(create_topic(topic), 7).topics[0]
        assert made.topic_id != first_id
        assert client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset == 0
        client.ask(produce(topic, one_batch(b"new")), 9)
    old = client.ask(fetch("", topic_id=first_id), 16).responses[0].partitions[0]
    assert old.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("count", [1000])
def test_a_topic_of_a_thousand_partitions(client: RawClient, new_topic: NewTopic, count: int) -> None:
    topic, _ = new_topic(count)
    assert len(client.ask(metadata(topic), 12).topics[0].partitions) == count
    answer = client.ask(produce(topic, one_batch(b"last"), partition=count - 1), 9)
    assert not answer.responses[0].partition_responses[0].error_code
    client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
