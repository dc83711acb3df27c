"""The API table: for every key its request, its response and their versions. Read from the message classes.

`API_TABLE[key].versions` is what we can read, from the oldest of Kafka 3.9 on; `.advertised` is what a broker
of Kafka 4.3 announces. The two differ at the low end, where 4.0 dropped versions that old clients still send.
Produce is announced from 0 although 0 to 2 are gone: librdkafka before 2.11.1 drops compression silently when
it starts at 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Final

from ottla.protocol.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    consumer_groups,
    embedded,
    fetch,
    group_offsets,
    group_records,
    groups,
    headers,
    log_dirs,
    metadata,
    offsets,
    produce,
    quotas,
    replication,
    sasl,
    scram,
    share_group_records,
    share_groups,
    share_state,
    share_state_records,
    streams_group_records,
    streams_groups,
    telemetry,
    tokens,
    topics,
    transaction_records,
    transactions,
)
from ottla.protocol.schema import MessageSchema, Versions, message_schema_of, messages_in

MODULES: Final[tuple[ModuleType, ...]] = (
    headers,
    api_versions,
    produce,
    fetch,
    offsets,
    metadata,
    topics,
    replication,
    groups,
    group_offsets,
    consumer_groups,
    share_groups,
    share_state,
    streams_groups,
    transactions,
    configs,
    acls,
    sasl,
    tokens,
    quotas,
    scram,
    log_dirs,
    cluster,
    telemetry,
    embedded,
    group_records,
    share_group_records,
    streams_group_records,
    share_state_records,
    transaction_records,
)


@dataclass(frozen=True, slots=True)
class Api:
    """One API: what is asked, what is answered, and in which versions."""

    key: int
    name: str
    request: type
    response: type
    versions: Versions
    flexible_since: int | None
    listeners: tuple[str, ...]
    advertised: Versions | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


def all_messages() -> list[type]:
    """Every message class, requests before their responses."""
    return [cls for module in MODULES for cls in messages_in(vars(module))]


def message_class(name: str) -> type:
    """The message class of that name; KeyError if there is none."""
    return {cls.__name__: cls for cls in all_messages()}[name]


def _build_table() -> dict[int, Api]:
    schemas = {cls: message_schema_of(cls) for cls in all_messages()}
    responses = {schema.key: cls for cls, schema in schemas.items() if schema.name.endswith("Response")}
    apis = (
        _api(request, responses[schema.key], schema)
        for request, schema in schemas.items()
        if schema.key is not None and schema.name.endswith("Request")
    )
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


def _api(request: type, response: type, schema: MessageSchema) -> Api:
    answer = message_schema_of(response)
    assert schema.key is not None
    assert (schema.versions, schema.flexible_since) == (answer.versions, answer.flexible_since), schema.name
    return Api(
        key=schema.key,
        name=schema.name.removesuffix("Request"),
        request=request,
        response=response,
        versions=schema.versions,
        flexible_since=schema.flexible_since,
        listeners=schema.listeners,
        advertised=schema.advertised,
    )


API_TABLE: Final[Mapping[int, Api]] = MappingProxyType(_build_table())
