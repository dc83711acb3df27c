"""Protobuf message types as columns, and messages as rows of them.

Enums become text, timestamps Spark's timestamps. A field that can be absent is null then; one that cannot, as most of
proto3, has its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from ottla.client.serializers.extras import extra
from ottla.client.serializers.protobuf import message_indexes, registered_message
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.wire_format import Framed, prefix_of
from ottla.errors import ConfigError
from ottla.spark.decode.formats import Protobuf
from ottla.spark.decode.rows import Decoder, Encoder, Headers, body_of

Convert = Callable[[Any], Any]
TIMESTAMP: Final = "google.protobuf.Timestamp"

# By the number of a field's type in a descriptor.
_SCALARS: Final[dict[int, spark.DataType]] = {
    1: spark.DoubleType(),
    2: spark.FloatType(),
    3: spark.LongType(),
    4: spark.DecimalType(20, 0),  # unsigned, 64 bits
    5: spark.IntegerType(),
    6: spark.DecimalType(20, 0),
    7: spark.LongType(),  # unsigned, 32 bits
    8: spark.BooleanType(),
    9: spark.StringType(),
    12: spark.BinaryType(),
    13: spark.LongType(),
    15: spark.IntegerType(),
    16: spark.LongType(),
    17: spark.IntegerType(),
    18: spark.LongType(),
}
_ENUM: Final = 14


class MessageColumns:
    """One message type: its columns, and how a message becomes a row."""

    def __init__(self, descriptor: Any, enclosing: tuple[str, ...] = ()) -> None:
        if descriptor.full_name in enclosing:
            raise ConfigError(f"the message {descriptor.full_name} contains itself, for which Spark has no columns")
        self._enclosing = (*enclosing, descriptor.full_name)
        self._fields: list[tuple[str, bool, Convert]] = []
        columns = []
        for each in descriptor.fields:
            kind, convert = self._of_field(each)
            columns.append(spark.StructField(each.name, kind, True))
            self._fields.append((each.name, each.has_presence, convert))
        self.type = spark.StructType(columns)

    def row(self, message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else convert(getattr(message, name))
            for name, has_presence, convert in self._fields
        }

    def _of_field(self, field: Any) -> tuple[spark.DataType, Convert]:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, _ = self._of_one(entry.fields_by_name["key"])
            value, convert = self._of_one(entry.fields_by_name["value"])
            made = spark.MapType(key, value, True)
            # A map of messages makes what is missing when it is asked for, so its items are not taken by key.
            return made, lambda found: [(name, convert(each)) for name, each in sorted(found.items())]
        kind, convert = self._of_one(field)
        if field.is_repeated:
            return spark.ArrayType(kind, True), lambda found: [convert(each) for each in found]
        return kind, convert

    def _of_one(self, field: Any) -> tuple[spark.DataType, Convert]:
        if field.message_type is not None:
            if field.message_type.full_name == TIMESTAMP:
                return spark.TimestampType(), lambda found: found.ToDatetime(UTC)
            nested = MessageColumns(field.message_type, self._enclosing)
            return nested.type, nested.row
        if field.type == _ENUM:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return spark.StringType(), lambda found: names.get(found, str(found))
        return _SCALARS[field.type], lambda found: found


@dataclass(frozen=True)
class ProtobufPlan:
    """How to read and write messages of a type, which is in `files`, a serialized FileDescriptorSet."""

    files: bytes
    name: str
    is_framed: bool
    prefix: bytes = b""

    @staticmethod
    def of(how: Protobuf, *, writes: bool) -> ProtobufPlan:
        descriptor, schema_id = _found(how, writes)
        files = extra("google.protobuf.descriptor_pb2").FileDescriptorSet()
        _collect(descriptor.file, files, set())
        if how.registry is None or not writes:
            return ProtobufPlan(files.SerializeToString(), descriptor.full_name, how.registry is not None)
        assert schema_id is not None, "who writes has asked for it"
        prefix = prefix_of(schema_id, message_indexes(descriptor))
        return ProtobufPlan(files.SerializeToString(), descriptor.full_name, True, prefix)

    @property
    def columns(self) -> spark.StructType:
        return MessageColumns(message_class(self.files, self.name).DESCRIPTOR).type

    @property
    def reads_headers(self) -> bool:
        return self.is_framed

    def codec(self) -> ProtobufCodec:
        return ProtobufCodec(self)


def _found(how: Protobuf, writes: bool) -> tuple[Any, int | None]:
    """The descriptor of the message type, and the id of its schema where somebody writes."""
    schema_id = None
    if how.registry is not None and (writes or how.message is None or isinstance(how.message, str)):
        if how.subject is None:
            raise ConfigError("name the subject whose schema is to be used, such as orders-value")
        schema_id = how.registry.latest(how.subject).schema_id
    if how.descriptors is not None:
        if not isinstance(how.message, str):
            raise ConfigError("descriptors need the full name of a message type, such as shop.Order")
        return message_class(how.descriptors, how.message).DESCRIPTOR, schema_id
    if isinstance(how.message, type):
        return how.message.DESCRIPTOR, schema_id
    if how.registry is None or schema_id is None:
        raise ConfigError("Protobuf needs a message class, descriptors, or a registry and a subject")
    return _in_registry(how.registry, schema_id, how.message), schema_id


def _in_registry(registry: SchemaRegistry, schema_id: int, name: str | None) -> Any:
    first = registered_message(registry, Framed(schema_id, (0,), b"")).DESCRIPTOR
    if name is None:
        return first
    for each in first.file.message_types_by_name.values():
        if each.full_name == name:
            return each
    raise ConfigError(f"the schema {schema_id} has no message type {name} on its first level")


def _collect(file: Any, files: Any, done: set[str]) -> None:
    """A file and what it imports, before it."""
    if file.name in done:
        return
    done.add(file.name)
    for each in file.dependencies:
        _collect(each, files, done)
    files.file.add().ParseFromString(file.serialized_pb)


def message_class(files: bytes, name: str) -> Any:
    descriptors = extra("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(files)
    pool = extra("google.protobuf.descriptor_pool").DescriptorPool()
    for each in descriptors.file:
        pool.AddSerializedFile(each.SerializeToString())
    try:
        found = pool.FindMessageTypeByName(name)
    except KeyError:
        raise ConfigError(f"the descriptors have no message type {name}") from None
    return extra("google.protobuf.message_factory").GetMessageClass(found)


class ProtobufCodec:
    def __init__(self, plan: ProtobufPlan) -> None:
        self._plan = plan
        self._class = message_class(plan.files, plan.name)
        self._columns = MessageColumns(self._class.DESCRIPTOR)
        self.decode: Decoder = self._decode
        self.encode: Encoder = self._encode

    def decode_together(self, data: pa.Array, pairs: list[Headers]) -> None:
        """Each message by itself."""

    def _decode(self, data: bytes, headers: Headers) -> dict[str, Any]:
        if self._plan.is_framed:
            data = body_of(data, headers, has_indexes=True).body
        return self._columns.row(self._class.FromString(data))

    def _encode(self, row: dict[str, Any]) -> bytes:
        message = self._class()
        fill(message, row)
        return self._plan.prefix + bytes(message.SerializeToString())


def fill(message: Any, row: dict[str, Any]) -> None:
    """Sets the fields of a message that a row has a value for."""
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), value, entry.fields_by_name["value"])
        elif field.is_repeated:
            _fill_list(getattr(message, field.name), value, field)
        elif entry is not None:
            _fill_message(getattr(message, field.name), value)
        else:
            setattr(message, field.name, _scalar(field, value))


def _fill_message(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.FromDatetime(value)
    else:
        message.SetInParent()
        fill(message, value)


def _fill_list(found: Any, values: Any, field: Any) -> None:
    for each in values:
        if field.message_type is not None:
            _fill_message(found.add(), each)
        else:
            found.append(_scalar(field, each))


def _fill_map(found: Any, pairs: Any, field: Any) -> None:
    for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
        if field.message_type is not None:
            _fill_message(found[key], value)
        else:
            found[key] = _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.type == _ENUM:
        named = field.enum_type.values_by_name
        if value not in named:
            raise ValueError(f"{value!r} is not a value of {field.enum_type.full_name}")
        return named[value].number
    return int(value) if isinstance(_SCALARS[field.type], spark.DecimalType) else value
