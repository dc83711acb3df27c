"""CreatePartitions: more partitions for a topic, never fewer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_STRICT_VERSION = 3  # from here on whoever creates too much is refused (KIP-599)


async def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    charge = context.charge(strict=context.version >= FIRST_STRICT_VERSION)
    counts = Counter(topic.name for topic in request.topics)
    results = []
    async for name, entry in broker.turns.over({topic.name: topic for topic in request.topics}.items()):
        try:
            if counts[name] > 1:
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
