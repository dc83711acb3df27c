"""ConsumerGroupHeartbeat: all that a member of a consumer group (KIP-848) has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_requests import caller_of, may_begin_consumer_group
from ottla.errors import ApiError, ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse:
    features = None if broker.cluster is None else broker.cluster.features
    try:
        ask = (
            GroupMachine.consumer_heartbeat
            if may_begin_consumer_group(broker.config, features)
            else GroupMachine.running_consumer_heartbeat
        )
    except ApiError as error:
        return _refused(error.code, error.message)
    return await broker.groups.ask(request.group_id, _refused, ask, request, caller_of(context))


def _refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
