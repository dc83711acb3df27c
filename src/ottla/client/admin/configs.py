"""Settings of topics, brokers and groups: describe and alter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from ottla.client.admin.calls import AdminCalls, only
from ottla.client.retrying import Deadline, error_of, raise_if
from ottla.config.dynamic import AlterOperation, ConfigResourceType
from ottla.errors import ApiError
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
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ResourceType = ConfigResourceType
ConfigOperation = AlterOperation


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """What has settings: a topic by name, a broker by id, all brokers together by the empty name."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> Self:
        return cls(ResourceType.BROKER, str(broker_id))

    @classmethod
    def all_brokers(cls) -> Self:
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker_loggers(cls, broker_id: int) -> Self:
        """The levels of a broker's loggers, which last until it stops."""
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        return cls(ResourceType.GROUP, group_id)

    @property
    def own_node(self) -> int | None:
        """A broker's own settings are known to that broker alone."""
        is_a_broker = self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        return int(self.name) if is_a_broker and self.name else None

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


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
    """One setting. The value of a sensitive one is never returned."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting; APPEND and SUBTRACT are for settings that are lists."""

    name: str
    operation: ConfigOperation
    value: str | None = None


# New values by name, where None goes back to the default; or changes, one by one.
ConfigChanges = Mapping[str, str | None] | Sequence[ConfigChange]


class ConfigCalls(AdminCalls):
    async def describe_config(
        self,
        resource: ConfigResource,
        names: Collection[str] | None = None,
        *,
        with_synonyms: bool = False,
        with_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """The settings of a resource by name, or those that are named."""
        return only(
            await self.describe_configs(
                [resource],
                names,
                with_synonyms=with_synonyms,
                with_documentation=with_documentation,
                timeout_s=timeout_s,
            )
        )

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Collection[str] | None = None,
        *,
        with_synonyms: bool = False,
        with_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | ApiError]:
        """The settings of resources by name, or those that are named."""
        deadline = self._deadline(timeout_s)
        outcomes: dict[ConfigResource, dict[str, ConfigEntry] | ApiError] = {}
        for node_id, asked in _by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for each in asked
                ],
                include_synonyms=with_synonyms,
                include_documentation=with_documentation,
            )
            if node_id is None:
                response = await self._cluster.ask_any(request, DescribeConfigsResponse, deadline=deadline)
            else:
                response = await self._cluster.ask_node(node_id, request, DescribeConfigsResponse, deadline=deadline)
            for result in response.results:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                error = error_of(result.error_code, result.error_message, str(resource))
                outcomes[resource] = error or {each.name: _config_entry(each) for each in result.configs}
        return outcomes

    async def alter_config(
        self,
        resource: ConfigResource,
        changes: ConfigChanges,
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Changes single settings of a resource: all of them, or none. `{name: None}` goes back to the default."""
        only(await self.alter_configs({resource: changes}, validate_only=validate_only, timeout_s=timeout_s))

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, ConfigChanges],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, ApiError | None]:
        """Changes single settings of resources: of each all of them, or none."""
        deadline = self._deadline(timeout_s)
        outcomes: dict[ConfigResource, ApiError | None] = {}
        for node_id, asked in _by_node(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[_altered(each, changes[each]) for each in asked], validate_only=validate_only
            )
            response = await self._alter(node_id, request, deadline)
            for each in response.responses:
                resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                outcomes[resource] = error_of(each.error_code, each.error_message, str(resource))
        return outcomes

    async def _alter(
        self, node_id: int | None, request: IncrementalAlterConfigsRequest, deadline: Deadline
    ) -> IncrementalAlterConfigsResponse:
        if node_id is None:
            return await self._cluster.ask_controller(request, IncrementalAlterConfigsResponse, _codes, deadline)
        return await self._cluster.ask_node(node_id, request, IncrementalAlterConfigsResponse, deadline=deadline)

    async def list_config_resources(
        self, types: Collection[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """What has settings of its own: of these types, or of all that the broker knows."""
        request = ListConfigResourcesRequest(resource_types=list(types))
        response = await self._cluster.ask_any(
            request,
            ListConfigResourcesResponse,
            lambda answer: (answer.error_code,),
            self._deadline(timeout_s),
        )
        raise_if(error_of(response.error_code, None, "the resources with settings"))
        known = {int(each) for each in ResourceType}
        return [
            ConfigResource(ResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
            if each.resource_type in known
        ]


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Under the broker that has to be asked; None: any."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        groups.setdefault(resource.own_node, []).append(resource)
    return groups


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


def _altered(resource: ConfigResource, changes: ConfigChanges) -> IncrementalAlterConfigsRequestAlterConfigsResource:
    if isinstance(changes, Mapping):
        changes = [
            ConfigChange(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
            for name, value in changes.items()
        ]
    return IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequestAlterableConfig(
                name=change.name, config_operation=change.operation, value=change.value
            )
            for change in changes
        ],
    )


def _codes(response: IncrementalAlterConfigsResponse) -> Iterable[int]:
    results: list[AlterConfigsResourceResponse] = response.responses
    return (each.error_code for each in results)
