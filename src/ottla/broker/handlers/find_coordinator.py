"""FindCoordinator: which broker coordinates a group or a transactional id. Their topics are made on first use."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ottla.broker import coordinators
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

logger = logging.getLogger(__name__)

FIRST_BATCHED_VERSION = 4
NO_NODE = -1
NO_PORT = -1


class KeyType(IntEnum):
    """What is looked for. Share groups (2) are not served."""

    GROUP = 0
    TRANSACTION = 1


async def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= FIRST_BATCHED_VERSION else [request.key]
    coordinator = _coordinator(broker, request.key_type)
    if coordinator is None:
        return _response(context, [_failed(key, ErrorCode.INVALID_REQUEST) for key in keys])
    if not coordinator.is_ready:
        # The first who asks waits until the topic is there; Kafka would have it ask again.
        try:
            await broker.carried_out(coordinator.create_topic())  # a client that hangs up must not leave it half made
        except ApiError as error:
            level = logging.INFO if error.code.retriable else logging.ERROR
            logger.log(level, "%s cannot be created: %s", coordinator.topic, error)
            return _response(context, [_failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in keys])
    return _response(context, await broker.turns.finish(_all_found(broker, coordinator, keys, context)))


def _coordinator(broker: Broker, key_type: int) -> coordinators.Coordinator[Any] | None:
    match key_type:
        case KeyType.GROUP:
            return broker.groups
        case KeyType.TRANSACTION:
            return broker.transactions
        case _:
            return None


def _all_found(
    broker: Broker, coordinator: coordinators.Coordinator[Any], keys: list[str], context: Context
) -> Steps[list[Coordinator]]:
    found = []
    for key in keys:
        found.append(_found(broker, coordinator, key, context))
        if len(found) % STEP == 0:
            yield
    return found


def _found(broker: Broker, coordinator: coordinators.Coordinator[Any], key: str, context: Context) -> Coordinator:
    node_id = coordinator.node_of(key)
    for node, endpoint in broker.endpoints(context.session.listener_name):
        if node.node_id == node_id:
            return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
    return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _failed(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=code.name)


def _response(context: Context, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
