"""Avro schemas as columns, and Avro values as rows of them.

Types follow Spark's own Avro source: unions of several types become a struct with a member for each; times of day and
durations, for which Spark has no type, stay numbers and bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from ottla.client.serializers.avro import avro_schema, parsed_avro
from ottla.client.serializers.extras import extra
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.schemas import Schema
from ottla.client.serializers.wire_format import FormatError, SchemaKey, prefix_of
from ottla.errors import ConfigError
from ottla.records.codec import NATIVE
from ottla.spark.arrow_types import arrow_type
from ottla.spark.decode.avro_batch import DATA_BYTES_MAX, AvroBatch
from ottla.spark.decode.formats import Avro
from ottla.spark.decode.rows import Decoder, Encoder, Headers, body_of

Convert = Callable[[Any], Any]

_PRIMITIVES: Final[dict[str, spark.DataType]] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "string": spark.StringType(),
    "fixed": spark.BinaryType(),
    "enum": spark.StringType(),
}
_LOGICAL: Final[dict[str, spark.DataType]] = {
    "date": spark.DateType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "local-timestamp-millis": spark.TimestampNTZType(),
    "local-timestamp-micros": spark.TimestampNTZType(),
}
SPARKS_OWN: Final = frozenset({*_LOGICAL, "decimal"})
# Without those whose numbers are Arrow's own: it takes them as they are, and nobody has to make objects of them.
NOT_NUMBERS: Final = SPARKS_OWN - {"date", "timestamp-micros", "local-timestamp-micros"}
DECIMAL_DIGITS_MAX: Final = 38
SCHEMA_CHARACTERS_MAX: Final = 200  # of one that is shown in an error


class AvroColumns:
    """One parsed schema: its type, and how its values become values of that type."""

    def __init__(self, parsed: Any) -> None:
        self._named: dict[str, Any] = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
        self._open: list[str] = []
        self.type, self.convert = self._of(parsed)

    def _of(self, schema: Any) -> tuple[spark.DataType, Convert | None]:
        if isinstance(schema, list):
            return self._of_union(schema)
        if isinstance(schema, str):
            return (_PRIMITIVES[schema], None) if schema in _PRIMITIVES else self._of_name(schema)
        kind = schema["type"]
        if kind == "record" or kind == "error":
            return self._of_record(schema)
        if kind == "array":
            element, convert = self._of(schema["items"])
            made = spark.ArrayType(element, _is_nullable(schema["items"]))
            return made, None if convert is None else lambda values: [convert(each) for each in values]
        if kind == "map":
            return self._of_map(schema)
        if isinstance(kind, dict | list):
            return self._of(kind)
        logical = _logical_of(schema)
        return (logical, None) if logical is not None else self._of(kind)

    def _of_name(self, name: str) -> tuple[spark.DataType, Convert | None]:
        if name not in self._named:
            raise ConfigError(f"the Avro schema names {name}, which is declared nowhere")
        return self._of(self._named[name])

    def _of_record(self, schema: Mapping[str, Any]) -> tuple[spark.DataType, Convert | None]:
        name = schema["name"]
        if name in self._open:
            raise ConfigError(f"the Avro record {name} contains itself, for which Spark has no columns")
        self._named[name] = schema
        self._open.append(name)
        fields: list[spark.StructField] = []
        converts: dict[str, Convert] = {}
        for each in schema["fields"]:
            kind, convert = self._of(each["type"])
            fields.append(spark.StructField(each["name"], kind, True))
            if convert is not None:
                converts[each["name"]] = convert
        self._open.pop()
        if not converts:
            return spark.StructType(fields), None

        def converted(value: dict[str, Any]) -> dict[str, Any]:
            for name, convert in converts.items():
                if value[name] is not None:
                    value[name] = convert(value[name])
            return value

        return spark.StructType(fields), converted

    def _of_map(self, schema: Mapping[str, Any]) -> tuple[spark.DataType, Convert]:
        value_type, convert = self._of(schema["values"])
        made = spark.MapType(spark.StringType(), value_type, _is_nullable(schema["values"]))
        if convert is None:
            return made, lambda value: list(value.items())
        return made, lambda value: [(key, None if each is None else convert(each)) for key, each in value.items()]

    def _of_union(self, schemas: list[Any]) -> tuple[spark.DataType, Convert | None]:
        others = [each for each in schemas if each != "null"]
        if len(others) == 1:
            kind, convert = self._of(others[0])
            return kind, None if convert is None else lambda value: None if value is None else convert(value)
        members = [self._of(each) for each in others]
        fields = [spark.StructField(f"member{number}", kind, True) for number, (kind, _) in enumerate(members)]
        validate = extra("fastavro").validation.validate

        def chosen(value: Any) -> dict[str, Any]:
            for number, (schema, (_, convert)) in enumerate(zip(others, members, strict=True)):
                if validate(value, schema, raise_errors=False):
                    return {f"member{number}": value if convert is None else convert(value)}
            raise ValueError(f"a value of the type {type(value).__name__} is of none of the union's types")

        return spark.StructType(fields), chosen


def _is_nullable(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema


def _logical_of(schema: Mapping[str, Any]) -> spark.DataType | None:
    logical = schema.get("logicalType")
    if logical == "decimal":
        if schema["precision"] > DECIMAL_DIGITS_MAX:
            raise ConfigError(f"a decimal of {schema['precision']} digits: Spark has at most {DECIMAL_DIGITS_MAX}")
        return spark.DecimalType(schema["precision"], schema.get("scale", 0))
    return None if logical is None else _LOGICAL.get(logical)


def with_logical_types(schema: Any, kept: Collection[str]) -> Any:
    """A schema with these logical types only: fastavro leaves values of the others alone.

    A union of several types keeps what Spark has: its members are told apart by their values.
    """
    if isinstance(schema, list):
        has_several = len([each for each in schema if each != "null"]) > 1
        return [with_logical_types(each, SPARKS_OWN if has_several else kept) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: with_logical_types(each, kept) if name in ("type", "items", "values") else each
        for name, each in schema.items()
        if name != "logicalType" or each in kept
    }
    if isinstance(fields := schema.get("fields"), list):
        made["fields"] = [with_logical_types(each, kept) for each in fields]  # not a union
    return made


@dataclass(frozen=True)
class AvroPlan:
    """How to read and write Avro: in this schema, bare or with the ids of a registry."""

    schema: Schema
    registry: SchemaRegistry | None
    prefix: bytes = b""

    @staticmethod
    def of(how: Avro, *, writes: bool) -> AvroPlan:
        extra("fastavro")
        if how.registry is None:
            if how.schema is None:
                raise ConfigError("Avro without a registry needs a schema")
            return AvroPlan(avro_schema(how.schema), None)
        if how.schema is None or writes:
            if how.subject is None:
                raise ConfigError("name the subject whose schema is to be used, such as orders-value")
            if how.schema is None:
                found = how.registry.latest(how.subject)
            else:
                found = how.registry.register(how.subject, avro_schema(how.schema))
            return AvroPlan(found.schema, how.registry, prefix_of(found.schema_id))
        return AvroPlan(avro_schema(how.schema), how.registry)

    @property
    def columns(self) -> spark.StructType:
        try:
            parsed = _parsed(self.schema, self.registry)
        except (KeyError, TypeError, ValueError, extra("fastavro").schema.SchemaParseException) as error:
            raise ConfigError(f"not an Avro schema: {error}: {self.schema.text[:SCHEMA_CHARACTERS_MAX]}") from error
        found = AvroColumns(parsed).type
        if not isinstance(found, spark.StructType):
            raise ConfigError(f"the Avro schema is of {found.simpleString()}; columns need a record")
        return found

    @property
    def reads_headers(self) -> bool:
        return self.registry is not None

    def codec(self) -> AvroCodec:
        return AvroCodec(self)


def _parsed(schema: Schema, registry: SchemaRegistry | None, kept: Collection[str] = SPARKS_OWN) -> Any:
    text = json.dumps(with_logical_types(json.loads(schema.text), kept))
    return parsed_avro(Schema(text, "AVRO", schema.references), registry)


class AvroCodec:
    def __init__(self, plan: AvroPlan) -> None:
        self._plan = plan
        self._own = _parsed(plan.schema, plan.registry)
        self._own_numbers = _parsed(plan.schema, plan.registry, NOT_NUMBERS)
        columns = AvroColumns(self._own)
        self._convert = columns.convert
        self._batch = AvroBatch.of(self._own, arrow_type(columns.type)) if NATIVE else None
        self._writers: dict[SchemaKey, tuple[Any, Any]] = {}  # and as what they are read
        self._reader = extra("fastavro").schemaless_reader
        self.decode: Decoder = self._decode_bare if plan.registry is None else self._decode_framed
        self.encode: Encoder = self._encode

    def decode_together(self, data: pa.Array, pairs: list[Headers]) -> tuple[pa.Array, list[int]] | None:
        if self._batch is None or data.nbytes > DATA_BYTES_MAX:
            return None
        if self._plan.registry is None:
            return self._batch.decode(data)
        # Schemas are known from the batches before: it is `decode` that asks the registry.
        known = {schema for schema, (_, reader) in self._writers.items() if reader is None}
        if not known:
            return None
        if not pairs:
            prefixes = b"".join(prefix_of(each) for each in known if isinstance(each, int))
            return self._batch.decode(data, prefixes) if prefixes else None
        bodies = [_body_in(known, each, headers) for each, headers in zip(data.to_pylist(), pairs, strict=True)]
        column, refused = self._batch.decode(pa.array(bodies, pa.binary()))
        others = [row for row, body in enumerate(bodies) if body is None and data[row].is_valid]
        return column, sorted([*refused, *others])

    def _decode_bare(self, data: bytes, headers: Headers) -> dict[str, Any]:
        return self._read(data, self._own_numbers, None)

    def _decode_framed(self, data: bytes, headers: Headers) -> dict[str, Any]:
        framed = body_of(data, headers)
        pair = self._writers.get(framed.schema)
        if pair is None:
            pair = self._writers[framed.schema] = self._looked_up(framed.schema)
        return self._read(framed.body, *pair)

    def _looked_up(self, key: SchemaKey) -> tuple[Any, Any]:
        """A writer's schema, and ours where it is another one: then the units of times may differ, too."""
        assert self._plan.registry is not None, "ids are a registry's"
        writer = _parsed(self._plan.registry.schema(key), self._plan.registry)
        return (self._own_numbers, None) if writer == self._own else (writer, self._own)

    def _read(self, body: bytes, writer: Any, reader: Any) -> dict[str, Any]:
        stream = io.BytesIO(body)
        value: dict[str, Any] = self._reader(stream, writer, reader)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over behind the value")
        return value if self._convert is None else self._convert(value)

    def _encode(self, row: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        extra("fastavro").schemaless_writer(buffer, self._own, row)
        return self._plan.prefix + buffer.getvalue()


def _body_in(known: Collection[SchemaKey], data: bytes | None, headers: Headers) -> bytes | None:
    """The body of a value that was written with one of these schemas; None for any other one."""
    if data is None:
        return None
    try:
        framed = body_of(data, headers)
    except FormatError:
        return None
    return framed.body if framed.schema in known else None
