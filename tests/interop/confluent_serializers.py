"""Writes and reads with Confluent's own serializers: runs in an environment that has them, not in that of the tests.

Standard input: a JSON object with the registry's URL, the Protobuf file, and values that others wrote. Standard output:
what was read, and values of its own.
"""

import base64
import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer  # noqa: E402
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer  # noqa: E402
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer  # noqa: E402
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # noqa: E402

given = json.load(sys.stdin)
registry = SchemaRegistryClient({"url": given["url"]})
pool = descriptor_pool.Default()
for file in given["files"]:
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(file)))
Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serializer(kind, conf):
    if kind == "avro":
        return AvroSerializer(registry, json.dumps(given["avro"]), conf=conf)
    if kind == "json":
        return JSONSerializer(json.dumps(given["json"]), registry, conf=conf)
    return ProtobufSerializer(Order, registry, conf)


def deserializer(kind):
    if kind == "avro":
        return AvroDeserializer(registry)
    if kind == "json":
        return JSONDeserializer(None, schema_registry_client=registry)
    return ProtobufDeserializer(Order, {}, registry)


def written(kind, place):
    conf = {"schema.id.serializer": header_schema_id_serializer} if place == "header" else {}
    headers: list[Any] = []
    context = SerializationContext(given["topic"] + "-theirs", MessageField.VALUE, headers)
    value = json_format.ParseDict(given["value"], Order()) if kind == "protobuf" else given["value"]
    data = serializer(kind, conf)(value, context)
    return {
        "kind": kind,
        "place": place,
        "data": base64.b64encode(data).decode(),
        "headers": [[name, base64.b64encode(each).decode()] for name, each in headers],
    }


def read(each):
    headers: list[Any] = [(name, base64.b64decode(data)) for name, data in each["headers"]]
    context = SerializationContext(given["topic"], MessageField.VALUE, headers)
    value = deserializer(each["kind"])(base64.b64decode(each["data"]), context)
    if each["kind"] == "protobuf":
        value = json_format.MessageToDict(value, preserving_proto_field_name=True)
    return value


kinds = [(kind, place) for kind in ("avro", "json", "protobuf") for place in ("prefix", "header")]
json.dump(
    {"read": [read(each) for each in given["written"]], "written": [written(*each) for each in kinds]}, sys.stdout
)
