"""Confluent's own serializers read what ours write, and the other way round, with the id in both places."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from ottla.client.serializers import AvroSerde, Context, JsonSchemaSerde, ProtobufSerde, SchemaRegistry
from ottla.testing.clients import ClientError, python_with
from ottla.testing.schema_registry import SchemaRegistryServer

PACKAGES = ("confluent-kafka[avro,json,protobuf]==2.13.2",)
SCRIPT = Path(__file__).parent / "confluent_serializers.py"
TOPIC = "orders"
VALUE = {"article": "pen", "price": {"currency": "EUR"}}
MONEY = {"type": "record", "name": "Money", "fields": [{"name": "currency", "type": "string"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "article", "type": "string"}, {"name": "price", "type": MONEY}],
}
JSON = {"title": "Order", "type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}


def files() -> list[descriptor_pb2.FileDescriptorProto]:
    common = descriptor_pb2.FileDescriptorProto(name="interop_common.proto", package="common", syntax="proto3")
    common.message_type.add(name="Money").field.add(name="currency", number=1, type=9, label=1)
    shop = descriptor_pb2.FileDescriptorProto(
        name="interop_shop.proto", package="shop", syntax="proto3", dependency=["interop_common.proto"]
    )
    shop.message_type.add(name="Other")
    order = shop.message_type.add(name="Order")
    order.field.add(name="article", number=1, type=9, label=1)
    order.field.add(name="price", number=2, type=11, label=1, type_name=".common.Money")
    return [common, shop]


def order_type():
    pool = descriptor_pool.DescriptorPool()
    for file in files():
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serde_of(kind, registry, order, **settings):
    if kind == "avro":
        return AvroSerde(registry, AVRO, **settings)
    return JsonSchemaSerde(registry, JSON, **settings) if kind == "json" else ProtobufSerde(registry, order, **settings)


def test_both_read_what_the_other_writes():
    try:
        python = python_with("confluent-serializers", PACKAGES)
    except ClientError as error:
        pytest.skip(f"Confluent's serializers cannot be had: {error}")
    order = order_type()
    with SchemaRegistryServer() as server:
        written = []
        for kind in ("avro", "json", "protobuf"):
            for place in ("prefix", "header"):
                registry = SchemaRegistry(server.url)
                context = Context(f"{TOPIC}-{kind}", is_key=False)
                value = json_format.ParseDict(VALUE, order()) if kind == "protobuf" else VALUE
                data = serde_of(kind, registry, order, id_place=place).dumps(value, context)
                marks = [[name, base64.b64encode(mark or b"").decode()] for name, mark in context.headers]
                written.append({"kind": kind, "data": base64.b64encode(data).decode(), "headers": marks})
        server.registry.level = "NONE"  # three kinds of schemas under one subject
        given = {
            "url": server.url,
            "topic": TOPIC,
            "avro": AVRO,
            "json": JSON,
            "value": VALUE,
            "written": written,
            "files": [base64.b64encode(each.SerializeToString()).decode() for each in files()],
        }
        done = subprocess.run(
            [python, SCRIPT], input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["read"] == [VALUE] * 6
        for each in found["written"]:
            headers: list[tuple[str, bytes | None]] = [(name, base64.b64decode(mark)) for name, mark in each["headers"]]
            assert bool(headers) == (each["place"] == "header"), each
            context = Context(f"{TOPIC}-theirs", is_key=False, headers=headers)
            value = serde_of(each["kind"], SchemaRegistry(server.url), order).loads(
                base64.b64decode(each["data"]), context
            )
            if each["kind"] == "protobuf":
                value = json_format.MessageToDict(value, preserving_proto_field_name=True)
            assert value == VALUE, each
