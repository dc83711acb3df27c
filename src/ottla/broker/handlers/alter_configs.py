"""AlterConfigs and IncrementalAlterConfigs: settings change without a restart, and so do levels of loggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker import log_levels
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs, SettingChange
from ottla.errors import ApiError, ConfigError, ErrorCode
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
Change = Callable[[ConfigScope, Any], Awaitable[None]]


async def handle(broker: Broker, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    """Replaces all that a resource sets."""

    async def change(resource: ConfigScope, asked: Any) -> None:
        await _store(broker, resource, partial(_replace, resource, asked.configs), request.validate_only)

    return AlterConfigsResponse(responses=await _change(broker, request, change))


def _replace(
    resource: ConfigScope, entries: list[AlterConfigsRequestAlterableConfig], configs: DynamicConfigs
) -> dict[str, str]:
    settings = {entry.name: entry.value for entry in entries}
    if len(settings) < len(entries):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a setting is in the request more than once")
    return configs.alter(resource, settings)


async def handle_incremental(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    """Sets, deletes, appends and subtracts single settings."""

    async def change(resource: ConfigScope, asked: Any) -> None:
        wanted = [SettingChange(entry.name, entry.config_operation, entry.value) for entry in asked.configs]
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            log_levels.check_is_this_broker(resource.name, broker.node_id)
            log_levels.alter(wanted, validate_only=request.validate_only)
            broker.sessions.rules_changed()  # where the audit log has all that is allowed, nothing is remembered
        else:
            await _store(broker, resource, partial(_alter, resource, wanted), request.validate_only)

    return IncrementalAlterConfigsResponse(responses=await _change(broker, request, change))


def _alter(resource: ConfigScope, wanted: list[SettingChange], configs: DynamicConfigs) -> dict[str, str]:
    return configs.incremental_alter(resource, wanted)


def _resource(asked: Any) -> ConfigScope:
    return ConfigScope(asked.resource_type, asked.resource_name)


def _servable(broker: Broker, resource: ConfigScope, decide: Decide, configs: DynamicConfigs) -> dict[str, str]:
    """What was decided, unless a listener could not be served with it: a key that does not fit its certificate."""
    overrides = decide(configs)
    if resource.type == ConfigResourceType.BROKER:
        try:
            broker.tls_listeners.check(configs.replaced(resource, overrides).broker_config())
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return overrides


async def _store(broker: Broker, resource: ConfigScope, decide: Decide, validate_only: bool) -> None:
    """What has begun is finished, also for a client that has hung up."""
    servable = partial(_servable, broker, resource, decide)
    await broker.carried_out(broker.controller.change_config(resource, servable, validate_only=validate_only))


async def _change(
    broker: Broker,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    change: Change,
) -> list[AlterConfigsResourceResponse]:
    """Changes one resource after the other; each is judged by what the one before has left."""
    all_asked: list[Any] = list(request.resources)
    counts: Counter[ConfigScope] = Counter()
    async for asked in broker.turns.over(all_asked):
        counts[_resource(asked)] += 1
    responses = []
    async for asked in broker.turns.over(all_asked):
        resource = _resource(asked)
        answer = AlterConfigsResourceResponse(resource_type=resource.type, resource_name=resource.name)
        try:
            if counts[resource] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a resource is in the request more than once")
            await change(resource, asked)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        responses.append(answer)
    return responses
