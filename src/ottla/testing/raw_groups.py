"""Requests about groups and offsets, for tests that send them one by one: what a test does not say is as usual."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
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

# A consumer's subscription to nothing, and to one topic; its empty assignment.
NO_TOPICS = bytes.fromhex("0000 00000000 ffffffff")
ASSIGNED_NOTHING = bytes.fromhex("0000 00000000 ffffffff")


def subscription_to(topic: str) -> bytes:
    return bytes.fromhex("0000 00000001") + len(topic).to_bytes(2) + topic.encode() + bytes.fromhex("ffffffff")


# -- offsets -----------------------------------------------------------------------------------------------------------


def commit(group: str, topic: str, offsets: dict[int, int], note: str | None = "", **more: Any) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=note)
        for index, offset in offsets.items()
    ]
    named = {"topic_id": more.pop("topic_id")} if "topic_id" in more else {"name": topic}
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(partitions=partitions, **named)], **more
    )


def fetch_offsets(version: int, group: str, topics: dict[str, list[int]] | None, **more: Any) -> OffsetFetchRequest:
    if version < 8:
        wanted = (
            None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        )
        return OffsetFetchRequest(group_id=group, topics=wanted, **more)
    named = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=named)], **more)


def delete_offsets(group: str, topics: dict[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    )


# -- classic groups ----------------------------------------------------------------------------------------------------


def join(group: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    names = more.pop("protocols", ["range"])
    metadata = more.pop("metadata", NO_TOPICS)
    fields = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        **more,
    }
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
        **fields,
    )


def sync(
    group: str, generation: int, member_id: str, assignments: dict[str, bytes] | None = None, **more: Any
) -> SyncGroupRequest:
    spoken = {"protocol_type": "consumer", "protocol_name": "range", **more}
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in (assignments or {}).items()
        ],
        **spoken,
    )


def heartbeat(group: str, generation: int, member_id: str, **more: Any) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, **more)


def leave(group: str, *members: str | tuple[str, str]) -> LeaveGroupRequest:
    """Members by id, or by id and instance id."""
    identities = [(each, None) if isinstance(each, str) else each for each in members]
    return LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in identities],
    )


# -- consumer groups ---------------------------------------------------------------------------------------------------


def beat(group: str, member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)


def owning(topic_id: UUID, *partitions: int) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def first_beat(group: str, member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """The heartbeat with which a member joins."""
    fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": list(topics), "topic_partitions": [], **more}
    return beat(group, member_id, 0, **fields)


GROUP_RESOURCE = 32
SET, DELETE = 0, 1


def set_group_config(group: str, name: str, value: str | None) -> IncrementalAlterConfigsRequest:
    """A setting of the group's own, or none any more."""
    operation = DELETE if value is None else SET
    entry = IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[entry]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
