"""A shard driven by hand: decisions are written to a list, applied, and answered by ticket."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from ottla.config.group import GroupConfig
from ottla.decisions import CoordinatorRecord, Decision
from ottla.errors import ErrorCode
from ottla.groups.classic import ClassicGroup
from ottla.groups.group import Caller
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import TopicInfo, TopicsView
from ottla.ids import ZERO_TOPIC_ID
from ottla.protocol.codec import encode
from ottla.protocol.coordinator_records import encode_key, encode_value
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from ottla.protocol.messages.embedded import ConsumerProtocolSubscription, TopicPartition
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.testing.steps import finished

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class Driver:
    """Plays the runner: one log in memory, a clock that tests move, and the replies by ticket."""

    def __init__(self, **settings: Any) -> None:
        of_groups = {name: settings.pop(name) for name in list(settings) if hasattr(GroupConfig, name)}
        self.settings = GroupSettings(consumer_config=GroupConfig(**of_groups), **settings)
        self.config_of: Callable[[str], GroupConfig] | None = None
        self.topics = TopicsView()
        self.now_ms = 1_000_000
        self.wall_ahead_ms = 0
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.markers: list[tuple[int, int, bool]] = []  # how long the log was, producer id, committed
        self.replies: dict[object, Any] = {}
        self._tickets = count(1)
        self._ids = count(1)
        self.refuse: ErrorCode | None = None
        self.machine = self.new_machine()
        self.machine.loaded(self.now_ms)

    def new_machine(self) -> GroupMachine:
        machine = GroupMachine(self.settings, self.topics, lambda: f"id{next(self._ids)}", self.config_of)
        machine.wall_ahead_ms = self.wall_ahead_ms
        return machine

    def set_wall_clock(self, ahead_ms: int) -> None:
        """Somebody sets the clock: wall time is so far ahead of steady time from now on."""
        self.wall_ahead_ms = self.machine.wall_ahead_ms = ahead_ms

    # --- running

    def ask(self, decide: Callable[..., Decision], *arguments: Any) -> Any:
        """The reply, or None while it is parked; `ticket` tells the last one asked with."""
        self.ticket = next(self._tickets)
        self.carry_out(decide(*arguments, self.ticket, self.now_ms))
        return self.replies.get(self.ticket)

    def carry_out(self, decision: Decision) -> None:
        if decision.records and self.refuse is not None:
            decision = self.machine.refused(decision, self.refuse, self.now_ms)
            assert not decision.records
        for record in decision.records:
            self.log.append((*encoded(record), decision.producer_id))
        if decision.records:
            self.machine.apply_all(decision.records, decision.producer_id)
        for ticket, reply in decision.replies:
            assert ticket not in self.replies, "a request has one reply"
            self.replies[ticket] = reply

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.markers.append((len(self.log), producer_id, committed))
        self.machine.complete_transaction(producer_id, committed)

    def pass_time(self, ms: int) -> None:
        """Moves the clock, and lets every deadline on the way come when it is due."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.machine.next_deadline_ms) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(self.machine.expire(self.now_ms))
        self.now_ms = until_ms

    def replayed(self, stretch: int = 1) -> GroupMachine:
        """Another machine that has read the log from its beginning, compacted by stretches of so many records."""
        machine = self.new_machine()
        markers: dict[int, list[tuple[int, bool]]] = {position: [] for position in range(len(self.log) + 1)}
        for position, producer_id, committed in self.markers:
            markers[position].append((producer_id, committed))
        latest: dict[bytes, bytes | None] = {}

        def flush() -> None:
            for key, value in latest.items():
                machine.replay(key, value)
            latest.clear()

        for position, (key, value, producer_id) in enumerate([*self.log, (b"", None, -1)]):
            if position % stretch == 0 or markers[position] or producer_id >= 0 or not key:
                flush()
            for marker in markers[position]:
                machine.complete_transaction(*marker)
            if producer_id >= 0:
                machine.replay(key, value, producer_id)
            elif key:
                latest.pop(key, None)
                latest[key] = value
        return machine

    def restart(self) -> None:
        """The shard moves to another broker: everything volatile is gone."""
        for ticket, reply in self.machine.unloaded():
            assert ticket not in self.replies, "a request has one reply"
            self.replies[ticket] = reply
        self.machine = self.replayed()
        self.carry_out(self.machine.loaded(self.now_ms))

    def create_topics(self, **partition_counts: int) -> None:
        """Topics by name; one with no partitions is deleted."""
        topics = dict(self.topics.topics)
        for name, partition_count in partition_counts.items():
            if partition_count:
                known = topics.get(name)
                topic_id = known.topic_id if known else topic_id_of(name)
                topics[name] = TopicInfo(topic_id, partition_count)
            else:
                topics.pop(name, None)
        self.topics = TopicsView.of(topics)
        self.carry_out(self.machine.topics_changed(self.topics, self.now_ms))

    def recreate_topic(self, name: str, topic_id: UUID) -> None:
        """Deletes a topic and makes another of that name; the machine hears of both at once."""
        topics = {**self.topics.topics, name: TopicInfo(topic_id, self.topics.topics[name].partition_count)}
        self.topics = TopicsView.of(topics)
        self.carry_out(self.machine.topics_changed(self.topics, self.now_ms))

    def move_topic(self, name: str, *partition_racks: tuple[str, ...]) -> None:
        """The replicas of a topic are in these racks now."""
        info = self.topics.topics[name]._replace(partition_racks=partition_racks)
        self.topics = TopicsView.of({**self.topics.topics, name: info})
        self.carry_out(self.machine.topics_changed(self.topics, self.now_ms))

    def id_of(self, topic: str) -> UUID:
        known = self.topics.topics.get(topic)
        return ZERO_TOPIC_ID if known is None else known.topic_id

    # --- offsets

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = "g",
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
        timestamp_ms: int = -1,
        leader_epoch: int = -1,
    ) -> list[ErrorCode]:
        """Commits; the codes of the partitions in order, or of the whole request."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.id_of(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            commit_timestamp=timestamp_ms,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return codes(self.ask(self.machine.commit_offsets, request, Caller(version)))

    def commit_in_transaction(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        producer_id: int = 7,
        group: str = "g",
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
    ) -> list[ErrorCode]:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return codes(self.ask(self.machine.commit_offsets_in_transaction, request, Caller(3)))

    def fetch(
        self,
        wanted: dict[str, list[int]] | None = None,
        *,
        group: str = "g",
        stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
        by_id: bool = False,
    ) -> Any:
        """The offsets by topic and partition; a code in place of an offset that has one."""
        topics = None
        if wanted is not None:
            topics = [
                OffsetFetchRequestTopics(
                    name=name, topic_id=self.id_of(name) if by_id else ZERO_TOPIC_ID, partition_indexes=indexes
                )
                for name, indexes in wanted.items()
            ]
        request = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        reply = self.ask(self.machine.fetch_offsets, request, stable)
        if isinstance(reply, ErrorCode):
            return reply
        return {
            (topic.name, each.partition_index): ErrorCode(each.error_code) if each.error_code else each.committed_offset
            for topic in reply.topics
            for each in topic.partitions
        }

    def delete_offsets(self, wanted: dict[str, list[int]], *, group: str = "g") -> Any:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in wanted.items()
            ],
        )
        reply = self.ask(self.machine.delete_offsets, request)
        return reply if isinstance(reply, ErrorCode) else codes(reply)

    # --- classic groups

    def join(
        self,
        member: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        topics: tuple[str, ...] = ("a",),
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "c",
    ) -> Any:
        """The reply to a JoinGroup: a message, an error code, or None while it is parked."""
        if protocols is None:
            protocols = {"range": subscription(*topics)}
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )
        reply = self.ask(self.machine.join, request, Caller(version, client, "/127.0.0.1"))
        if reply is not None and not isinstance(reply, ErrorCode) and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.given_id = reply.member_id
            return ErrorCode.MEMBER_ID_REQUIRED
        return reply

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Any:
        """The assignment, an error code, or None while it is parked."""
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        return assigned(self.ask(self.machine.sync, request, Caller(version)))

    def heartbeat(self, member: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        reply = self.ask(self.machine.heartbeat, request)
        return reply if isinstance(reply, ErrorCode) else ErrorCode(reply.error_code)

    def leave(self, *members: str, group: str = "g", instances: tuple[str | None, ...] = (), version: int = 5) -> Any:
        """The code of each member, or of the whole request."""
        named = instances or (None,) * len(members)
        request = LeaveGroupRequest(
            group_id=group,
            member_id=members[0],
            members=[
                MemberIdentity(member_id=member, group_instance_id=instance)
                for member, instance in zip(members, named, strict=True)
            ],
        )
        reply = self.ask(self.machine.leave, request, Caller(version))
        if isinstance(reply, ErrorCode):
            return reply
        return [ErrorCode(each.error_code) for each in reply.members] if version >= 3 else ErrorCode(reply.error_code)

    def describe(self, group: str = "g", version: int = 6) -> Any:
        return self.ask(self.machine.describe, group, Caller(version))

    def list_groups(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, tuple[str, str, str]]:
        found = finished(self.ask(self.machine.list, states, types))
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in found}

    def delete(self, group: str = "g") -> ErrorCode:
        reply = self.ask(self.machine.delete, group)
        return reply if isinstance(reply, ErrorCode) else ErrorCode(reply.error_code)

    # --- consumer groups

    def beat(
        self,
        member: str = "m1",
        epoch: int = 0,
        *,
        group: str = "g",
        topics: tuple[str, ...] | None = None,
        regex: str | None = None,
        owned: Owned | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rack: str | None = None,
        rebalance_ms: int = -1,
        version: int = 1,
        client: str = "c",
    ) -> Any:
        """The reply to a ConsumerGroupHeartbeat; an error code if it has one."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else listed(owned),
        )
        reply = self.ask(self.machine.consumer_heartbeat, request, Caller(version, client, "/127.0.0.1"))
        if isinstance(reply, ErrorCode):
            return reply
        return ErrorCode(reply.error_code) if reply.error_code else reply

    def start(self, member: str = "m1", **said: Any) -> Any:
        """The first heartbeat of a member."""
        said.setdefault("owned", {})
        said.setdefault("rebalance_ms", 60_000)
        if "regex" not in said:
            said.setdefault("topics", ("a",))
        return self.beat(member, 0, **said)

    def describe_consumer(self, group: str = "g") -> Any:
        return self.ask(self.machine.consumer_describe, group)

    def join_together(self, count_of_members: int, **join: Any) -> list[str]:
        """New members of an empty group, up to the generation in which all are; the first leads."""
        tickets = []
        for _ in range(count_of_members):
            if self.join(**join) == ErrorCode.MEMBER_ID_REQUIRED:
                assert self.join(self.given_id, **join) is None
            tickets.append(self.ticket)
        self.pass_time(self.settings.initial_rebalance_delay_ms * 2)
        return [self.replies[ticket].member_id for ticket in tickets]

    def stable_group(self, count_of_members: int = 2, **join: Any) -> list[str]:
        """Members of a group that has assignments: the name of each as bytes."""
        members = self.join_together(count_of_members, **join)
        group = self.machine.group(join.get("group", "g"))
        assert isinstance(group, ClassicGroup)
        for member in reversed(members):
            instance = group.members[member].instance_id
            self.sync(member, group.generation, {each: each.encode() for each in members}, instance=instance)
        assert group.state_name == "Stable"
        return members


def encoded(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record.key, bytes):
        assert record.value is None or isinstance(record.value, bytes)
        return record.key, record.value
    value = None if record.value is None else encode_value(record.value, record.value_version)
    return encode_key(record.key), value


def codes(reply: Any) -> list[ErrorCode]:
    if isinstance(reply, ErrorCode):
        return [reply]
    return [ErrorCode(partition.error_code) for topic in reply.topics for partition in topic.partitions]


def assigned(reply: Any) -> Any:
    return reply.assignment if reply is not None and not isinstance(reply, ErrorCode) else reply


Owned = dict[str, set[int]]


def listed(owned: Owned) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id_of(topic), partitions=sorted(partitions))
        for topic, partitions in owned.items()
    ]


def subscription(*topics: str, version: int = 0, owned: Owned | None = None) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(partitions)) for topic, partitions in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(message, version)


def topic_id_of(name: str) -> UUID:
    return UUID(int=int.from_bytes(name.encode().rjust(16, b"\0")[-16:], "big"))


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    return Driver
