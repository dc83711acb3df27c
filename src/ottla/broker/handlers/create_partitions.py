"""CreatePartitions: more partitions for a topic, never fewer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.client_quotas import Charge
from ottla.broker.patience import Patience
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_STRICT_VERSION = 3  # from here on whoever creates too much is refused (KIP-599)


async def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    charge = context.charge(strict=context.version >= FIRST_STRICT_VERSION)
    entries: dict[str, list[CreatePartitionsTopic]] = {}
    async for topic in broker.turns.over(request.topics):
        entries.setdefault(topic.name, []).append(topic)
    patience = Patience(request.timeout_ms)
    changes = (patience.run(partial(_create, broker, same, request.validate_only, charge)) for same in entries.values())
    return CreatePartitionsResponse(results=await all_of(changes, broker.turns))


async def _create(
    broker: Broker, entries: list[CreatePartitionsTopic], validate_only: bool, charge: Charge, wait_s: float
) -> CreatePartitionsTopicResult:
    """The one answer to all entries that name a topic; if there are several, it stays."""
    entry, *others = entries
    try:
        if others:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {entry.name} is named more than once")
        assignments = None if entry.assignments is None else [one.broker_ids for one in entry.assignments]
        creation = broker.controller.create_partitions(
            entry.name, entry.count, assignments, validate_only=validate_only, wait_s=wait_s, charge=charge
        )
        await broker.carried_out(creation)
    except ApiError as error:
        return CreatePartitionsTopicResult(name=entry.name, error_code=error.code, error_message=error.message or None)
    return CreatePartitionsTopicResult(name=entry.name)
