"""JoinGroup: a member comes to a classic group, or comes again. The answer waits until the generation is there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.group_requests import caller_of
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITHOUT_PROTOCOL = 7  # earlier ones need a name, though it be empty


async def handle(broker: Broker, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    refuse = partial(_refused, request.member_id, context.version)
    return await broker.groups.ask(request.group_id, refuse, GroupMachine.join, request, caller_of(context))


def _refused(member_id: str, version: int, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= FIRST_VERSION_WITHOUT_PROTOCOL else "",
        leader="",
        member_id="" if code == ErrorCode.GROUP_MAX_SIZE_REACHED else member_id,  # Kafka forgets it then
        members=[],
    )
