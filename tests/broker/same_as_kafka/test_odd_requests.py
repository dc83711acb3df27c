"""Requests that can be sent and that no client sends: numbers without a meaning, missing names, odd cursors."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.groups import FindCoordinatorRequest, ListGroupsRequest
from ottla.protocol.messages.metadata import (
    Cursor,
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.tokens import CreateDelegationTokenRequest
from ottla.protocol.messages.transactions import ListTransactionsRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import create_topic, fetch, metadata, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

UNKNOWN_SERVER_ERROR, INVALID_REQUEST = -1, 42
NOBODY = UUID(int=9)


def refused(answer: Any) -> Any:
    """Where Kafka fails over a number without a meaning, and says so (-1), we refuse the request (42)."""

    def visit(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                visit(one)
        elif hasattr(type(value), "__schema__"):
            for name in type(value).__slots__:
                if name == "error_code" and value.error_code in (UNKNOWN_SERVER_ERROR, INVALID_REQUEST):
                    value.error_code = "refused"
                else:
                    visit(getattr(value, name))

    visit(answer)
    return answer


@conversations.add
def cursors_of_topic_partitions(side: Side) -> None:
    a, _ = side.new_topic("a", 5)
    b, _ = side.new_topic("b", 3)
    never = side.name("bx")

    def describe(cursor: tuple[str, int] | None, limit: int, names: list[str]) -> None:
        side.ask(
            DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
            ),
            0,
        )

    for limit in (0, -1, 1, 5, 6, 8, 2000):
        describe(None, limit, [b, a, never])
    cursors = [(a, 0), (a, 4), (a, 5), (a, 99), (b, 2), (b, -1), (a, -99), (never, 0), (never, 3), (never, -1)]
    cursors += [("zzz", 0), ("", 0), (side.name("a0"), 0), (side.name("a0"), 1)]
    for cursor in cursors:
        for limit in (2, 2000):
            describe(cursor, limit, [b, a, never])
    describe((a, 3), 2, [b, a, a])
    describe(("zzzzzz", 3), 2000, [])
    describe(("zzzzzz", -3), 2000, [])
    describe(None, 4, ["no name"])


@conversations.add
def who_fetches_and_how(side: Side) -> None:
    topic, topic_id = side.new_topic("t")
    side.ask(produce(topic, one_batch(b"a", b"b")), 9)
    for version in (4, 11, 12, 13, 15, 17):
        known: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
        # A replica that is none, the leader itself, a consumer, one that debugs, and nobody. Not -3, by which Kafka
        # knows a log that moves to another directory: for us that is a consumer like any other.
        for replica_id in (0, 1, 77, -1, -2, -99):
            for isolation_level in (0, 1, 2, -1):
                for offset in (0, 2, 9):
                    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
                    who: dict[str, Any] = {"replica_id": replica_id}
                    if version >= 15:
                        who = {"replica_state": ReplicaState(replica_id=replica_id, replica_epoch=-1)}
                    request = FetchRequest(
                        **who,
                        max_wait_ms=0,
                        min_bytes=0,
                        isolation_level=isolation_level,
                        topics=[FetchTopic(**known, partitions=[entry])],
                    )
                    side.ask(request, version, note=refused)
        name = "" if version >= 13 else topic
        ids: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        side.ask(fetch(name, max_bytes=-5, **ids), version, note=refused)
        side.ask(fetch(name, partition_max_bytes=-5, **ids), version, note=refused)
        if version >= 9:
            side.ask(fetch(name, current_leader_epoch=-2, **ids), version)
        if version >= 12:
            side.ask(fetch(name, last_fetched_epoch=-2, **ids), version)
        if version >= 13:
            side.ask(fetch("", topic_id=ZERO_UUID), version)
            side.ask(fetch("", topic_id=ZERO_UUID, session_epoch=0), version)
    side.ask(fetch("no name"), 11)
    side.ask(produce("", one_batch(b"a"), topic_id=ZERO_UUID), 13)


@conversations.add
def who_asks_for_offsets_and_how(side: Side) -> None:
    topic, _ = side.new_topic("t")
    side.ask(produce(topic, one_batch(b"a", b"b")), 9)
    for version in (1, 2, 7, 11):
        for replica_id in (-1, -2, 0, 1, 5):
            for isolation_level in (0, 1, 2, -1) if version >= 2 else (0,):
                for timestamp in (-1, -2, -3, -7, 0):
                    for epoch in (-2, -1, 0, 5) if version >= 4 else (-1,):
                        entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
                        request = ListOffsetsRequest(
                            replica_id=replica_id,
                            isolation_level=isolation_level,
                            topics=[ListOffsetsTopic(name=topic, partitions=[entry])],
                        )
                        side.ask(request, version, note=refused)
    for version in (2, 4):
        for replica_id in (-1, -2, -3, 0, 1, 5):
            for epoch in (-2, -1, 0, 1, 77):
                for current in (-2, -1, 0, 1):
                    part = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
                    topics = [OffsetForLeaderTopic(topic=topic, partitions=[part])]
                    side.ask(OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics), version)


@conversations.add
def metadata_of_what_has_no_name(side: Side) -> None:
    topic, topic_id = side.new_topic("t")
    never = side.name("never")

    def ask(version: int, *entries: tuple[str | None, UUID], note: Any = None, **more: bool) -> None:
        topics = [MetadataRequestTopic(name=name, topic_id=known) for name, known in entries]
        side.ask(MetadataRequest(topics=topics, **more), version, note=note)

    for version in (10, 11, 12, 13):
        note = refused if version >= 12 else None
        ask(version, (None, ZERO_UUID), note=note)
        ask(version, (topic, ZERO_UUID), (None, ZERO_UUID), note=note)
        ask(version, (topic, topic_id))
        ask(version, (None, topic_id))
        ask(version, ("", ZERO_UUID))
    asked = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    for version in (8, 9, 10, 12):
        ask(version, (never, ZERO_UUID), **asked)
        ask(version, ("no name", ZERO_UUID), **asked)
        ask(version, (topic, ZERO_UUID), **asked)
    ask(12, (None, NOBODY), (None, topic_id), **asked)
    ask(12, (None, NOBODY), (topic, ZERO_UUID), **asked)
    side.ask(MetadataRequest(topics=[]), 0, note=lambda answer: len(answer.topics) > 0)
    side.ask(MetadataRequest(topics=[]), 4)
    entry = DescribeProducersRequestTopicRequest(name="no name", partition_indexes=[0])
    side.ask(DescribeProducersRequest(topics=[entry]), 0)


@conversations.add
def the_metadata_log_is_no_topic(side: Side) -> None:
    def codes(answer: Any) -> Any:
        return [(topic.name, topic.error_code) for topic in answer.topics]

    for name in ("__cluster_metadata", "__Cluster_metadata"):
        for version in (5, 7):
            side.ask(create_topic(name, validate_only=True), version, note=codes)
    side.ask(create_topic("__cluster_metadata"), 7, note=codes)
    side.ask(metadata("__cluster_metadata"), 9)


@conversations.add
def authentication_where_there_is_none(side: Side) -> None:
    for version in (0, 1):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "no such", ""):
            side.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        side.ask(metadata(), 9)  # the connection is as good as before
    for version in (0, 1, 2):
        side.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version)
        side.ask(metadata(), 9)


@conversations.add
def rules_where_there_is_no_authorizer(side: Side) -> None:
    kinds: list[tuple[int, ...]] = [(1, 1, 1, 1), (2, 3, 3, 3), (7, 4, 15, 2), (5, 2, 12, 3)]
    good = (2, 3, 3, 3)
    for place in range(4):  # nobody knows these numbers, one at a time
        kinds += [(*good[:place], number, *good[place + 1 :]) for number in (0, -1, 127)]
    for version in (1, 2, 3):
        for resource_type, pattern_type, operation, permission_type in kinds:
            side.ask(
                DescribeAclsRequest(
                    resource_type_filter=resource_type,
                    resource_name_filter=None,
                    pattern_type_filter=pattern_type,
                    principal_filter=None,
                    host_filter="*",
                    operation=operation,
                    permission_type=permission_type,
                ),
                version,
            )
            creation = AclCreation(
                resource_type=resource_type,
                resource_name="t",
                resource_pattern_type=pattern_type,
                principal="User:a",
                host="*",
                operation=operation,
                permission_type=permission_type,
            )
            side.ask(CreateAclsRequest(creations=[creation, creation]), version)
            unwanted = DeleteAclsFilter(
                resource_type_filter=resource_type,
                resource_name_filter="t",
                pattern_type_filter=pattern_type,
                principal_filter=None,
                host_filter=None,
                operation=operation,
                permission_type=permission_type,
            )
            side.ask(DeleteAclsRequest(filters=[unwanted, unwanted]), version)
        side.ask(CreateAclsRequest(creations=[]), version)
        side.ask(DeleteAclsRequest(filters=[]), version)


@conversations.add
def kinds_of_endpoints_and_coordinators(side: Side) -> None:
    for version in (0, 1, 2):
        for kind in (1,) if version == 0 else (0, 1, 2, 3, -1):
            side.ask(DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind), version)
    for version in (1, 4):
        for kind in (2, 3, -1):  # share groups are asked for from version 6 on
            keys = {"key": "k"} if version < 4 else {"coordinator_keys": ["k", ""]}
            side.ask(FindCoordinatorRequest(**keys, key_type=kind), version)
    side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[]), 4)


@conversations.add
def states_of_transactions_and_owners_of_tokens_that_there_are_not(side: Side) -> None:
    for states in ([""], ["", ""], ["nix", "", "nix"]):
        side.ask(ListTransactionsRequest(state_filters=states, producer_id_filters=[]), 1)
    for kind, name in ((None, None), ("User", "somebody"), ("nix", "somebody"), ("User", "")):
        side.ask(
            CreateDelegationTokenRequest(
                owner_principal_type=kind, owner_principal_name=name, renewers=[], max_lifetime_ms=1
            ),
            3,
        )


@conversations.add
def groups_by_kind_and_state(side: Side) -> None:
    topic, _ = side.new_topic("t")
    group = side.name("group")
    side.ask(FindCoordinatorRequest(key=group, key_type=0), 1, note=lambda _: "asked")
    side.settle()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    commit = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    side.ask(OffsetCommitRequest(group_id=group, topics=[commit]), 8)

    def own(answer: Any) -> Any:
        return answer.error_code, [one for one in answer.groups if one.group_id == group]

    kinds: tuple[list[str], ...] = (
        [],
        ["classic"],
        ["Classic"],
        ["consumer"],
        ["share"],
        ["streams"],
        ["nix"],
        [""],
        ["classic", "nix"],
    )
    states: tuple[list[str], ...] = (
        [],
        ["Empty"],
        ["empty"],
        ["nix"],
        ["Stable"],
        ["Unknown"],
        [""],
        ["Dead"],
        ["Empty", "nix"],
    )
    for types_filter in kinds:
        for states_filter in states:
            side.ask(ListGroupsRequest(types_filter=types_filter, states_filter=states_filter), 5, note=own)
    for states_filter in states:
        side.ask(ListGroupsRequest(states_filter=states_filter), 4, note=own)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)
