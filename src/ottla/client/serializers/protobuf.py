"""Protobuf with a schema registry. Needs `protobuf`.

    orders = ProtobufSerde(registry, Order)       # a class that protoc generated

The file of a message type is registered as a serialized descriptor, and the files that it imports before it, each under
its own name. A reader with a message type needs no schema: Protobuf reads what it knows. One without builds the type
that the bytes name from the registry's descriptors, which Confluent's gives on request (`format=serialized`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, TypeVar, Unpack, overload

from ottla.client.serializers.extras import extra
from ottla.client.serializers.registered import Decode, Encode, RegisteredSerde, SerdeSettings
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.schemas import Reference, Schema
from ottla.client.serializers.wire_format import Framed

Message = TypeVar("Message")

WELL_KNOWN: Final = "google/protobuf/"  # files that every Protobuf library brings


class ProtobufSerde(RegisteredSerde[Message]):
    has_indexes = True

    @overload
    def __init__(
        self: ProtobufSerde[Any],
        registry: SchemaRegistry,
        message_type: None = None,
        **settings: Unpack[SerdeSettings],
    ) -> None: ...

    @overload
    def __init__(
        self, registry: SchemaRegistry, message_type: type[Message], **settings: Unpack[SerdeSettings]
    ) -> None: ...

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message] | None = None,
        **settings: Unpack[SerdeSettings],
    ) -> None:
        """`message_type`: what is read; None reads whatever the bytes say. What is written says itself what it is."""
        extra("google.protobuf.message")
        super().__init__(registry, **settings)
        self._message_type = message_type
        self._files: dict[str, Schema] = {}  # of the message types of this program

    def _own_schema(self, value: Any) -> Schema:
        file = value.DESCRIPTOR.file
        found = self._files.get(file.name)
        if found is None:
            found = file_schema(file, self.registry, self._id_policy == "register", self._normalize)
            self._files[file.name] = found
        return found

    def _record_name(self, value: Any) -> str | None:
        if not isinstance(value, extra("google.protobuf.message").Message):
            raise TypeError(f"a Protobuf message is wanted, not {type(value).__name__}")
        if self._message_type is not None and not isinstance(value, self._message_type):
            raise TypeError(f"a {self._message_type.__name__} is wanted, not {type(value).__name__}")
        return str(value.DESCRIPTOR.full_name)

    def _writer_key(self, value: Any) -> str:
        return str(value.DESCRIPTOR.full_name)

    def _indexes(self, value: Any) -> tuple[int, ...]:
        return message_indexes(value.DESCRIPTOR)

    def _encoder(self, schema: Schema, value: Any) -> Encode:
        return lambda value: bytes(value.SerializeToString())

    def _decoder(self, framed: Framed) -> Decode:
        kind: Any = self._message_type
        if kind is None:
            kind = registered_message(self.registry, framed)
        decode: Decode = kind.FromString
        return decode


def message_indexes(descriptor: Any) -> tuple[int, ...]:
    """The path to a message type in its file, outermost first."""
    names = [descriptor.name]
    while descriptor.containing_type is not None:
        descriptor = descriptor.containing_type
        names.append(descriptor.name)
    siblings = _described(descriptor.file).message_type
    path: list[int] = []
    for name in reversed(names):
        path.append([each.name for each in siblings].index(name))
        siblings = siblings[path[-1]].nested_type
    return tuple(path)


def _described(file: Any) -> Any:
    """A file as it was declared; not every implementation of Protobuf keeps that order in its descriptors."""
    return extra("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(file.serialized_pb)


def file_schema(file: Any, registry: SchemaRegistry, registers: bool, normalize: bool = False) -> Schema:
    """A file as a schema; what it imports is registered first, or has to be."""
    references = []
    for imported in file.dependencies:
        if imported.name.startswith(WELL_KNOWN):
            continue
        schema = file_schema(imported, registry, registers, normalize)
        if registers:
            # The answer to a registration need not say the version.
            registry.register(imported.name, schema, normalize=normalize)
        found = registry.registered(imported.name, schema, normalize=normalize)
        assert found.version is not None, "a schema that was looked up has a version"
        references.append(Reference(imported.name, imported.name, found.version))
    return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", tuple(references))


def registered_message(registry: SchemaRegistry, framed: Framed) -> Any:
    """The class of the message that bytes name, built from the registry's descriptors."""
    schema = registry.schema(framed.schema, serialized=True)
    pool = extra("google.protobuf.descriptor_pool").DescriptorPool()
    file = _add(schema, f"schema-{framed.schema}.proto", registry, pool, set())
    siblings, names = file.message_type, [file.package] if file.package else []
    for index in framed.indexes:
        if index >= len(siblings):
            raise ValueError(f"the schema {framed.schema} has no message type at {list(framed.indexes)}")
        names.append(siblings[index].name)
        siblings = siblings[index].nested_type
    descriptor = pool.FindMessageTypeByName(".".join(names))
    return extra("google.protobuf.message_factory").GetMessageClass(descriptor)


def _add(schema: Schema, name: str, registry: SchemaRegistry, pool: Any, done: set[str]) -> Any:
    """Adds a file and what it imports to a pool, under the names by which they import each other."""
    descriptors = extra("google.protobuf.descriptor_pb2")
    try:
        file = descriptors.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, extra("google.protobuf.message").DecodeError) as error:
        raise ValueError(
            "the schema registry gives Protobuf schemas as source, not as descriptors: name a message_type"
        ) from error
    for each in schema.references:
        if each.name not in done:
            done.add(each.name)
            found = registry.version(each.subject, each.version, serialized=True)
            _add(found.schema, each.name, registry, pool, done)
    for imported in file.dependency:
        if imported.startswith(WELL_KNOWN) and imported not in done:
            done.add(imported)
            _add_well_known(imported, pool, done)
    file.name = name
    pool.AddSerializedFile(file.SerializeToString())
    return file


def _add_well_known(name: str, pool: Any, done: set[str]) -> None:
    default = extra("google.protobuf.descriptor_pool").Default()
    extra("google.protobuf." + name.removeprefix("google/protobuf/").removesuffix(".proto") + "_pb2")
    file = default.FindFileByName(name)
    for imported in file.dependencies:
        if imported.name not in done:
            done.add(imported.name)
            _add_well_known(imported.name, pool, done)
    pool.AddSerializedFile(file.serialized_pb)
