"""What administrators see of groups: DescribeGroups, ConsumerGroupDescribe and ListGroups."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import Final

from ottla.errors import ErrorCode
from ottla.groups.classic import ClassicGroup, ClassicState
from ottla.groups.consumer import ConsumerGroup
from ottla.groups.group import Caller, Group
from ottla.groups.partitions import NO_PARTITIONS, Partitions, union
from ottla.groups.shard import TopicsView
from ottla.protocol.messages import consumer_groups
from ottla.protocol.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup

# DescribeGroups tells an unknown group from one that is dead since this version.
_DESCRIBE_KNOWS_GROUP_ID_NOT_FOUND: Final = 6
LISTED_PER_STEP: Final = 64


def describe_classic(group_id: str, group: ClassicGroup | None, caller: Caller) -> DescribedGroup:
    """A group that is unknown, or of another kind, is dead; newer clients get an error."""
    if group is None:
        described = DescribedGroup(
            group_id=group_id, group_state=ClassicState.DEAD, protocol_type="", protocol_data="", members=[]
        )
        if caller.api_version >= _DESCRIBE_KNOWS_GROUP_ID_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        return described
    # While members join there is nothing that all of them agree on.
    is_settled = group.state == ClassicState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.listed_protocol_type,
        protocol_data=(group.protocol_name or "") if is_settled else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_of(group.protocol_name) if is_settled else b"",
                # What it had before the rebalance, as long as that lasts.
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    groups: Iterable[Group], states: Collection[str], types: Collection[str]
) -> Generator[None, None, list[ListedGroup]]:
    """The groups in one of the states and of one of the types; an empty filter lets all pass.

    In steps, each group as it is at its step: groups come and go while others have their turn.
    """
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    listed = []
    for number, group in enumerate(list(groups), 1):
        if (not wanted_states or group.state_name.lower() in wanted_states) and (
            not wanted_types or group.group_type in wanted_types
        ):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.listed_protocol_type,
                    group_state=group.state_name,
                    group_type=group.group_type.value,
                )
            )
        if number % LISTED_PER_STEP == 0:
            yield
    return listed


# Kinds of members in ConsumerGroupDescribe.
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def refused_consumer(group_id: str, code: ErrorCode, message: str | None = None) -> consumer_groups.DescribedGroup:
    """In place of a consumer group that cannot be described."""
    return consumer_groups.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def describe_consumer(
    group_id: str, group: Group | None, topics: TopicsView, default_assignor: str
) -> consumer_groups.DescribedGroup:
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        return refused_consumer(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    return consumer_groups.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members, default_assignor),
        members=[
            consumer_groups.Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                subscribed_topic_regex=member.regex,
                # What it has yet to give up is still its own.
                assignment=_described(union(member.assigned, member.revoking), topics),
                target_assignment=_described(group.target.get(member.member_id, NO_PARTITIONS), topics),
                member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _described(partitions: Partitions, topics: TopicsView) -> consumer_groups.ConsumerGroupDescribeResponseAssignment:
    """Partitions of topics that are no more are left out: they have no names."""
    return consumer_groups.ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            consumer_groups.ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=topics.names[topic_id], partitions=sorted(found)
            )
            for topic_id, found in partitions.items()
            if topic_id in topics.names
        ]
    )
