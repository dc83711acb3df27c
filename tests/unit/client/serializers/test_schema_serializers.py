"""Avro, JSON Schema and Protobuf in Confluent's wire format, against a registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from ottla.client.errors import SettingsError
from ottla.client.serializers import (
    AvroSerde,
    Context,
    JsonSchemaSerde,
    ProtobufSerde,
    Reference,
    Schema,
    SchemaNotFoundError,
    SchemaRegistry,
)
from ottla.client.serializers.wire_format import VALUE_HEADER, FormatError
from ottla.testing.schema_registry import SchemaRegistryServer


def value_of(topic="orders"):
    return Context(topic, is_key=False)


@dataclass(frozen=True)
class Line:
    article: str
    count: int


@dataclass(frozen=True)
class Order:
    number: int
    lines: list[Line]


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "article", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "number", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": LINE}}],
}
VALUE = {"number": 7, "lines": [{"article": "pen", "count": 2}]}
ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"number": {"type": "integer"}, "lines": {"type": "array"}},
    "required": ["number"],
    "additionalProperties": False,
}

# -- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_is_a_prefix_and_the_bare_binary(registry):
    serde = AvroSerde(registry, ORDER)
    data = serde.dumps(VALUE, value_of())
    assert data == b"\0\0\0\0\1" + b"\x0e" + b"\2" + b"\6pen\4" + b"\0"
    assert serde.loads(data, value_of()) == VALUE
    assert AvroSerde(registry).loads(data, value_of("another")) == VALUE


def test_avro_values_may_be_dataclasses(registry):
    serde = AvroSerde(registry, ORDER, kind=Order)
    order = Order(7, [Line("pen", 2)])
    assert serde.loads(serde.dumps(order, value_of()), value_of()) == order
    with pytest.raises(TypeError, match="a Order is wanted, not dict"):
        serde.dumps(VALUE, value_of())  # type: ignore[arg-type]


def test_avro_has_types_that_json_lacks(registry):
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": "bytes"},
    ]

    @dataclass
    class Event:
        at: datetime
        id: UUID
        raw: bytes

    Event.__annotations__ = {"at": datetime, "id": UUID, "raw": bytes}
    serde = AvroSerde(registry, {"type": "record", "name": "E", "fields": fields}, kind=Event)
    event = Event(datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), UUID(int=5), b"\xff")
    assert serde.loads(serde.dumps(event, value_of()), value_of()) == event


def test_a_reader_sees_old_records_as_its_own_version(registry):
    old = AvroSerde(registry, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "none"}]
    reader = AvroSerde(registry, reader_schema={"type": "record", "name": "R", "fields": fields})
    assert reader.loads(old.dumps({"a": 1}, value_of()), value_of()) == {"a": 1, "b": "none"}


def test_avro_schemas_may_refer_to_others(registry):
    registry.register("line", Schema(json.dumps(LINE, separators=(",", ":"))))
    referring = {
        **ORDER,
        "namespace": "",
        "fields": [ORDER["fields"][0], {"name": "lines", "type": {"type": "array", "items": "Line"}}],
    }
    serde = AvroSerde(registry, referring, references=[Reference("Line", "line", 1)])
    data = serde.dumps(VALUE, value_of())
    assert AvroSerde(SchemaRegistry(registry.settings)).loads(data, value_of()) == VALUE


@pytest.mark.parametrize(
    ("value", "message"),
    [({"number": 7}, "lines"), ({**VALUE, "colour": 1}, "colour"), ({"number": "7", "lines": []}, "number|int")],
)
def test_what_does_not_fit_an_avro_schema_is_refused(registry, value, message):
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        AvroSerde(registry, ORDER).dumps(value, value_of())


def test_bytes_behind_an_avro_value_are_not_overlooked(registry):
    serde = AvroSerde(registry, ORDER)
    with pytest.raises(ValueError, match="1 bytes are left over"):
        serde.loads(serde.dumps(VALUE, value_of()) + b"x", value_of())


# -- which schema and where it says so ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "orders-value"),
        ("record", "shop.Order"),
        ("topic-record", "orders-shop.Order"),
        (lambda context, name: f":.eu:{context.topic}/{name}", ":.eu:orders/shop.Order"),
    ],
)
def test_the_subject_follows_the_strategy(registry, strategy, subject):
    AvroSerde(registry, ORDER, subject_name=strategy).dumps(VALUE, value_of())
    assert registry.subjects() == [subject]


def test_a_strategy_that_needs_a_name_says_so(registry):
    with pytest.raises(ValueError, match="has no name"):
        AvroSerde(registry, "string", subject_name="record").dumps("x", value_of())
    with pytest.raises(SettingsError, match="one of topic, record, topic-record"):
        AvroSerde(registry, "string", subject_name="subject")


def test_the_key_has_a_subject_of_its_own(registry):
    AvroSerde(registry, "string").dumps("x", Context("orders", is_key=True))
    assert registry.subjects() == ["orders-key"]


def test_nothing_is_registered_where_that_is_forbidden(registry):
    serde = AvroSerde(registry, ORDER, id_policy="registered")
    with pytest.raises(SchemaNotFoundError):
        serde.dumps(VALUE, value_of())
    assert registry.subjects() == []


def test_a_registered_schema_is_used_where_it_is(server):
    AvroSerde(SchemaRegistry(server.url), ORDER).dumps(VALUE, value_of())
    serde = AvroSerde(SchemaRegistry(server.url), ORDER, id_policy="registered")
    assert serde.dumps(VALUE, value_of())[:5] == b"\0\0\0\0\1"
    assert not [each for each in server.requests[1:] if each.endswith("/versions")]


@pytest.mark.parametrize("id_policy", ["latest", 1])
def test_values_are_written_in_the_schema_that_the_registry_has(registry, id_policy):
    registry.register("orders-value", Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'))
    serde = AvroSerde(registry, id_policy=id_policy)
    assert serde.dumps({"a": 1}, value_of()) == b"\0\0\0\0\1\2"


def test_one_that_has_no_schema_cannot_write(registry):
    with pytest.raises(ValueError, match="no schema to write with"):
        AvroSerde(registry).dumps({}, value_of())


def test_schemas_can_be_normalized(server, registry):
    AvroSerde(registry, '{"name": "R", "type": "record", "fields": []}', normalize=True).dumps({}, value_of())
    assert server.requests[0] == "POST /subjects/orders-value/versions?normalize=true"


@pytest.mark.parametrize("registers_with", ["everything", "id"])
def test_the_id_may_go_into_a_header(server, registry, registers_with):
    server.registry.registers_with = registers_with
    serde = AvroSerde(registry, ORDER, id_place="header")
    context = value_of()
    data = serde.dumps(VALUE, context)
    (guid,) = [schema.guid for schema in server.registry.ids]
    assert context.headers == [(VALUE_HEADER, b"\1" + guid.bytes)]
    assert data[:2] == b"\x0e\2"  # the number and the first line: no prefix
    assert AvroSerde(SchemaRegistry(server.url)).loads(data, context) == VALUE


def test_a_registry_without_guids_cannot_have_headers():
    with SchemaRegistryServer(has_guids=False) as server:
        serde = AvroSerde(SchemaRegistry(server.url), ORDER, id_place="header")
        with pytest.raises(ValueError, match="gives no GUIDs"):
            serde.dumps(VALUE, value_of())


@pytest.mark.parametrize("settings", [{"id_policy": "always"}, {"id_place": "footer"}])
def test_wrong_settings_are_refused(registry, settings):
    with pytest.raises(SettingsError):
        AvroSerde(registry, ORDER, **settings)


def test_the_registry_is_not_asked_for_each_record(server, registry):
    serde = AvroSerde(registry, ORDER)
    for _ in range(10):
        serde.loads(serde.dumps(VALUE, value_of()), value_of())
    assert len(server.requests) == 2


def test_other_bytes_say_that_they_are_not_of_a_registry(registry):
    with pytest.raises(FormatError, match="not written with a schema registry"):
        AvroSerde(registry).loads(b'{"a":1}', value_of())


# -- JSON Schema -------------------------------------------------------------------------------------------------------


def test_json_is_a_prefix_and_text(registry):
    serde = JsonSchemaSerde(registry, ORDER_JSON)
    data = serde.dumps({"number": 7}, value_of())
    assert data == b'\0\0\0\0\1{"number":7}'
    assert JsonSchemaSerde(registry).loads(data, value_of()) == {"number": 7}


def test_json_values_may_be_dataclasses(registry):
    serde = JsonSchemaSerde(registry, ORDER_JSON, kind=Order, subject_name="record")
    order = Order(7, [Line("pen", 2)])
    assert serde.loads(serde.dumps(order, value_of()), value_of()) == order
    assert registry.subjects() == ["Order"]


def test_json_is_checked_in_both_directions(registry):
    serde = JsonSchemaSerde(registry, ORDER_JSON)
    with pytest.raises(ValueError, match=r"\$\.number does not fit its schema: '7' is not of type 'integer'"):
        serde.dumps({"number": "7"}, value_of())
    serde.dumps({"number": 7}, value_of())
    with pytest.raises(ValueError, match="'number' is a required property"):
        serde.loads(b"\0\0\0\0\1{}", value_of())
    assert JsonSchemaSerde(registry, validate=False).loads(b"\0\0\0\0\1{}", value_of()) == {}


def test_json_schemas_may_refer_to_others_and_to_nothing_in_the_network(registry):
    registry.register("line", Schema('{"type":"object","required":["article"]}', "JSON"))
    schema = {"type": "array", "items": {"$ref": "line.json"}}
    serde = JsonSchemaSerde(registry, schema, references=[Reference("line.json", "line", 1)])
    assert serde.loads(serde.dumps([{"article": "pen"}], value_of()), value_of()) == [{"article": "pen"}]
    with pytest.raises(ValueError, match="'article' is a required property"):
        serde.dumps([{}], value_of())
    registry.set_compatibility("NONE")
    with pytest.raises(Exception, match="Unresolvable"):
        JsonSchemaSerde(registry, {"$ref": "http://127.0.0.1:9/x.json"}).dumps({}, value_of("elsewhere"))


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def message_types():
    """What protoc would generate of two files: common.proto, and shop.proto which imports it."""
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="common", syntax="proto3")
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=1)
    shop = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["common.proto", "google/protobuf/timestamp.proto"],
    )
    shop.message_type.add(name="Other")
    order = shop.message_type.add(name="Order")
    order.field.add(name="number", number=1, type=3, label=1)
    order.field.add(name="price", number=2, type=11, label=1, type_name=".common.Money")
    order.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    nested = order.nested_type.add(name="Line")
    nested.field.add(name="article", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (common, shop):
        pool.AddSerializedFile(file.SerializeToString())
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("shop.Order", "shop.Order.Line", "shop.Other", "common.Money")
    )


PbOrder, PbLine, PbOther, PbMoney = message_types()


@pytest.mark.parametrize(
    ("message", "indexes"),
    [(PbOther(), b"\0"), (PbOrder(number=7), b"\2\2"), (PbLine(article="pen"), b"\4\2\0")],
)
def test_protobuf_says_which_message_of_the_file_it_is(registry, message, indexes):
    serde = ProtobufSerde(registry, type(message))
    data = serde.dumps(message, value_of())
    assert data == b"\0\0\0\0\2" + indexes + message.SerializeToString()
    assert serde.loads(data, value_of()) == message


def test_protobuf_imports_are_registered_first_and_referred_to(server, registry):
    serde = ProtobufSerde(registry, PbOrder)
    serde.dumps(PbOrder(number=7, price=PbMoney(cents=5)), value_of())
    assert registry.subjects() == ["common.proto", "orders-value"]
    assert registry.latest("orders-value").schema.references == (Reference("common.proto", "common.proto", 1),)
    asked = len(server.requests)
    serde.dumps(PbOrder(number=8), value_of())
    assert len(server.requests) == asked


def test_a_reader_without_a_message_type_builds_it_from_the_registry(server, registry):
    order = PbOrder(number=7, price=PbMoney(cents=5))
    order.at.seconds = 9
    context = value_of()
    body = ProtobufSerde(registry, PbOrder, id_place="header").dumps(order, context)
    found = ProtobufSerde(SchemaRegistry(server.url)).loads(body, context)
    assert (found.number, found.price.cents, found.at.seconds) == (7, 5, 9)
    assert found.DESCRIPTOR.full_name == "shop.Order"


def test_a_registry_that_has_only_source_needs_a_message_type(registry):
    registry.register("s", Schema('syntax = "proto3"; message A {}', "PROTOBUF"))
    with pytest.raises(ValueError, match="name a message_type"):
        ProtobufSerde(registry).loads(b"\0\0\0\0\1\0", value_of())


def test_protobuf_of_another_type_is_refused(registry):
    with pytest.raises(TypeError, match="a Order is wanted, not Other"):
        ProtobufSerde(registry, PbOrder).dumps(PbOther(), value_of())
    with pytest.raises(TypeError, match="a Protobuf message is wanted, not dict"):
        ProtobufSerde(registry).dumps({}, value_of())
    data = ProtobufSerde(registry, PbOther).dumps(PbOther(), value_of())
    with pytest.raises(ValueError, match="no message type at"):
        ProtobufSerde(registry).loads(data[:5] + b"\2\x12", value_of())
