"""What bytes are, as a user says it. With a registry they are in Confluent's wire format, without one they are bare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.serializers.avro import AvroSchema
from ottla.client.serializers.registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """`schema`: the columns, as Spark writes them (`number long, article string`) or as a StructType.

    registry, subject: bytes have the prefix of a registry; the id of the subject's latest version is written.
    """

    schema: str | StructType
    registry: SchemaRegistry | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Avro:
    """`schema`: an Avro schema; without one, the latest version of the registry's subject, when the query starts.

    Records of other versions are read as if they were of this one, by Avro's rules.
    """

    schema: AvroSchema | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protobuf:
    """`message`: a class that protoc generated, or the full name of a message type.

    descriptors: for a name, what `protoc --include_imports --descriptor_set_out` wrote. Without them, the latest
        version of the registry's subject.
    """

    message: type[Any] | str | None = None
    descriptors: bytes | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None


Format = Json | Avro | Protobuf
