"""Groups as an administrator sees them: who is in them, and taking members or whole groups out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import AdminCalls, only
from ottla.client.consumer.assignors.wire import decode_assignment
from ottla.client.coordinators import CoordinatorType, coordinator_of
from ottla.client.error_codes import GroupIdNotFoundError
from ottla.client.retrying import Deadline, error_of, raise_if
from ottla.errors import ApiError, ErrorCode, ProtocolError
from ottla.ids import TopicPartition
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
)

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
class Member:
    """Whom to take out of a group: a member by its id, or a static one by its instance."""

    member_id: str = ""
    instance_id: str | None = None


class GroupCalls(AdminCalls):
    # -- seeing --------------------------------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """The groups of all brokers by name, those of some states and types if any are named."""
        deadline = self._deadline(timeout_s)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(node_id: int) -> ListGroupsResponse:
            response = await self._cluster.ask_node(
                node_id, request, ListGroupsResponse, lambda answer: (answer.error_code,), deadline
            )
            raise_if(error_of(response.error_code, None, f"the groups of broker {node_id}"))
            return response

        found: dict[str, GroupListing] = {}
        for response in (await self._from_every_broker(ask, deadline)).values():
            if not isinstance(response, ListGroupsResponse):
                raise response  # a list that lacks a broker's groups would look whole
            for each in response.groups:
                found[each.group_id] = GroupListing(
                    each.group_id, each.protocol_type, each.group_state, each.group_type
                )
        return [found[name] for name in sorted(found)]

    async def describe_group(self, group_id: str, *, timeout_s: float | None = None) -> GroupDescription:
        """State and members of a group, classic or of the consumer protocol."""
        return only(await self.describe_groups([group_id], timeout_s=timeout_s))

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription | ApiError]:
        """State and members of groups, classic or of the consumer protocol."""
        deadline = self._deadline(timeout_s)
        return await self._for_each(group_ids, lambda group_id: self._describe(group_id, deadline))

    async def _describe(self, group_id: str, deadline: Deadline) -> GroupDescription:
        coordinator = await coordinator_of(self._cluster, CoordinatorType.GROUP, group_id, deadline)
        try:
            return await self._describe_consumer_group(group_id, coordinator, deadline)
        except ApiError as error:
            # A classic group, or an older broker, which has no others.
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await self._describe_classic_group(group_id, coordinator, deadline)

    async def _describe_consumer_group(self, group_id: str, coordinator: int, deadline: Deadline) -> GroupDescription:
        response = await self._ask_group(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
            ConsumerGroupDescribeResponse,
            lambda answer: (each.error_code for each in answer.groups),
            deadline,
        )
        (found,) = response.groups
        raise_if(error_of(found.error_code, found.error_message, f"the group {group_id}"))
        return GroupDescription(
            group_id=group_id,
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

    async def _describe_classic_group(self, group_id: str, coordinator: int, deadline: Deadline) -> GroupDescription:
        response = await self._ask_group(
            group_id,
            DescribeGroupsRequest(groups=[group_id]),
            DescribeGroupsResponse,
            lambda answer: (each.error_code for each in answer.groups),
            deadline,
        )
        (found,) = response.groups
        if found.error_code == ErrorCode.NONE and found.group_state == DEAD:
            raise GroupIdNotFoundError(f"the group {group_id} does not exist")
        raise_if(error_of(found.error_code, found.error_message, f"the group {group_id}"))
        return GroupDescription(
            group_id=group_id,
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

    # -- taking out ----------------------------------------------------------------------------------------------------

    async def delete_group(self, group_id: str, *, timeout_s: float | None = None) -> None:
        """Deletes a group that has no members, with its offsets."""
        only(await self.delete_groups([group_id], timeout_s=timeout_s))

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ApiError | None]:
        """Deletes groups that have no members, with their offsets."""
        deadline = self._deadline(timeout_s)

        async def delete(group_id: str) -> None:
            response = await self._ask_group(
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                DeleteGroupsResponse,
                lambda answer: (each.error_code for each in answer.results),
                deadline,
            )
            (result,) = response.results
            raise_if(error_of(result.error_code, None, f"the group {group_id}"))

        return await self._for_each(group_ids, delete)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[Member] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> dict[Member, ApiError | None]:
        """Takes members out of a classic group, static ones by their instance; all where none is named.

        A dynamic member that lives joins again; a static one that lives is fenced.
        """
        deadline = self._deadline(timeout_s)
        if members is None:
            described = await self._describe(group_id, deadline)
            members = [
                Member(each.member_id) if each.instance_id is None else Member(instance_id=each.instance_id)
                for each in described.members
            ]
        wanted = list(dict.fromkeys(members))
        if not wanted:
            return {}
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id, reason=reason)
                for each in wanted
            ],
        )
        response = await self._ask_group(
            group_id, request, LeaveGroupResponse, lambda answer: (answer.error_code,), deadline
        )
        raise_if(error_of(response.error_code, None, f"the group {group_id}"))
        return {
            member: error_of(each.error_code, None, f"the member {member.instance_id or member.member_id}")
            for member, each in zip(wanted, response.members, strict=True)
        }


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """What a consumer of a classic group is assigned; None where the bytes are in words of the members' own."""
    if not assignment:
        return ()
    try:
        return tuple(decode_assignment(assignment))
    except ProtocolError:
        return None
