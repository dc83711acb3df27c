"""Groups as an administrator sees them: who is in them, how far they have read, and setting that back or forth.

In the manner of `admin`: a `Cluster` and values in, values out; what is wrong with one of several groups is in the
answer beside those that went well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.client.admin import by_topic
from ottla.client.consumer.assignors.wire import decode_assignment
from ottla.client.consumer.commits import (
    COMMIT_VERSION_MAX,
    FETCH_VERSION_MAX,
    NO_OFFSET,
    Identity,
    commit_request,
)
from ottla.client.coordinators import CoordinatorType, ask_coordinator, find_coordinator
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, retrying
from ottla.client.values import OffsetAndMetadata
from ottla.errors import ApiError, ErrorCode, ProtocolError
from ottla.ids import TopicPartition
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

Answer = TypeVar("Answer")

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list; state and type are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and what it is assigned; `partitions` is None where only the members know what that means."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    group_type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


# -- seeing ------------------------------------------------------------------------------------------------------------


async def list_groups(
    cluster: Cluster, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """The groups of all brokers by name, those of some states and types if any are named."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    found: dict[str, GroupListing] = {}
    for node_id in (await cluster.refresh(())).nodes:
        response = await cluster.ask_node(node_id, request, ListGroupsResponse, lambda answer: (answer.error_code,))
        _raise_if(error_of(response.error_code, None, f"the groups of broker {node_id}"))
        for each in response.groups:
            found[each.group_id] = GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)
    return [found[name] for name in sorted(found)]


async def describe_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """State and members of groups, classic ones and those of the consumer protocol."""
    return {name: await _describe(cluster, name) for name in names}


async def _describe(cluster: Cluster, name: str) -> GroupDescription | ApiError:
    coordinator = await retrying(
        lambda: find_coordinator(cluster, CoordinatorType.GROUP, name), cluster.deadline(), cluster.options.pauses
    )
    try:
        return await _describe_consumer_group(cluster, name, coordinator)
    except ApiError as error:
        # A classic group, or an older broker, which has no others.
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return error
    return await _describe_classic_group(cluster, name, coordinator)


async def _describe_consumer_group(cluster: Cluster, name: str, coordinator: int) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    response = await _ask(
        cluster,
        name,
        request,
        ConsumerGroupDescribeResponse,
        lambda answer: (each.error_code for each in answer.groups),
    )
    (found,) = response.groups
    _raise_if(error_of(found.error_code, found.error_message, f"the group {name}"))
    return GroupDescription(
        group_id=name,
        state=found.group_state,
        group_type=CONSUMER,
        protocol_type=CONSUMER,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                tuple(
                    TopicPartition(topic.topic_name, number)
                    for topic in each.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for each in found.members
        ),
    )


async def _describe_classic_group(cluster: Cluster, name: str, coordinator: int) -> GroupDescription | ApiError:
    response = await _ask(
        cluster,
        name,
        DescribeGroupsRequest(groups=[name]),
        DescribeGroupsResponse,
        lambda answer: (each.error_code for each in answer.groups),
    )
    (found,) = response.groups
    if found.error_code == ErrorCode.NONE and found.group_state == DEAD:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {name} does not exist")
    return error_of(found.error_code, found.error_message, f"the group {name}") or GroupDescription(
        group_id=name,
        state=found.group_state,
        group_type=CLASSIC,
        protocol_type=found.protocol_type,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                assigned_partitions(each.member_assignment) if found.protocol_type == CONSUMER else None,
            )
            for each in found.members
        ),
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """What a consumer of a classic group is assigned; None where the bytes are in words of the members' own."""
    if not assignment:
        return ()
    try:
        return tuple(decode_assignment(assignment))
    except ProtocolError:
        return None


# -- offsets -----------------------------------------------------------------------------------------------------------


async def committed_offsets(
    cluster: Cluster, name: str, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """What a group has committed, for all partitions or for some; those without a commit are left out."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(group_id=name, topics=topics)
    response = await _ask(
        cluster,
        name,
        request,
        OffsetFetchResponse,
        lambda answer: (answer.error_code,),
        version_max=FETCH_VERSION_MAX,
    )
    _raise_if(error_of(response.error_code, None, f"the group {name}"))
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            _raise_if(error_of(each.error_code, None, f"the offset of the group {name} in {partition}"))
            if each.committed_offset != NO_OFFSET:
                offsets[partition] = CommittedOffset(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
    return offsets


async def commit_offsets(cluster: Cluster, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Makes these the committed offsets of a group without members; ApiError if it has some, or one is refused."""
    request = commit_request(
        name, Identity(), {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    )
    response = await _ask(cluster, name, request, OffsetCommitResponse, _commit_codes, version_max=COMMIT_VERSION_MAX)
    for topic in response.topics:
        for each in topic.partitions:
            what = f"the offset of the group {name} in {TopicPartition(topic.name, each.partition_index)}"
            _raise_if(error_of(each.error_code, None, what))


def _commit_codes(response: OffsetCommitResponse) -> Iterable[int]:
    return (each.error_code for topic in response.topics for each in topic.partitions)


# -- deleting ----------------------------------------------------------------------------------------------------------


async def delete_groups(cluster: Cluster, names: Iterable[str]) -> dict[str, ApiError | None]:
    """Deletes groups that have no members, with their offsets."""
    outcomes: dict[str, ApiError | None] = {}
    for name in names:
        response = await _ask(
            cluster,
            name,
            DeleteGroupsRequest(groups_names=[name]),
            DeleteGroupsResponse,
            lambda answer: (each.error_code for each in answer.results),
        )
        (result,) = response.results
        outcomes[name] = error_of(result.error_code, None, f"the group {name}")
    return outcomes


async def _ask(
    cluster: Cluster,
    name: str,
    request: object,
    answer: type[Answer],
    codes: Callable[[Answer], Iterable[int]],
    *,
    version_max: int | None = None,
) -> Answer:
    return await ask_coordinator(cluster, CoordinatorType.GROUP, name, request, answer, codes, version_max=version_max)


def _raise_if(error: ApiError | None) -> None:
    if error is not None:
        raise error
