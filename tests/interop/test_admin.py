"""The admin client against Apache Kafka and against Ottla: the same suite."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import pytest

import ottla
from ottla import ConfigResource, Isolation, NewTopic, OffsetSpec, TopicPartition
from ottla.client.admin.cluster import Features
from ottla.client.admin.groups import Member
from ottla.client.admin.topics import CreatedTopic
from ottla.client.error_codes import (
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
)
from ottla.client.errors import TimedOutError
from ottla.client.retrying import UnknownTopicError
from ottla.errors import ApiError, ErrorCode
from ottla.testing.waiting import wait_until

Outcome = TypeVar("Outcome")

numbers = count()


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin: ottla.Admin) -> str:
    name = f"administered-{next(numbers)}"
    admin.create_topic(name, partitions=2)
    admin.wait_for_topic(name)
    return name


def done(outcome: Outcome | ApiError) -> Outcome:
    assert not isinstance(outcome, ApiError), outcome
    return outcome


def write(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition, timestamp=1_000_000 + number)


def test_topics_are_created_described_extended_and_deleted(admin: ottla.Admin) -> None:
    names = [f"life-{next(numbers)}" for _ in range(2)]
    made = admin.create_topics([NewTopic(names[0], 3, config={"retention.ms": "100000"}), NewTopic(names[1], 1)])
    assert all(isinstance(each, CreatedTopic) for each in made.values()), made
    first = done(made[names[0]])
    assert first.partitions == 3
    topic = admin.wait_for_topic(names[0])
    assert (len(topic.partitions), topic.replication_factor, topic.is_internal) == (3, 1, False)
    assert topic.topic_id == first.topic_id
    assert set(names) <= set(admin.list_topics())
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topic(names[0])
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions(names[0], 2)
    admin.create_partitions(names[1], 2)
    assert len(admin.wait_for_topic(names[1], partitions=2).partitions) == 2
    deleted = admin.delete_topics([*names, "never-there"])
    assert [deleted[name] for name in names] == [None, None]
    assert isinstance(deleted["never-there"], ApiError)
    wait_until(lambda: not set(names) & set(admin.list_topics()))
    outcomes = admin.describe_topics([names[0]])
    assert isinstance(outcomes[names[0]], ApiError)
    with pytest.raises(ApiError) as caught:
        admin.delete_topic("never-there")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_its_id(admin: ottla.Admin, topic: str) -> None:
    topic_id = admin.describe_topic(topic).topic_id
    assert admin.delete_topics([topic_id]) == {topic_id: None}
    wait_until(lambda: topic not in admin.list_topics())


def test_a_topic_that_is_not_created_is_waited_for_in_vain(admin: ottla.Admin) -> None:
    with pytest.raises(TimedOutError, match="waiting for the topic nobody"):
        admin.wait_for_topic("nobody", timeout_s=0.2)


def test_settings_are_described_and_altered(admin: ottla.Admin, topic: str) -> None:
    resource = ConfigResource.topic(topic)
    admin.alter_config(resource, {"retention.ms": "5000", "cleanup.policy": "compact"})
    found = admin.describe_config(resource, ["retention.ms", "cleanup.policy"])
    assert {name: each.value for name, each in found.items()} == {"retention.ms": "5000", "cleanup.policy": "compact"}
    admin.alter_config(resource, {"retention.ms": None})
    assert admin.describe_config(resource, ["retention.ms"])["retention.ms"].value == "604800000"
    with pytest.raises(InvalidConfigError):
        admin.alter_config(resource, {"retention.ms": "soon"})
    admin.alter_config(resource, {"retention.ms": "7000"}, validate_only=True)
    assert admin.describe_config(resource, ["retention.ms"])["retention.ms"].value == "604800000"
    assert resource in admin.list_config_resources()
    (broker,) = admin.describe_cluster().brokers
    own = ConfigResource.broker(broker.broker_id)
    both = admin.describe_configs([own, resource])
    assert int(done(both[own])["num.partitions"].value or 0) > 0
    assert done(both[resource])["cleanup.policy"].value == "compact"


def test_the_cluster_is_described(admin: ottla.Admin) -> None:
    found = admin.describe_cluster()
    assert len(found.brokers) == 1
    assert found.controller_id == found.brokers[0].broker_id
    assert found.cluster_id == admin.metadata(()).cluster_id
    assert isinstance(admin.describe_features(), Features)
    (directory,) = admin.describe_log_dirs(found.brokers[0].broker_id)
    assert directory.error is None
    assert set(admin.describe_log_dirs_of_brokers()) == {found.brokers[0].broker_id}


def test_offsets_are_found_and_records_deleted(admin: ottla.Admin, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 20)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = admin.list_offsets({first: OffsetSpec.LATEST, second: OffsetSpec.LATEST})
    assert [done(found[each]).offset for each in (first, second)] == [20, 0]
    assert admin.list_offset(first, 1_000_005).offset == 5
    assert admin.list_offset(first, OffsetSpec.MAX_TIMESTAMP).offset == 19
    missing = admin.list_offsets({TopicPartition("nobody", 0): OffsetSpec.LATEST, first: OffsetSpec.EARLIEST})
    assert isinstance(missing[TopicPartition("nobody", 0)], UnknownTopicError)
    assert done(missing[first]).offset == 0
    assert admin.delete_records({first: 7}) == {first: 7}
    assert admin.list_offset(first, OffsetSpec.EARLIEST).offset == 7
    outcome = admin.delete_records({first: 70})[first]
    assert isinstance(outcome, ApiError)
    assert outcome.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_measured_reset_and_deleted(
    admin: ottla.Admin, bootstrap: str, topic: str, protocol: str
) -> None:
    write(bootstrap, topic, 20)
    group = f"group-{next(numbers)}"
    place = TopicPartition(topic, 0)
    with ottla.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        seen = 0
        while seen < 20:
            seen += sum(map(len, consumer.poll().values()))
        consumer.commit({place: 12})
        described = admin.describe_group(group)
        assert (described.state, described.group_type) == ("Stable", protocol)
        (member,) = described.members
        assert sorted(member.partitions or ()) == [place, TopicPartition(topic, 1)]
        lag = admin.lag(group)
        assert (lag[place].lag, lag[place].end_offset, lag[place].member_id) == (8, 20, member.member_id)
        assert lag[place].last_stable_offset == 20
        with pytest.raises(NonEmptyGroupError):
            admin.reset_offsets(group, to="earliest")
        with pytest.raises(NonEmptyGroupError):
            admin.delete_group(group)
    assert group in [each.group_id for each in admin.list_groups()]
    assert group not in [each.group_id for each in admin.list_groups(states=["Stable"])]
    assert {each: reset.after for each, reset in admin.reset_offsets(group, shift_by=-2, dry_run=True).items()} == {
        place: 10
    }
    assert admin.committed_offsets(group)[place].offset == 12
    when = datetime.fromtimestamp(1000.015, UTC)
    goals: list[tuple[Any, int]] = [("earliest", 0), ("latest", 20), (when, 15), (timedelta(days=1), 20), (3, 3)]
    for to, after in goals:
        assert admin.reset_offsets(group, to=to)[place].after == after
        assert admin.committed_offsets(group)[place].offset == after
    other = TopicPartition(topic, 1)
    assert admin.alter_offsets(group, {other: 0}) == {other: None}
    assert admin.delete_offsets(group, [other]) == {other: None}
    assert set(admin.committed_offsets(group)) == {place}
    admin.delete_group(group)
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_group(group)


def test_a_static_member_is_taken_out(admin: ottla.Admin, bootstrap: str, topic: str) -> None:
    group = f"group-{next(numbers)}"
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "group_instance_id": "one"}
    with ottla.Consumer(topic, **settings) as consumer:
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment())
    assert [each.instance_id for each in admin.describe_group(group).members] == ["one"]
    assert admin.remove_members(group) == {Member(instance_id="one"): None}
    assert admin.describe_group(group).members == ()
    assert admin.remove_members(group) == {}


def test_transactions_are_seen_and_aborted(admin: ottla.Admin, bootstrap: str, topic: str) -> None:
    name = f"transactional-{next(numbers)}"
    place = TopicPartition(topic, 0)
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transaction(name)
    producer = ottla.Producer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result()
        described = admin.describe_transaction(name)
        assert (described.state, described.partitions) == ("Ongoing", (place,))
        assert [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])] == [name]
        (found,) = admin.open_transactions([place])
        assert found.producer_id == described.producer_id
        assert admin.hanging_transactions([place]) == []
        stable = admin.list_offset(place, OffsetSpec.LATEST, isolation=Isolation.READ_COMMITTED)
        assert (stable.offset, admin.list_offset(place, OffsetSpec.LATEST).offset) == (0, 1)
        assert admin.abort_transaction(name) is True
        assert admin.abort_transaction(name) is False
        wait_until(lambda: admin.open_transactions([place]) == [])
        fenced = admin.fence_producer(name)
        assert fenced.producer_epoch > found.producer_epoch
        with pytest.raises(ApiError):
            producer.commit_transaction()
    finally:
        producer.close(0)
