"""AlterConfigs and IncrementalAlterConfigs: settings change without a restart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.dynamic import ConfigChange, ConfigResource, DynamicConfigs
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

Decide = Callable[[DynamicConfigs], dict[str, str]]


async def handle(broker: Broker, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replaces all that a resource sets."""
    changes: list[tuple[ConfigResource, Decide]] = []
    for wish in request.resources:
        resource = ConfigResource(wish.resource_type, wish.resource_name)
        changes.append((resource, partial(_replace, resource, wish.configs)))
    return AlterConfigsResponse(responses=await _change(broker, changes, validate_only=request.validate_only))


def _replace(
    resource: ConfigResource, entries: list[AlterConfigsRequestAlterableConfig], configs: DynamicConfigs
) -> dict[str, str]:
    settings = {entry.name: entry.value for entry in entries}
    if len(settings) < len(entries):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a setting is named more than once")
    return configs.alter(resource, settings)


async def handle_incremental(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    """Sets, deletes, appends and subtracts single settings."""
    changes: list[tuple[ConfigResource, Decide]] = []
    for wish in request.resources:
        resource = ConfigResource(wish.resource_type, wish.resource_name)
        wanted = [ConfigChange(entry.name, entry.config_operation, entry.value) for entry in wish.configs]
        changes.append((resource, lambda configs, r=resource, w=wanted: configs.incremental_alter(r, w)))  # type: ignore[misc]
    return IncrementalAlterConfigsResponse(
        responses=await _change(broker, changes, validate_only=request.validate_only)
    )


async def _change(
    broker: Broker, changes: list[tuple[ConfigResource, Decide]], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    counts = Counter(resource for resource, _ in changes)
    responses = []
    for resource, decide in changes:
        answer = AlterConfigsResourceResponse(resource_type=resource.type, resource_name=resource.name)
        try:
            if counts[resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a resource is named more than once")
            await asyncio.shield(broker.controller.change_config(resource, decide, validate_only=validate_only))
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        responses.append(answer)
    return responses
