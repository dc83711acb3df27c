"""ConsumerGroupHeartbeat: all that a member of a consumer group (KIP-848) has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_requests import caller_of
from ottla.errors import ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    if "consumer" not in broker.config.group_coordinator_rebalance_protocols:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    return await broker.groups.ask(
        request.group_id, _refused, GroupMachine.consumer_heartbeat, request, caller_of(context)
    )


def _refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
