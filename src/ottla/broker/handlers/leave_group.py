"""LeaveGroup: members go, or are sent away by an administrator."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.group_requests import caller_of
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(
    broker: Broker, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    return broker.groups.ask(request.group_id, _refused, GroupMachine.leave, request, caller_of(context))


def _refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
