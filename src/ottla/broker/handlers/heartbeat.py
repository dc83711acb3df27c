"""Heartbeat: a member of a classic group is alive, and learns whether its generation is still current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    return await broker.groups.ask(request.group_id, _refused, GroupMachine.heartbeat, request)


def _refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
