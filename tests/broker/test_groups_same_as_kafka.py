"""Groups and offsets in the words of Apache Kafka 4.3: the same requests to both, the same answers.

Each conversation is played to both brokers over raw connections and written down; the two transcripts must be equal.
Member ids and topic ids are told apart by the order in which they appear. One JVM for the module.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
)
from ottla.protocol.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
)
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_groups import (
    ASSIGNED_NOTHING,
    beat,
    commit,
    delete_offsets,
    fetch_offsets,
    first_beat,
    heartbeat,
    join,
    leave,
    owning,
    subscription_to,
    sync,
)
from ottla.testing.raw_requests import create_topic, list_offsets, one_batch, produce

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.id": "1",
    # Assignments at once: while one is due we tell members to come back earlier than Kafka does.
    "group.consumer.assignment.interval.ms": "0",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "5",
}
WAIT_S = 20.0
PLACES = {"host": "a host", "port": "a port", "error_message": "words"}
EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
# The random part of a member id: the generated ids of classic members end with one.
RANDOM_PART = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Side:
    """One of the two brokers, and what it said."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._prefix = prefix
        self._names: dict[str, str] = {}
        self.client = self.connect()
        self.transcript: list[Any] = []

    def connect(self) -> RawClient:
        return RawClient(self._bootstrap_servers)

    def name(self, name: str) -> str:
        """Every conversation has groups and topics of its own."""
        return f"{self._prefix}-{name}"

    def ask(
        self, request: object, version: int, client: RawClient | None = None, note: Callable[[Any], Any] | None = None
    ) -> Any:
        """Asks and writes the answer down; a closed connection is an answer too."""
        client = client or self.client
        client.send(request, version)
        return self.hear(type(request).__name__, version, client, note)

    def hear(self, label: str, version: int, client: RawClient, note: Callable[[Any], Any] | None = None) -> Any:
        """Writes down the answer to what was sent before."""
        try:
            answer, _ = client.receive()
        except ConnectionEnded:
            self.transcript.append((f"{label} v{version}", "closed"))
            assert client is self.client
            self.client = self.connect()
            return None
        self.transcript.append((f"{label} v{version}", self.plain(answer if note is None else note(answer))))
        return answer

    def plain(self, value: Any) -> Any:
        """A message as dicts and lists, with what differs from run to run told by its order."""
        match value:
            case list() | tuple():
                return [self.plain(one) for one in value]
            case dict():
                return {name: self.plain(one) for name, one in value.items()}
            case UUID():
                return self._label(str(value)) if value.int else value
            case str():
                return RANDOM_PART.sub(lambda found: self._label(found[0]), value)
            case _ if hasattr(type(value), "__match_args__") and hasattr(type(value), "__slots__"):
                seen = {name: self._field(name, getattr(value, name)) for name in type(value).__slots__}
                if isinstance(value, JoinGroupResponse | DescribedGroup | DescribedConsumerGroup):
                    seen["members"].sort(key=lambda member: str(member["member_id"]))  # kept in hash maps
                return seen
            case _:
                return value

    def _field(self, name: str, value: Any) -> Any:
        if name in PLACES:
            return PLACES[name]
        # Kafka counts the epochs of a consumer group from 2 on, we from 1: only how they follow each other is told.
        if name == "subscribed_topic_names":
            return sorted(value)  # a set
        if name in EPOCHS and value > 0:
            return self._label(f"epoch {value}")
        return self.plain(value)

    def _label(self, text: str) -> str:
        return self._names.setdefault(text, f"<{len(self._names)}>")

    # -- what is often wanted ------------------------------------------------------------------------------------------

    def new_topic(self, name: str, partitions: int = 2) -> tuple[str, UUID]:
        """A topic that is there: Kafka answers before its brokers know it."""
        full = self.name(name)
        made = self.client.ask(create_topic(full, partitions), 7).topics[0]
        assert not made.error_code, made
        self.wait_until(
            lambda: all(
                not self.client.ask(list_offsets(full, -1, partition=index), 7).topics[0].partitions[0].error_code
                for index in range(partitions)
            )
        )
        return full, made.topic_id

    def find_coordinator(self) -> None:
        """Until there is one: Kafka makes the topic and has its client ask again."""
        request = FindCoordinatorRequest(coordinator_keys=["any"])
        self.wait_until(lambda: not self.client.ask(request, 6).coordinators[0].error_code)
        wish = OffsetFetchRequestGroup(group_id="any", topics=None)
        self.wait_until(lambda: not self.client.ask(OffsetFetchRequest(groups=[wish]), 9).groups[0].error_code)

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, "the broker never got there"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = Path(tmp_path_factory.mktemp("kafka"))
    settings = {name: value for name, value in SETTINGS.items() if name != "broker.id"}
    with KafkaBroker(ApacheKafka.resolve(KAFKA_4), directory, settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


Conversation = Callable[[Side], None]
CONVERSATIONS: dict[str, Conversation] = {}


def conversation(play: Conversation) -> Conversation:
    CONVERSATIONS[play.__name__.replace("_", " ")] = play
    return play


# -- what is often asked and noted -------------------------------------------------------------------------------------


def only_groups_of(side: Side) -> Callable[[Any], Any]:
    def note(answer: Any) -> Any:
        answer.groups = sorted(
            (group for group in answer.groups if group.group_id.startswith(side.name(""))),
            key=lambda group: group.group_id,
        )
        return answer

    return note


def in_order(answer: Any) -> Any:
    """Kafka keeps topics and partitions in hash maps: their order is nobody's."""
    for group in [answer, *getattr(answer, "groups", ())]:
        for topic in getattr(group, "topics", ()):
            topic.partitions.sort(key=lambda each: each.partition_index)
        getattr(group, "topics", []).sort(
            key=lambda topic: (topic.name, topic.topic_id) if hasattr(topic, "topic_id") else topic.name
        )
    return answer


def new_member(side: Side, group: str, version: int = 9, client: RawClient | None = None, **more: Any) -> str:
    """A member id of the broker's making, not joined yet."""
    return str(side.ask(join(group, **more), version, client).member_id)


def lone_member(side: Side, group: str, **more: Any) -> tuple[str, int]:
    """A member alone in its group, with its assignment; its id and generation."""
    member = new_member(side, group, **more)
    joined = side.ask(join(group, member, **more), 9)
    spoken = {"protocol_type": more.get("protocol_type", "consumer")}
    side.ask(sync(group, joined.generation_id, member, {member: ASSIGNED_NOTHING}, **spoken), 5)
    return member, joined.generation_id


# -- coordinators ------------------------------------------------------------------------------------------------------


@conversation
def a_coordinator_is_found(side: Side) -> None:
    for version in range(7):
        keys = {"coordinator_keys": ["g", "h", ""]} if version >= 4 else {"key": "g"}
        side.ask(FindCoordinatorRequest(**keys), version)
        if version >= 1:
            side.ask(FindCoordinatorRequest(**keys, key_type=7), version)
        if 1 <= version < 6:
            side.ask(FindCoordinatorRequest(**keys, key_type=2), version)
    side.ask(FindCoordinatorRequest(key=""), 3)
    side.ask(FindCoordinatorRequest(coordinator_keys=[]), 4)


# -- offsets -----------------------------------------------------------------------------------------------------------


@conversation
def offsets_are_committed(side: Side) -> None:
    topic, topic_id = side.new_topic("committed", 3)
    group = side.name("group")
    for version in range(2, 10):
        side.ask(commit(group, topic, {0: version, 2: 5}, f"note {version}"), version, note=in_order)
        side.ask(commit(group, topic, {0: 1, 9: 1, -1: 1}), version, note=in_order)
        side.ask(commit(group, side.name("never"), {0: 1}), version)
        side.ask(commit(group, topic, {1: 1}, None), version)
        side.ask(commit(group, topic, {1: -1}), version)
        side.ask(commit(group, topic, {1: -5}), version)
        side.ask(commit(group, topic, {1: 1}, "x" * 4096), version)
        side.ask(commit(group, topic, {1: 1}, "x" * 4097), version)
        side.ask(commit(group, topic, {1: 1}, "é" * 4096), version)
        side.ask(commit("", topic, {0: 1}), version)
        side.ask(OffsetCommitRequest(group_id=group, topics=[]), version)
        side.ask(commit(group, topic, {}), version)
        member = {"member_id": "nobody", "generation_id_or_member_epoch": 3}
        side.ask(commit(group, topic, {0: 1}, **member), version)
        side.ask(commit(side.name("unknown"), topic, {0: 1}, **member), version)
        side.ask(commit(group, topic, {0: 1}, member_id="nobody"), version)
        side.ask(commit(group, topic, {0: 1}, generation_id_or_member_epoch=3), version)
    side.ask(commit(group, "", {0: 4, 9: 1}, topic_id=topic_id), 10, note=in_order)
    side.ask(commit(group, "", {0: 4}, topic_id=UUID(int=5)), 10)
    side.ask(commit(group, "", {0: 4}, topic_id=UUID(int=0)), 10)
    side.ask(fetch_offsets(9, group, None), 9, note=in_order)


@conversation
def offsets_are_fetched(side: Side) -> None:
    topic, topic_id = side.new_topic("fetched", 3)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 7, 2: 9}, "a note"), 8, note=in_order)
    for version in range(1, 10):
        side.ask(fetch_offsets(version, group, {topic: [0, 1, 2, 7]}), version, note=in_order)
        side.ask(fetch_offsets(version, group, {topic: [0], side.name("never"): [0]}), version, note=in_order)
        side.ask(fetch_offsets(version, side.name("unknown"), {topic: [0]}), version)
        side.ask(fetch_offsets(version, group, {}), version)
        side.ask(fetch_offsets(version, "", {topic: [0]}), version)
        if version >= 2:
            side.ask(fetch_offsets(version, group, None), version, note=in_order)
            side.ask(fetch_offsets(version, side.name("unknown"), None), version)
        if version >= 7:
            side.ask(fetch_offsets(version, group, {topic: [0]}, require_stable=True), version)
    wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 5]) for each in (topic_id, UUID(int=6))]
    for topics in (wanted, wanted[:1], wanted[1:], None, []):
        wish = OffsetFetchRequestGroup(group_id=group, topics=topics)
        other = OffsetFetchRequestGroup(group_id=side.name("unknown"), topics=topics)
        side.ask(OffsetFetchRequest(groups=[wish, other]), 10, note=in_order)
    for member_id, epoch in (("nobody", 3), ("", -1), (None, -1), ("nobody", -1), (None, 4)):
        wish = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)
        side.ask(OffsetFetchRequest(groups=[wish]), 9, note=in_order)
    side.ask(OffsetFetchRequest(groups=[]), 8)


@conversation
def offsets_are_deleted(side: Side) -> None:
    topic, _ = side.new_topic("deleted", 2)
    group = side.name("group")
    side.ask(commit(group, topic, {0: 7, 1: 9}), 8)
    side.ask(delete_offsets(group, {topic: [0, 5], side.name("never"): [0]}), 0, note=in_order)
    side.ask(delete_offsets(group, {}), 0)
    side.ask(delete_offsets(group, {topic: []}), 0)
    side.ask(delete_offsets(side.name("unknown"), {topic: [0]}), 0)
    side.ask(delete_offsets("", {topic: [0]}), 0)
    side.ask(delete_offsets(side.name("unknown"), {side.name("never"): [0]}), 0)
    side.ask(delete_offsets(side.name("unknown"), {side.name("never"): [0], topic: [0]}), 0)
    side.ask(fetch_offsets(9, group, None), 9)
    side.ask(delete_offsets(group, {topic: [1]}), 0)
    side.ask(fetch_offsets(9, group, None), 9)
    side.ask(ListGroupsRequest(), 5, note=only_groups_of(side))
    # What it reads is not to be forgotten.
    member, generation = lone_member(side, group, metadata=subscription_to(topic))
    side.ask(commit(group, topic, {0: 1}, member_id=member, generation_id_or_member_epoch=generation), 8)
    side.ask(delete_offsets(group, {topic: [0]}), 0)
    other, _ = side.new_topic("other")
    side.ask(commit(group, other, {0: 1}, member_id=member, generation_id_or_member_epoch=generation), 8)
    side.ask(delete_offsets(group, {topic: [0], other: [0]}), 0, note=in_order)
    side.ask(fetch_offsets(9, group, None), 9)


@conversation
def offsets_of_a_deleted_topic_are_gone(side: Side) -> None:
    doomed, _ = side.new_topic("doomed")
    group = side.name("group")
    side.ask(commit(group, doomed, {0: 7}), 8)
    side.ask(DeleteTopicsRequest(topic_names=[doomed], timeout_ms=5000), 5)
    side.wait_until(lambda: not side.client.ask(fetch_offsets(9, group, None), 9).groups[0].topics)
    side.ask(fetch_offsets(9, group, {doomed: [0]}), 9)
    side.ask(commit(group, doomed, {0: 7}), 8)


@conversation
def the_offsets_topic_is_not_for_producers(side: Side) -> None:
    side.ask(produce("__consumer_offsets", one_batch(b"mine")), 9)


# -- joining -----------------------------------------------------------------------------------------------------------


@conversation
def joins_that_are_refused(side: Side) -> None:
    for version in range(10):
        group = side.name(f"group-{version}")
        side.ask(join("", "m"), version)
        side.ask(join("", ""), version)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, session_timeout_ms=499), version)
        side.ask(join(group, session_timeout_ms=1_800_001), version)
        side.ask(join(group, session_timeout_ms=-1), version)
        # Kafka keeps the group that such a request names; it has its own here, because we do not.
        side.ask(join(f"{group}-untyped", protocol_type=""), version)
        side.ask(join(f"{group}-mute", protocols=[]), version)
        if version >= 5:
            side.ask(join(group, "nobody", group_instance_id="static"), version)


@conversation
def a_group_and_its_only_member(side: Side) -> None:
    for version in range(10):
        group = side.name(f"group-{version}")
        member = str(side.ask(join(group), version).member_id)
        generation = 1
        if version >= 4:
            side.ask(sync(group, 1, member), 3)
            side.ask(heartbeat(group, 1, member), 3)
            generation = side.ask(join(group, member), version).generation_id
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
        side.ask(heartbeat(group, generation, member), 3)
        sync_version = min(version, 5)
        side.ask(sync(group, generation + 1, member), sync_version)
        side.ask(sync(group, generation, "nobody"), sync_version)
        side.ask(sync("", generation, member), sync_version)
        side.ask(sync(side.name("never"), generation, member), sync_version)
        if sync_version == 5:
            side.ask(sync(group, generation + 1, member, protocol_type=None), 5)
            side.ask(sync(group, generation, member, protocol_name=None), 5)
            side.ask(sync(group, generation, member, protocol_type="connect", protocol_name="range"), 5)
            side.ask(sync(group, generation, member, protocol_type="consumer", protocol_name="sticky"), 5)
        side.ask(sync(group, generation, member, {member: b"assigned", "stranger": b"x"}), sync_version)
        side.ask(sync(group, generation, member, {member: b"again"}), sync_version)
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
        side.ask(join(group, member), version)
        side.ask(heartbeat(group, generation, member), 3)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, protocol_type="connect"), version)
        side.ask(join(group, protocols=["sticky"]), version)
        side.ask(join(group, member, protocols=["sticky"]), version)


@conversation
def heartbeats(side: Side) -> None:
    group = side.name("group")
    member, generation = lone_member(side, group)
    for version in range(5):
        side.ask(heartbeat(group, generation, member), version)
        side.ask(heartbeat(group, generation + 1, member), version)
        side.ask(heartbeat(group, generation - 1, member), version)
        side.ask(heartbeat(group, generation, "nobody"), version)
        side.ask(heartbeat(group, generation, ""), version)
        side.ask(heartbeat(side.name("never"), generation, member), version)
        side.ask(heartbeat("", generation, member), version)
        if version >= 3:
            side.ask(heartbeat(group, generation, member, group_instance_id="static"), version)


@conversation
def a_member_commits(side: Side) -> None:
    topic, _ = side.new_topic("read", 2)
    group = side.name("group")
    member, generation = lone_member(side, group, metadata=subscription_to(topic))
    for version in range(2, 10):
        of_member = {"member_id": member, "generation_id_or_member_epoch": generation}
        side.ask(commit(group, topic, {0: 1}, **of_member), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": 9}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": -1}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": "nobody"}), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": ""}), version)
        side.ask(commit(group, topic, {0: 1}), version)
        if version >= 7:
            side.ask(commit(group, topic, {0: 1}, **of_member, group_instance_id="static"), version)


@conversation
def a_second_member_comes_and_the_first_goes(side: Side) -> None:
    topic, _ = side.new_topic("shared")
    group = side.name("group")
    first, generation = lone_member(side, group, protocols=["range", "sticky"])
    other = side.connect()
    second = new_member(side, group, client=other, protocols=["range", "other"])
    side.ask(heartbeat(group, generation, first), 4)
    other.send(join(group, second, protocols=["range", "other"]), 9)
    side.wait_until(lambda: side.client.ask(heartbeat(group, generation, first), 4).error_code == 27)
    side.ask(heartbeat(group, generation, second), 4)
    side.ask(sync(group, generation, first), 5)
    side.ask(commit(group, topic, {0: 1}, member_id=first, generation_id_or_member_epoch=generation), 8)
    side.ask(commit(group, topic, {0: 1}, member_id=second, generation_id_or_member_epoch=generation), 8)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    joined = side.ask(join(group, first, protocols=["range", "sticky"]), 9)
    side.hear("JoinGroupRequest", 9, other)
    generation = joined.generation_id
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(heartbeat(group, generation, first), 4)
    side.ask(commit(group, topic, {0: 1}, member_id=first, generation_id_or_member_epoch=generation), 8)
    other.send(sync(group, generation, second), 5)
    side.ask(sync(group, generation, first, {first: b"one", second: b"two"}), 5)
    side.hear("SyncGroupRequest", 5, other)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    # The leader comes back: everybody is asked to join. A follower that comes back is answered at once.
    side.ask(join(group, second, protocols=["range", "other"]), 9, client=other)
    side.ask(leave(group, first), 5)
    side.ask(heartbeat(group, generation, second), 4, client=other)
    joined = side.ask(join(group, second, protocols=["range", "other"]), 9, client=other)
    side.ask(leave(group, second), 5, client=other)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    other.close()


@conversation
def leaving(side: Side) -> None:
    for version in range(6):
        group = side.name(f"group-{version}")
        member, _ = lone_member(side, group)
        if version < 3:
            side.ask(LeaveGroupRequest(group_id=group, member_id="nobody"), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=""), version)
            side.ask(LeaveGroupRequest(group_id="", member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=side.name("never"), member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=member), version)
            side.ask(LeaveGroupRequest(group_id=group, member_id=member), version)
        else:
            side.ask(leave(group, "nobody"), version)
            side.ask(leave(group), version)
            side.ask(leave(group, ("", "static")), version)
            side.ask(leave(group, ("nobody", "static")), version)
            side.ask(leave("", member), version)
            side.ask(leave(side.name("never"), member, "other"), version)
            side.ask(leave(group, "nobody", member), version)
            side.ask(leave(group, member), version)
        pending = new_member(side, group)
        side.ask(
            LeaveGroupRequest(group_id=group, member_id=pending) if version < 3 else leave(group, pending), version
        )


@conversation
def static_members(side: Side) -> None:
    topic, _ = side.new_topic("static")
    group = side.name("group")
    joined = side.ask(join(group, group_instance_id="one"), 9)
    first, generation = joined.member_id, joined.generation_id
    side.ask(sync(group, generation, first, {first: b"assigned"}, group_instance_id="one"), 5)
    side.ask(heartbeat(group, generation, first, group_instance_id="one"), 4)
    side.ask(heartbeat(group, generation, "nobody", group_instance_id="one"), 4)
    side.ask(heartbeat(group, generation, first, group_instance_id="two"), 4)
    side.ask(heartbeat(group, generation, first), 4)
    # It comes back under the same name and has a new id; the old one is fenced.
    rejoined = side.ask(join(group, group_instance_id="one"), 9)
    again = rejoined.member_id
    for member in (first, again):
        side.ask(heartbeat(group, rejoined.generation_id, member, group_instance_id="one"), 4)
        side.ask(sync(group, rejoined.generation_id, member, {member: b"new"}, group_instance_id="one"), 5)
        of_member = {"member_id": member, "generation_id_or_member_epoch": rejoined.generation_id}
        side.ask(commit(group, topic, {0: 1}, **of_member, group_instance_id="one"), 8)
        side.ask(commit(group, topic, {0: 1}, **of_member), 8)
        side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(join(group, first, group_instance_id="one"), 9)
    side.ask(leave(group, (first, "one")), 5)
    # Another protocol is another subscription: that takes a rebalance.
    changed = side.ask(join(group, group_instance_id="one", protocols=["range", "sticky"]), 9)
    side.ask(
        sync(group, changed.generation_id, changed.member_id, {changed.member_id: b"x"}, group_instance_id="one"), 5
    )
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(leave(group, ("", "two"), ("", "one")), 5)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)


def joined_count(answer: Any) -> Any:
    return answer.error_code, answer.generation_id, len(answer.members)


@conversation
def a_group_that_is_full(side: Side) -> None:
    group = side.name("group")
    described = DescribeGroupsRequest(groups=[group])
    connections = [side.connect() for _ in range(2)]
    first = side.ask(join(group), 3).member_id
    for number, connection in enumerate(connections):
        connection.send(join(group), 3)
        side.wait_until(lambda count=number + 2: len(side.client.ask(described, 5).groups[0].members) == count)
    side.ask(join(group, first), 3, note=joined_count)
    for connection in connections:
        side.hear("JoinGroupRequest", 3, connection, joined_count)
        connection.close()
    for version in (3, 9):
        side.ask(join(group), version)
        side.ask(join(group, "nobody"), version)
        side.ask(join(group, group_instance_id="static") if version == 9 else join(group), version)


# -- consumer groups (KIP-848) -----------------------------------------------------------------------------------------


def assigned(answer: Any) -> Any:
    """The partitions in order: how they are written is nobody's."""
    if getattr(answer, "assignment", None) is not None:
        for topic in answer.assignment.topic_partitions:
            topic.partitions.sort()
    return answer


def settled(side: Side, group: str, member_id: str, topic_id: UUID, *partitions: int) -> int:
    """The epoch of a member once it has these partitions. Kafka's coordinator hears of a new topic a moment later."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    owned = owning(topic_id, *partitions)
    epochs = [0]

    def has_settled() -> bool:
        (described,) = side.client.ask(request, 1).groups
        (member,) = (each for each in described.members if each.member_id == member_id)
        epochs.append(member.member_epoch)
        assigned = {number for each in member.assignment.topic_partitions for number in each.partitions}
        side.client.ask(beat(group, member_id, member.member_epoch, topic_partitions=owned if assigned else []), 1)
        return assigned == set(partitions) and epochs[-1] == epochs[-2] == described.group_epoch

    side.wait_until(has_settled)
    return epochs[-1]


@conversation
def heartbeats_of_consumers_that_are_refused(side: Side) -> None:
    topic, topic_id = side.new_topic("read")
    group = side.name("group")
    for version in (0, 1):
        name = f"{group}-{version}"
        side.ask(first_beat("", "m", topic), version)
        side.ask(first_beat(" ", "m", topic), version)
        if version == 1:
            side.ask(first_beat(name, "", topic), version)
        side.ask(beat(name, "m", 0), version)
        side.ask(beat(name, "m", 0, rebalance_timeout_ms=1000), version)
        side.ask(beat(name, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[topic]), version)
        side.ask(first_beat(name, "m", topic_partitions=owning(topic_id, 0)), version)
        side.ask(first_beat(name, "m", topic, rebalance_timeout_ms=-1), version)
        side.ask(first_beat(name, "m", topic, server_assignor="sticky"), version)
        side.ask(first_beat(name, "m", topic, server_assignor=""), version)
        side.ask(first_beat(name, "m", topic, rack_id=""), version)
        side.ask(first_beat(name, "m", topic, instance_id=""), version)
        side.ask(beat(name, "m", 5), version)
        side.ask(beat(name, "", 5), version)
        side.ask(beat(name, "m", -1), version)
        side.ask(beat(name, "m", -2), version)
        side.ask(beat(name, "m", -2, instance_id="static"), version)
        side.ask(beat(name, "m", -3), version)
        if version == 1:
            side.ask(first_beat(name, "m", subscribed_topic_regex="(", subscribed_topic_names=None), version)
            side.ask(first_beat(name, "m", subscribed_topic_regex="", subscribed_topic_names=None), version)
    for name in (group, "", side.name("never")):
        side.ask(ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=True), 1)


@conversation
def a_consumer_alone(side: Side) -> None:
    topic, topic_id = side.new_topic("read", 3)
    group = side.name("group")
    side.ask(first_beat(group, "one", topic), 1, note=lambda answer: answer.error_code)
    epoch = settled(side, group, "one", topic_id, 0, 1, 2)
    side.ask(beat(group, "one", epoch, topic_partitions=owning(topic_id, 0, 1, 2)), 1, note=assigned)
    side.ask(beat(group, "one", epoch), 1, note=assigned)
    side.ask(beat(group, "one", epoch + 1), 1, note=assigned)
    side.ask(beat(group, "one", epoch + 1, topic_partitions=owning(topic_id, 0)), 1, note=assigned)
    side.ask(beat(group, "two", epoch), 1, note=assigned)
    side.ask(beat(group, "one", epoch, subscribed_topic_names=[topic, side.name("never")]), 1, note=assigned)
    for version in (0, 1):
        for with_operations in (False, True):
            request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=with_operations)
            side.ask(request, version)
    epoch = settled(side, group, "one", topic_id, 0, 1, 2)
    side.ask(DescribeGroupsRequest(groups=[group]), 5)
    side.ask(DescribeGroupsRequest(groups=[group]), 6)
    side.ask(ListGroupsRequest(), 5, note=only_groups_of(side))
    side.ask(ListGroupsRequest(types_filter=["consumer"]), 5, note=only_groups_of(side))
    side.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    for version in (8, 9):
        of_member = {"member_id": "one", "generation_id_or_member_epoch": epoch}
        side.ask(commit(group, topic, {0: 1}, **of_member), version)
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "generation_id_or_member_epoch": epoch + 5}), version)
        # Kafka takes one of an earlier epoch if the partition was the member's then (KIP-1251); we ask for a new try.
        side.ask(commit(group, topic, {0: 1}, **{**of_member, "member_id": "two"}), version)
        side.ask(commit(group, topic, {0: 1}), version)
    for member_id, member_epoch in (("one", epoch), ("one", epoch + 5), ("two", epoch), (None, -1), ("", -1)):
        wish = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=member_epoch, topics=None)
        side.ask(OffsetFetchRequest(groups=[wish]), 9)
    side.ask(delete_offsets(group, {topic: [0]}), 0)
    side.ask(heartbeat(group, epoch, "one"), 4)
    side.ask(beat(group, "one", -1), 1)
    side.ask(beat(group, "one", epoch), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)
    side.ask(ListGroupsRequest(), 5, note=only_groups_of(side))
    side.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


@conversation
def static_consumers(side: Side) -> None:
    topic, topic_id = side.new_topic("read", 2)
    group = side.name("group")
    static = {"instance_id": "static"}
    side.ask(first_beat(group, "one", topic, **static), 1, note=lambda answer: answer.error_code)
    epoch = settled(side, group, "one", topic_id, 0, 1)
    side.ask(first_beat(group, "two", topic, **static), 1, note=assigned)
    side.ask(beat(group, "one", epoch, instance_id="other"), 1, note=assigned)
    side.ask(beat(group, "one", -2, **static), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)
    side.ask(first_beat(group, "two", topic, **static), 1, note=assigned)
    side.ask(beat(group, "one", epoch, **static), 1, note=assigned)
    side.ask(beat(group, "one", -1, **static), 1)
    side.ask(beat(group, "two", -1, **static), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


@conversation
def classic_and_consumer_protocol_in_one_group(side: Side) -> None:
    topic, _ = side.new_topic("read", 2)
    # A group without members changes its kind with whoever comes.
    group = side.name("empty")
    member, _ = lone_member(side, group)
    side.ask(first_beat(group, "new", topic), 1, note=lambda answer: answer.error_code)
    side.ask(leave(group, member), 5)
    side.ask(ListGroupsRequest(), 5, note=only_groups_of(side))
    # Members who are no consumers cannot be taken along.
    group = side.name("connect")
    lone_member(side, group, protocol_type="connect", metadata=b"in words of its own")
    side.ask(first_beat(group, "new", topic), 1)
    side.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1)


# -- administrators ----------------------------------------------------------------------------------------------------


@conversation
def groups_are_described_listed_and_deleted(side: Side) -> None:
    topic, _ = side.new_topic("read")
    stable, empty, simple, pending = (side.name(name) for name in ("stable", "empty", "simple", "pending"))
    member, _ = lone_member(side, stable, metadata=subscription_to(topic))
    gone, _ = lone_member(side, empty)
    side.ask(leave(empty, gone), 4)
    side.ask(commit(simple, topic, {0: 4}), 8)
    new_member(side, pending)
    groups = [stable, empty, simple, pending, side.name("never"), "", stable]
    for version in range(7):
        more = {"include_authorized_operations": True} if version >= 3 else {}
        for group in groups:
            side.ask(DescribeGroupsRequest(groups=[group], **more), version)
        side.ask(DescribeGroupsRequest(groups=[]), version)
    for version in range(6):
        side.ask(ListGroupsRequest(), version, note=only_groups_of(side))
        for states in ([], ["Stable"], ["stable", "EMPTY"], ["Nonsense"], ["Dead"], ["PreparingRebalance"]):
            if version >= 4:
                side.ask(ListGroupsRequest(states_filter=states), version, note=only_groups_of(side))
        for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"], ["nonsense"], ["share"]):
            if version >= 5:
                side.ask(ListGroupsRequest(types_filter=types), version, note=only_groups_of(side))
    for version in range(3):
        for group in (stable, side.name("never"), "", pending):
            side.ask(DeleteGroupsRequest(groups_names=[group]), version)
    side.ask(DeleteGroupsRequest(groups_names=[]), 2)
    side.ask(DeleteGroupsRequest(groups_names=[simple]), 2)
    side.ask(DeleteGroupsRequest(groups_names=[empty, empty]), 2)
    side.ask(fetch_offsets(9, simple, None), 9)
    side.ask(ListGroupsRequest(), 5, note=only_groups_of(side))
    side.ask(heartbeat(stable, 1, member), 4)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_kafka_and_we_say_the_same(name: str, kafka: str, ours: str) -> None:
    prefix = "-".join(name.split())
    sides = [Side(bootstrap_servers, prefix) for bootstrap_servers in (kafka, ours)]
    for side in sides:
        side.find_coordinator()
        CONVERSATIONS[name](side)
        side.client.close()
    theirs, mine = (side.transcript for side in sides)
    for number, (said, we_said) in enumerate(zip(theirs, mine, strict=False)):
        assert we_said == said, f"answer {number}"
    assert len(mine) == len(theirs)
