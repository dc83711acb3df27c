"""LeaveGroup: members go, or are sent away by an administrator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.group_requests import caller_of
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_BATCHED_VERSION = 3


async def handle(broker: Broker, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    refuse = partial(_refused, request, context.version)
    return await broker.groups.ask(request.group_id, refuse, GroupMachine.leave, request, caller_of(context))


def _refused(request: LeaveGroupRequest, version: int, code: ErrorCode) -> LeaveGroupResponse:
    """From version 3 on, a group that does not exist is reported for each member."""
    if version < FIRST_BATCHED_VERSION or code != ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each in request.members
        ]
    )
