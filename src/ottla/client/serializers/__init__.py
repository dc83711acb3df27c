"""From values to bytes and back.

    Producer(..., key_serializer=text, value_serializer=json_values)
    Producer(..., value_serializer=dataclass_values(Order))
    Producer(..., value_serializer=lambda order: order.to_bytes())
    Producer(..., value_serializer=AvroSerde(SchemaRegistry("http://127.0.0.1:8081"), schema))

A `Serde` does both directions and knows for what: the topic, whether it is a key or a value, and the headers, which it
may add to. A plain callable will do as well. None stays None in both directions: it marks a deletion.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ottla.client.serializers.base import (
    BadRecordPolicy,
    Context,
    Deserializer,
    LookupNeededError,
    Serde,
    Serializer,
    deserializer_of,
    serializer_of,
)
from ottla.client.serializers.plain import (
    big_endian_double,
    big_endian_float,
    big_endian_int,
    big_endian_long,
    big_endian_short,
    raw_bytes,
    text,
    uuid_text,
)
from ottla.client.serializers.structured import dataclass_values, json_values

if TYPE_CHECKING:
    from ottla.client.serializers.avro import AvroSerde
    from ottla.client.serializers.json_schema import JsonSchemaSerde
    from ottla.client.serializers.protobuf import ProtobufSerde
    from ottla.client.serializers.registry import RegistrySettings, SchemaRegistry
    from ottla.client.serializers.registry_http import (
        IncompatibleSchemaError,
        InvalidSchemaError,
        RegistryError,
        RegistryUnavailableError,
        SchemaNotFoundError,
    )
    from ottla.client.serializers.schemas import Reference, RegisteredSchema, Schema

__all__ = [
    "AvroSerde",
    "BadRecordPolicy",
    "Context",
    "Deserializer",
    "IncompatibleSchemaError",
    "InvalidSchemaError",
    "JsonSchemaSerde",
    "LookupNeededError",
    "ProtobufSerde",
    "Reference",
    "RegisteredSchema",
    "RegistryError",
    "RegistrySettings",
    "RegistryUnavailableError",
    "Schema",
    "SchemaNotFoundError",
    "SchemaRegistry",
    "Serde",
    "Serializer",
    "big_endian_double",
    "big_endian_float",
    "big_endian_int",
    "big_endian_long",
    "big_endian_short",
    "dataclass_values",
    "deserializer_of",
    "json_values",
    "raw_bytes",
    "serializer_of",
    "text",
    "uuid_text",
]

# Imported when they are first asked for: whoever needs no registry need not load what talks to one.
_LATE = {
    "AvroSerde": "avro",
    "IncompatibleSchemaError": "registry_http",
    "InvalidSchemaError": "registry_http",
    "JsonSchemaSerde": "json_schema",
    "ProtobufSerde": "protobuf",
    "Reference": "schemas",
    "RegisteredSchema": "schemas",
    "RegistryError": "registry_http",
    "RegistrySettings": "registry",
    "RegistryUnavailableError": "registry_http",
    "Schema": "schemas",
    "SchemaNotFoundError": "registry_http",
    "SchemaRegistry": "registry",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
