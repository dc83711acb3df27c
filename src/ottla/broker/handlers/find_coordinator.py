"""FindCoordinator: announced, because clients look for it before they trust a broker with lz4; groups come later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_BATCHED_VERSION = 4
NO_NODE = -1
REASON = "this broker does not coordinate groups or transactions yet"


def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=REASON)
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=REASON, node_id=NO_NODE, host="", port=-1)
