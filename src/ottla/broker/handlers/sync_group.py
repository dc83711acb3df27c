"""SyncGroup: the leader hands assignments in, everybody takes its own. Followers wait for the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_requests import caller_of
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_PROTOCOL_VERSION = 5  # from here on a member says what it believes the group speaks


async def handle(broker: Broker, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    if context.version >= FIRST_PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await broker.groups.ask(request.group_id, _refused, GroupMachine.sync, request, caller_of(context))


def _refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")
