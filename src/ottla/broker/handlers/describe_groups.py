"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.authorized import GROUP_OPERATIONS
from ottla.broker.group_requests import caller_of
from ottla.broker.response_budget import ResponseBudget
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    budget = ResponseBudget()

    def note(group: DescribedGroup) -> None:
        size_bytes = sum(len(one.member_metadata) + len(one.member_assignment) for one in group.members)
        budget.spend(len(group.members), size_bytes)

    groups = await all_of((_describe(broker, group_id, context) for group_id in request.groups), broker.turns, note)
    return _response(request.include_authorized_operations, groups)


async def _describe(broker: Broker, group_id: str, context: Context) -> DescribedGroup:
    return await broker.groups.ask(
        group_id, partial(_refused, group_id), GroupMachine.describe, group_id, caller_of(context)
    )


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _response(includes_operations: bool, groups: list[DescribedGroup]) -> DescribeGroupsResponse:
    if includes_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)
