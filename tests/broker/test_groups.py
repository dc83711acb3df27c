"""Consumer groups with the clients that people use: members come, go and die, offsets are committed and found again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewPartitions, NewTopic

from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import beat, first_beat
from ottla.testing.waiting import WAIT_S

# A member that waits for a core on a busy machine is not missed; news reach members of either protocol in a tenth of a
# second.
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.assignment.interval.ms": "0",
}
QUICK = {"heartbeat.interval.ms": 100, "session.timeout.ms": 45_000}
CLASSIC = {"partition.assignment.strategy": "range"}
CONSUMER = {"group.protocol": "consumer"}  # KIP-848; the broker sets the pace and assigns

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of four partitions."""
    name = f"topic-{next(_numbers)}"
    for made in admin.create_topics([NewTopic(name, 4)]).values():
        made.result(WAIT_S)
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


class Member:
    """A consumer of confluent-kafka, and what happened to it."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: Any) -> None:
        self.values: list[bytes] = []
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        self.lost: list[set[int]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,  # ten seconds by default, as long as a session
                "log_level": 2,
                **({} if settings.get("group.protocol") == "consumer" else QUICK),
                **settings,
            }
        )
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self.assigned.append(numbers_of(partitions)),
            on_revoke=lambda _, partitions: self.revoked.append(numbers_of(partitions)),
            on_lost=lambda _, partitions: self.lost.append(numbers_of(partitions)),
        )

    @property
    def partitions(self) -> set[int]:
        return numbers_of(self.consumer.assignment())

    def poll(self) -> None:
        message: Message | None = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            self.values.append(value)

    def close(self) -> None:
        self.consumer.close()


def numbers_of(partitions: Iterable[TopicPartition]) -> set[int]:
    return {each.partition for each in partitions}


@pytest.fixture
def join(broker: Broker, group: str, topic: str) -> Iterator[Callable[..., Member]]:
    """Makes members of the test's group, which leave after the test."""
    with ExitStack() as stack:

        def join(**settings: Any) -> Member:
            member = Member(broker, group, topic, **settings)
            stack.callback(member.close)
            return member

        yield join


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, [(member.partitions, len(member.values)) for member in members]
        for member in members:
            member.poll()


def shares_are(sizes: Iterable[int], *members: Member) -> Callable[[], bool]:
    """Whether the members have so many partitions each, none of them twice."""
    wanted = sorted(sizes)

    def check() -> bool:
        shares = [member.partitions for member in members]
        return sorted(map(len, shares)) == wanted and len(set().union(*shares)) == sum(wanted)

    return check


def produce(broker: Broker, topic: str, values: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % 4)
    assert producer.flush(WAIT_S) == 0


def numbers(values: Iterable[bytes]) -> list[int]:
    return sorted(map(int, values))


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


def is_described_as(admin: AdminClient, group: str, state: str, members: int, assignor: str) -> Callable[[], bool]:
    """A group may know last that its members have what it wants them to have."""

    def check() -> bool:
        found = describe(admin, group)
        return (found.state.name, len(found.members), found.partition_assignor) == (state, members, assignor)

    return check


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    return {each.partition: each.offset for each in found.topic_partitions}


# -- commits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["sync", "async"])
def test_whoever_comes_next_goes_on_where_the_last_one_committed(
    is_asynchronous: bool,
    settings: dict[str, str],
    broker: Broker,
    admin: AdminClient,
    group: str,
    topic: str,
    join: Callable[..., Member],
) -> None:
    produce(broker, topic, range(40))
    first = join(**settings)
    poll_until(lambda: len(first.values) == 40, first)
    assert numbers(first.values) == list(range(40))
    if is_asynchronous:
        first.consumer.commit(asynchronous=True)
    else:
        first.consumer.commit(asynchronous=False)
    poll_until(lambda: committed(admin, group) == dict.fromkeys(range(4), 10), first)
    first.close()
    produce(broker, topic, range(40, 60))
    second = join(**settings)
    poll_until(lambda: len(second.values) == 20, second)
    assert numbers(second.values) == list(range(40, 60))
    watermarks = [second.consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in range(4)]
    lag = sum(high for _, high in watermarks) - sum(committed(admin, group).values())
    assert lag == 20


def test_a_commit_by_hand_without_membership_is_kept_and_found(
    broker: Broker, admin: AdminClient, group: str, topic: str
) -> None:
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    wanted = [TopicPartition(topic, 2, 7, metadata="a note")]
    reader.commit(offsets=wanted, asynchronous=False)
    (found,) = reader.committed([TopicPartition(topic, 2)], timeout=WAIT_S)
    assert (found.offset, found.metadata) == (7, "a note")
    assert describe(admin, group).state.name == "EMPTY"
    reader.close()
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert committed(admin, group) == {}


# -- members come and go -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "uniform"])
def test_partitions_are_shared_among_members_and_taken_over_from_those_who_leave(
    strategy: str, broker: Broker, admin: AdminClient, group: str, topic: str, join: Callable[..., Member]
) -> None:
    settings = CONSUMER if strategy == "uniform" else {"partition.assignment.strategy": strategy}
    one = join(**settings)
    poll_until(shares_are([4], one), one)
    two = join(**settings)
    poll_until(shares_are([2, 2], one, two), one, two)
    three = join(**settings)
    poll_until(shares_are([1, 1, 2], one, two, three), one, two, three)
    poll_until(is_described_as(admin, group, "STABLE", 3, strategy), one, two, three)
    two.close()
    poll_until(shares_are([2, 2], one, three), one, three)
    produce(broker, topic, range(20))
    poll_until(lambda: len(one.values) + len(three.values) == 20, one, three)
    assert numbers(one.values + three.values) == list(range(20))


@pytest.mark.parametrize(
    "settings", [{"partition.assignment.strategy": "cooperative-sticky"}, CONSUMER], ids=["classic", "consumer"]
)
def test_a_cooperative_member_keeps_what_it_is_to_have_anyway(
    settings: dict[str, str], join: Callable[..., Member]
) -> None:
    one = join(**settings)
    poll_until(shares_are([4], one), one)
    two = join(**settings)
    poll_until(shares_are([2, 2], one, two), one, two)
    assert [len(each) for each in one.revoked if each] == [2], "only what the other one gets is given up"
    assert one.lost == []


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    settings: dict[str, str], admin: AdminClient, group: str, join: Callable[..., Member]
) -> None:
    one = join(**settings, **{"group.instance.id": "one"})
    two = join(**settings, **{"group.instance.id": "two"})
    poll_until(shares_are([2, 2], one, two), one, two)
    kept, rebalances = two.partitions, len(one.assigned)
    two.close()  # a static member does not say good-bye
    assert len(describe(admin, group).members) == 2
    two = join(**settings, **{"group.instance.id": "two"})
    poll_until(lambda: two.partitions == kept, one, two)
    assert len(one.assigned) == rebalances


def test_a_member_that_dies_is_missed_after_its_session_and_its_partitions_go_to_others(
    broker: Broker, group: str, topic: str, join: Callable[..., Member]
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(FindCoordinatorRequest(key=group), 3)
        subscription = bytes.fromhex("0001 00000001") + len(topic).to_bytes(2) + topic.encode() + bytes(8)
        joining = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=2000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        joining.member_id = client.ask(joining, 5).member_id
        joined = client.ask(joining, 5)
        assert joined.leader == joined.member_id
        assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\x00\x01" + bytes(8))]
        client.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=assignments,
            ),
            3,
        )
        member = join(**{"partition.assignment.strategy": "range"})
        poll_until(shares_are([4], member), member)


def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_is_at_work(
    broker: Broker, admin: AdminClient, group: str, topic: str, join: Callable[..., Member]
) -> None:
    old = join(**CLASSIC)
    poll_until(shares_are([4], old), old)
    new = join(**CONSUMER)
    poll_until(shares_are([2, 2], old, new), old, new)
    poll_until(lambda: describe(admin, group).type.name == "CONSUMER", old, new)
    produce(broker, topic, range(20))
    # Some may come twice: who revokes everything in each rebalance reads again what it had not committed.
    poll_until(lambda: set(numbers(old.values + new.values)) == set(range(20)), old, new)
    for member in (old, new):
        member.consumer.commit(asynchronous=False)
    new.close()
    poll_until(shares_are([4], old), old)
    poll_until(lambda: describe(admin, group).type.name == "CLASSIC", old)
    produce(broker, topic, range(20, 40))
    poll_until(lambda: set(numbers(old.values + new.values)) == set(range(40)), old)


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_new_partitions_are_noticed(
    settings: dict[str, str], admin: AdminClient, topic: str, join: Callable[..., Member]
) -> None:
    member = join(**settings, **{"topic.metadata.refresh.interval.ms": 100})
    poll_until(shares_are([4], member), member)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(WAIT_S)
    poll_until(shares_are([6], member), member)


def test_a_consumer_group_has_settings_of_its_own(broker: Broker, group: str, topic: str) -> None:
    changed = IncrementalAlterConfigsRequestAlterableConfig(
        name="consumer.heartbeat.interval.ms", config_operation=0, value="777"
    )
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=32, resource_name=group, configs=[changed]
    )
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(FindCoordinatorRequest(key=group), 3)
        answers = [client.ask(first_beat(group, "one", topic), 1)]
        altered = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert not altered.responses[0].error_code, altered
        answers.append(client.ask(beat(group, "one", answers[0].member_epoch), 1))
        answers.append(client.ask(first_beat(f"other-{group}", "one", topic), 1))
    assert [answer.heartbeat_interval_ms for answer in answers] == [100, 777, 100]


# -- the broker goes away and comes back -------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_members_outlive_a_restart_of_the_broker_without_a_rebalance(is_killed: bool, settings: dict[str, str]) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(SETTINGS, in_process=False))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 4)])["t"].result(WAIT_S)
        members = [Member(broker, "g", "t", log_level=0, **settings) for _ in range(2)]
        for member in members:
            stack.callback(member.close)
        poll_until(shares_are([2, 2], *members), *members)
        produce(broker, "t", range(8))
        poll_until(lambda: sum(len(member.values) for member in members) == 8, *members)
        for member in members:
            member.consumer.commit(asynchronous=False)
        shares = [member.partitions for member in members]
        rebalances = [len(member.assigned) for member in members]
        if is_killed:
            broker.kill()
        broker.restart()
        produce(broker, "t", range(8, 16))
        poll_until(lambda: sum(len(member.values) for member in members) == 16, *members)
        for member in members:
            member.consumer.commit(asynchronous=False)
        assert [member.partitions for member in members] == shares
        assert [len(member.assigned) for member in members] == rebalances
        assert committed(admin, "g") == dict.fromkeys(range(4), 4)


# -- other clients -----------------------------------------------------------------------------------------------------


@contextmanager
def kafka_python_member(broker: Broker, group: str, topic: str) -> Iterator[Any]:
    from kafka import KafkaConsumer  # not at the top: it warns when it is imported

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        session_timeout_ms=30_000,
    )
    try:
        # Known before it joins: kafka-python may lead a group sooner than it knows the topic, and assigns nothing then.
        assert consumer.partitions_for_topic(topic)
        yield consumer
    finally:
        consumer.close()


@pytest.mark.usefixtures("leaves_sockets")
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_kafka_python_members_share_commit_and_go_on(
    broker: Broker, admin: AdminClient, group: str, topic: str
) -> None:
    produce(broker, topic, range(20))
    values: list[bytes] = []

    def poll(consumers: Iterable[Any], condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            for consumer in consumers:
                for records in consumer.poll(timeout_ms=20).values():
                    values.extend(record.value for record in records)

    with kafka_python_member(broker, group, topic) as one:
        poll([one], lambda: len(values) == 20)
        one.commit()
        with kafka_python_member(broker, group, topic) as two:
            poll([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 2)
            produce(broker, topic, range(20, 40))
            poll([one, two], lambda: len(values) == 40)
        poll([one], lambda: len(one.assignment()) == 4)
    assert numbers(values) == list(range(40))
    assert committed(admin, group) == dict.fromkeys(range(4), 5)


def test_aiokafka_members_share_commit_and_go_on(broker: Broker, admin: AdminClient, group: str, topic: str) -> None:
    produce(broker, topic, range(20))

    def consumer() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=30_000,
        )

    async def scenario() -> list[bytes]:
        values: list[bytes] = []

        async def poll(members: Iterable[aiokafka.AIOKafkaConsumer], condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(WAIT_S):
                while not condition():
                    for member in members:
                        for records in (await member.getmany(timeout_ms=20)).values():
                            values.extend(record.value for record in records)

        async with consumer() as one:
            await poll([one], lambda: len(values) == 20)
            await one.commit()
            async with consumer() as two:
                await poll([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 2)
                produce(broker, topic, range(20, 40))
                await poll([one, two], lambda: len(values) == 40)
            await poll([one], lambda: len(one.assignment()) == 4)
        return values

    assert numbers(asyncio.run(scenario())) == list(range(40))
    assert committed(admin, group) == dict.fromkeys(range(4), 5)
