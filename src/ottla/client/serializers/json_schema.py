"""JSON Schema with a registry: JSON whose values are checked, when they are written and when they are read.

Needs `jsonschema`. Values are what `json` reads and writes, or instances of a dataclass where `kind` names one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from ottla.client.serializers.extras import extra
from ottla.client.serializers.registered import Decode, Encode, RegisteredSerde, SerdeSettings
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.schemas import Reference, Schema
from ottla.client.serializers.structured import as_plain, json_text, restored
from ottla.client.serializers.wire_format import Framed

Thing = TypeVar("Thing")


class JsonSchemaSerde(RegisteredSerde[Thing]):
    @overload
    def __init__(
        self: JsonSchemaSerde[Any],
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        kind: None = None,
        references: Sequence[Reference] = (),
        validate: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        kind: type[Thing],
        references: Sequence[Reference] = (),
        validate: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        kind: type[Thing] | None = None,
        references: Sequence[Reference] = (),
        validate: bool = True,
        **settings: Unpack[SerdeSettings],
    ) -> None:
        """`schema`: to write with; its title is its name. `validate`: whether values are checked at all."""
        extra("jsonschema")
        super().__init__(registry, **settings)
        if schema is not None and not isinstance(schema, Schema):
            text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
            schema = Schema(text, "JSON", tuple(references))
        self._schema: Schema | None = schema
        self._title = None if schema is None else _title_of(schema)
        self._kind = kind
        self._validates = validate

    def _own_schema(self, value: Any) -> Schema:
        if self._schema is None:
            raise ValueError("there is no schema to write with: give the serializer one, or id_policy='latest'")
        return self._schema

    def _record_name(self, value: Any) -> str | None:
        return self._title

    def _encoder(self, schema: Schema, value: Any) -> Encode:
        validator, kind = self._validator(schema), self._kind

        def encode(value: Any) -> bytes:
            if kind is not None:
                if not isinstance(value, kind):
                    raise TypeError(f"a {kind.__name__} is wanted, not {type(value).__name__}")
                value = as_plain(value)
            if validator is not None:
                _check(validator, value)
            return json_text(value)

        return encode

    def _decoder(self, framed: Framed) -> Decode:
        validator, kind = self._validator(self.registry.schema(framed.schema)), self._kind

        def decode(body: bytes) -> Any:
            value = json.loads(body)
            if validator is not None:
                _check(validator, value)
            return value if kind is None else restored(value, kind)

        return decode

    def _validator(self, schema: Schema) -> Any:
        if not self._validates:
            return None
        jsonschema, referencing = extra("jsonschema"), extra("referencing")
        found: dict[str, Schema] = {}
        _collect(schema, self.registry, found)
        default = extra("referencing.jsonschema").DRAFT7
        resources = [
            (name, referencing.Resource.from_contents(json.loads(each.text), default_specification=default))
            for name, each in found.items()
        ]
        parsed = json.loads(schema.text)
        kind = jsonschema.validators.validator_for(parsed, default=jsonschema.Draft7Validator)
        kind.check_schema(parsed)
        # Only what the registry knows: an address in a schema is never followed into the network.
        return kind(parsed, registry=referencing.Registry().with_resources(resources))


def _collect(schema: Schema, registry: SchemaRegistry, found: dict[str, Schema]) -> None:
    for each in schema.references:
        if each.name not in found:
            found[each.name] = registry.version(each.subject, each.version).schema
            _collect(found[each.name], registry, found)


def _check(validator: Any, value: Any) -> None:
    problem = next(iter(validator.iter_errors(value)), None)
    if problem is not None:
        raise ValueError(f"{problem.json_path} does not fit its schema: {problem.message}")


def _title_of(schema: Schema) -> str | None:
    parsed = json.loads(schema.text)
    return parsed.get("title") if isinstance(parsed, dict) else None
