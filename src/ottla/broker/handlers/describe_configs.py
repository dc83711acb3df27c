"""DescribeConfigs: the settings of topics, brokers and groups, with the source of each; levels of loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import log_levels
from ottla.broker.response_budget import ResponseBudget
from ottla.cluster.image import ClusterImage
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DescribedSetting, DynamicConfigs, ValueSource
from ottla.errors import ApiError, ErrorCode
from ottla.ids import is_valid_topic_name
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

RESOURCE_TYPES = frozenset(ConfigResourceType)


# What a resource without settings of its own has in common with others of its kind, described once for all of them.
Shared = dict[tuple[int, str, frozenset[str]], list[DescribeConfigsResourceResult]]


@in_turns
def handle(broker: Broker, request: DescribeConfigsRequest, context: Context) -> Steps[DescribeConfigsResponse]:
    if not all(asked.resource_type in RESOURCE_TYPES for asked in request.resources):
        refused = []
        for asked in request.resources:
            refused.append(_refused(asked))
            yield
        return DescribeConfigsResponse(results=refused)
    image, configs = broker.image, broker.configs  # one view for the whole answer, however many turns it takes
    shared: Shared = {}
    budget = ResponseBudget()
    results = []
    for asked in request.resources:
        results.append(_result(image, configs, asked, request, context.version, shared))
        budget.spend(len(results[-1].configs))
        yield
    return DescribeConfigsResponse(results=results)


def _refused(asked: DescribeConfigsResource) -> DescribeConfigsResult:
    """As in Kafka a type of resources that there is none of fails the whole request."""
    return DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="a resource of the request has an unknown type",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )


def _result(
    image: ClusterImage,
    configs: DynamicConfigs,
    asked: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    version: int,
    shared: Shared,
) -> DescribeConfigsResult:
    resource = ConfigScope(asked.resource_type, asked.resource_name)
    try:
        if resource.type == ConfigResourceType.TOPIC and resource.name not in image.topics:
            if not is_valid_topic_name(resource.name):
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{resource.name!r} is not a valid topic name")
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.name} does not exist")
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            entries = _levels(configs.node_id, resource.name, asked.configuration_keys)
        else:
            entries = _entries(configs, resource, asked.configuration_keys, request, version, shared)
        error_code, message = ErrorCode.NONE, None
    except ApiError as error:
        entries, error_code, message = [], error.code, error.message or None
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=entries,
    )


def _entries(
    configs: DynamicConfigs,
    resource: ConfigScope,
    keys: list[str] | None,
    request: DescribeConfigsRequest,
    version: int,
    shared: Shared,
) -> list[DescribeConfigsResourceResult]:
    wanted = frozenset(keys or ())
    # Brokers differ without setting anything: one is this broker, the other is the default of all.
    name = resource.name if resource.type == ConfigResourceType.BROKER or configs.overrides_of(resource) else ""
    described = shared.get((resource.type, name, wanted))
    if described is None:
        entries = configs.describe(
            resource, wanted, synonyms=request.include_synonyms, documentation=request.include_documentation
        )
        described = shared[resource.type, name, wanted] = [_entry(entry, version) for entry in entries]
    return described


def _levels(node_id: int, name: str, keys: list[str] | None) -> list[DescribeConfigsResourceResult]:
    log_levels.check_is_this_broker(name, node_id)
    return [
        DescribeConfigsResourceResult(
            name=logger,
            value=level,
            read_only=False,
            is_sensitive=False,
            config_source=ValueSource.DYNAMIC_BROKER_LOGGER,
        )
        for logger, level in log_levels.levels(keys or ()).items()
    ]


def _entry(entry: DescribedSetting, version: int) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ],
        config_type=entry.kind.number,
        documentation=entry.documentation,
    )
    if version == 0:
        result.is_default = entry.is_default
    return result
