"""Settings of topics and brokers: describe and alter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, raise_if
from ottla.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """What has settings: a topic by name, a broker by id, all brokers together by the empty name."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Where a setting has its value from, in Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    BROKER_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. The value of a sensitive one is never told."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


async def describe_configs(
    cluster: Cluster,
    resource: ConfigResource,
    names: Collection[str] | None = None,
    *,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> list[ConfigEntry]:
    """The settings of a resource, or those of the names given."""
    wanted = DescribeConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=None if names is None else list(names),
    )
    request = DescribeConfigsRequest(
        resources=[wanted], include_synonyms=with_synonyms, include_documentation=with_documentation
    )
    if (node_id := _own_node(resource)) is None:
        response = await cluster.ask_any(request, DescribeConfigsResponse)
    else:
        response = await cluster.ask_node(node_id, request, DescribeConfigsResponse)
    (result,) = response.results
    raise_if(error_of(result.error_code, result.error_message, str(resource)))
    return [_config_entry(each) for each in result.configs]


async def topic_settings(cluster: Cluster, topics: Collection[str], name: str) -> dict[str, str]:
    """One setting of many topics, by one question; topics that cannot be asked about are left out."""
    wanted = [
        DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=[name])
        for topic in topics
    ]
    if not wanted:
        return {}
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=False, include_documentation=False)
    response = await cluster.ask_any(request, DescribeConfigsResponse)
    return {
        result.resource_name: entry.value
        for result in response.results
        for entry in result.configs
        if entry.name == name and entry.value is not None
    }


def _config_entry(found: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=ConfigSource(found.config_source),
        is_read_only=found.read_only,
        is_sensitive=found.is_sensitive,
        synonyms=tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in found.synonyms),
        documentation=found.documentation,
    )


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


async def alter_configs(
    cluster: Cluster, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> None:
    """Changes single settings of a resource: all of them, or none."""
    altered = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequestAlterableConfig(
                name=change.name, config_operation=change.operation, value=change.value
            )
            for change in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    if (node_id := _own_node(resource)) is None:
        response = await cluster.ask_controller(request, IncrementalAlterConfigsResponse, _alter_codes)
    else:
        response = await cluster.ask_node(node_id, request, IncrementalAlterConfigsResponse)
    for each in response.responses:
        raise_if(error_of(each.error_code, each.error_message, str(resource)))


def _alter_codes(response: IncrementalAlterConfigsResponse) -> Iterable[int]:
    results: list[AlterConfigsResourceResponse] = response.responses
    return (each.error_code for each in results)


def _own_node(resource: ConfigResource) -> int | None:
    """A broker's own settings are known to that broker alone."""
    return int(resource.name) if resource.type is ResourceType.BROKER and resource.name else None
