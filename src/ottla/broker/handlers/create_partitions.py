"""CreatePartitions: more partitions for a topic, never fewer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_STRICT_VERSION = 3  # from here on whoever creates too much is refused (KIP-599)


async def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    charge = context.charge(strict=context.version >= FIRST_STRICT_VERSION)
    entries: dict[str, list[CreatePartitionsTopic]] = {}
    async for topic in broker.turns.over(request.topics):
        entries.setdefault(topic.name, []).append(topic)
    results = []
    async for name, (entry, *others) in broker.turns.over(entries.items()):
        try:
            if others:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {name} is named more than once")
            assignments = None if entry.assignments is None else [one.broker_ids for one in entry.assignments]
            await asyncio.shield(
                broker.controller.create_partitions(
                    name,
                    entry.count,
                    assignments,
                    validate_only=request.validate_only,
                    wait_s=request.timeout_ms / 1000,
                    charge=charge,
                )
            )
            results.append(CreatePartitionsTopicResult(name=name))
        except ApiError as error:
            results.append(
                CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message or None)
            )
    return CreatePartitionsResponse(results=results)
