"""Avro with a schema registry. Needs `fastavro`.

    orders = AvroSerde(registry, {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "long"}]})
    Producer(..., value_serializer=orders)

Values are dicts, or instances of a dataclass where `kind` names one. A value of a union of records may be a tuple of
the record's name and a dict.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack, cast, overload

from ottla.client.serializers.extras import extra
from ottla.client.serializers.registered import Decode, Encode, RegisteredSerde, SerdeSettings
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.schemas import Reference, Schema
from ottla.client.serializers.structured import restored
from ottla.client.serializers.wire_format import Framed

Thing = TypeVar("Thing")
AvroSchema = str | Mapping[str, Any] | Sequence[Any]


def avro_schema(given: AvroSchema | Schema, references: Sequence[Reference] = ()) -> Schema:
    """A schema as text, from text or from what JSON makes of it."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str) and not given.lstrip().startswith(("{", "[", '"')):
        given = json.dumps(given)  # the name of a type
    text = given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))
    return Schema(text, "AVRO", tuple(references))


def parsed_avro(schema: Schema, registry: SchemaRegistry | None = None) -> Any:
    """A schema as fastavro wants it, with everything that it refers to."""
    named: dict[str, Any] = {}
    _add_references(schema, registry, named)
    return extra("fastavro").parse_schema(json.loads(schema.text), named_schemas=named)


def _add_references(schema: Schema, registry: SchemaRegistry | None, named: dict[str, Any]) -> None:
    for each in schema.references:
        if each.name in named:
            continue
        if registry is None:
            raise ValueError(f"the schema refers to {each.name}, and there is no registry to find it in")
        referred = registry.version(each.subject, each.version).schema
        _add_references(referred, registry, named)
        extra("fastavro").parse_schema(json.loads(referred.text), named_schemas=named)


def record_name_of(schema: Schema) -> str | None:
    """`shop.Order`; None where the schema is not of a record."""
    found = json.loads(schema.text)
    if not isinstance(found, dict) or "name" not in found:
        return None
    name, namespace = found["name"], found.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"


class AvroSerde(RegisteredSerde[Thing]):
    @overload
    def __init__(
        self: AvroSerde[Any],
        registry: SchemaRegistry,
        schema: AvroSchema | Schema | None = None,
        *,
        kind: None = None,
        references: Sequence[Reference] = (),
        reader_schema: AvroSchema | Schema | None = None,
        strict: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: AvroSchema | Schema | None = None,
        *,
        kind: type[Thing],
        references: Sequence[Reference] = (),
        reader_schema: AvroSchema | Schema | None = None,
        strict: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: AvroSchema | Schema | None = None,
        *,
        kind: type[Thing] | None = None,
        references: Sequence[Reference] = (),
        reader_schema: AvroSchema | Schema | None = None,
        strict: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None:
        """`schema`: to write with; readers need none, the bytes say theirs.

        kind: the dataclass that values are instances of; without one they are dicts.
        reader_schema: records of any version are read as if they were of this one.
        strict: a value with fields that the schema does not have is refused.
        """
        extra("fastavro")
        super().__init__(registry, **settings)
        self._schema = None if schema is None else avro_schema(schema, references)
        self._name = None if self._schema is None else record_name_of(self._schema)
        self._kind = kind
        self._reader_schema = None if reader_schema is None else avro_schema(reader_schema)
        self._strict = strict

    def _own_schema(self, value: Any) -> Schema:
        if self._schema is None:
            raise ValueError("there is no schema to write with: give the serializer one, or id_policy='latest'")
        return self._schema

    def _record_name(self, value: Any) -> str | None:
        return self._name

    def _encoder(self, schema: Schema, value: Any) -> Encode:
        parsed = parsed_avro(schema, self.registry)
        write, strict, kind = extra("fastavro").schemaless_writer, self._strict, self._kind

        def encode(value: Any) -> bytes:
            if kind is not None:
                if not isinstance(value, kind):
                    raise TypeError(f"a {kind.__name__} is wanted, not {type(value).__name__}")
                value = dataclasses.asdict(cast(Any, value))
            buffer = io.BytesIO()
            write(buffer, parsed, value, strict=strict)
            return buffer.getvalue()

        return encode

    def _decoder(self, framed: Framed) -> Decode:
        writer = parsed_avro(self.registry.schema(framed.schema), self.registry)
        reader = None if self._reader_schema is None else parsed_avro(self._reader_schema, self.registry)
        read, kind = extra("fastavro").schemaless_reader, self._kind

        def decode(body: bytes) -> Any:
            stream = io.BytesIO(body)
            value = read(stream, writer, reader)
            if stream.tell() != len(body):
                raise ValueError(f"{len(body) - stream.tell()} bytes are left over behind the value")
            return value if kind is None else restored(value, kind)

        return decode
