"""Avro and Protobuf as columns: what a Python worker does with a batch, without Spark around it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark")

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql.types import DateType, LongType, StringType, StructType

from ottla.client.serializers import AvroSerde, Context, ProtobufSerde, SchemaRegistry
from ottla.errors import ConfigError
from ottla.spark.arrow_types import arrow_type
from ottla.spark.decode.avro_rows import AvroPlan
from ottla.spark.decode.formats import Avro, Protobuf
from ottla.spark.decode.protobuf_rows import ProtobufPlan
from ottla.spark.decode.rows import DecodeRows, DecodingError, EncodeRows, codec_of
from ottla.spark.tables.files import WriteFiles, WrittenFile
from ottla.testing.schema_registry import SchemaRegistryServer

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": ["null", "long"], "default": None},
        {"name": "share", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "either", "type": ["null", "long", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
            },
        },
        {"name": "again", "type": ["null", "Inner"]},
    ],
}
VALUE = {
    "flag": True,
    "small": -1,
    "large": 2**40,
    "share": 0.5,
    "raw": b"\xff",
    "colour": "BLUE",
    "tags": ["a", None],
    "counts": {"x": 1},
    "either": "text",
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "day": date(2026, 1, 2),
    "clock": 5,
    "price": Decimal("1.50"),
    "id": "00000000-0000-0000-0000-000000000001",
    "inner": {"m": {"y": 2}},
    "again": None,
}


def avro(schema, value) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def decoded(plan, values, headers=None, *, fails_fast=False) -> list[dict]:
    rows = DecodeRows(pickle.loads(pickle.dumps(plan)), fails_fast)
    data = pa.array(values, pa.binary())
    return (rows.run(data) if headers is None else rows.run_with_headers(data, headers)).to_pylist()


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def test_every_type_of_avro_has_a_column():
    plan = AvroPlan.of(Avro(schema=EVERYTHING), writes=False)
    assert plan.columns.simpleString() == (
        "struct<flag:boolean,small:int,large:bigint,share:double,raw:binary,colour:string,tags:array<string>,"
        "counts:map<string,bigint>,either:struct<member0:bigint,member1:string>,at:timestamp,day:date,clock:int,"
        "price:decimal(10,2),id:string,inner:struct<m:map<string,int>>,again:struct<m:map<string,int>>>"
    )
    schema = {**EVERYTHING, "fields": [each for each in EVERYTHING["fields"] if each["name"] not in ("clock", "id")]}
    schema["fields"].insert(11, {"name": "clock", "type": "int"})
    schema["fields"].insert(13, {"name": "id", "type": "string"})
    (row,) = decoded(plan, [avro(schema, VALUE)])
    assert row["error"] is None
    assert row["decoded"] == {
        **VALUE,
        "counts": [("x", 1)],
        "either": {"member0": None, "member1": "text"},
        "inner": {"m": [("y", 2)]},
    }


def test_bad_bytes_stay_in_their_row_with_the_reason_and_null_stays_null():
    plan = AvroPlan.of(
        Avro(schema={"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}), writes=False
    )
    values = [b"\2", None, b"", b"\2x", b"\4"]
    rows = decoded(plan, values)
    assert [row["decoded"] for row in rows] == [{"a": 1}, None, None, None, {"a": 2}]
    assert [bool(row["error"]) for row in rows] == [False, False, True, True, False]
    assert rows[3]["error"] == "ValueError: 1 bytes are left over behind the value"
    with pytest.raises(DecodingError, match="a row cannot be decoded: EOFError"):
        decoded(plan, values, fails_fast=True)


def test_records_of_each_version_are_read_as_the_one_of_the_columns(server):
    registry = SchemaRegistry(server.url)
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}],
    }
    context = Context("t", is_key=False)
    values = [AvroSerde(registry, old).dumps({"a": 1}, context)]
    values.append(AvroSerde(registry, new).dumps({"a": 2, "b": "x"}, context))
    values.append(b"\0\0\0\0\x63\2")
    plan = AvroPlan.of(Avro(registry=registry, subject="t-value"), writes=False)
    rows = decoded(plan, values)
    assert [row["decoded"] for row in rows] == [{"a": 1, "b": "-"}, {"a": 2, "b": "x"}, None]
    assert "Schema 99 not found" in rows[2]["error"]


def test_times_are_the_same_whatever_unit_their_writer_had(server):
    def schema(unit: str) -> dict[str, Any]:
        at = {"type": "long", "logicalType": f"timestamp-{unit}"}
        fields = [{"name": "at", "type": at}, {"name": "either", "type": ["null", "long", at]}]
        return {"type": "record", "name": "R", "fields": fields}

    registry = SchemaRegistry(server.url)
    context = Context("t", is_key=False)
    at = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    values = [AvroSerde(registry, schema("millis")).dumps({"at": at, "either": at}, context)]
    other = AvroPlan.of(Avro(registry=registry, schema=schema("micros"), subject="u-value"), writes=True)
    values += EncodeRows(other).run(pa.array([{"at": at, "either": 5}])).to_pylist()
    rows = decoded(AvroPlan.of(Avro(registry=registry, schema=schema("micros")), writes=False), values)
    assert [row["error"] for row in rows] == [None, None]
    assert [row["decoded"]["at"] for row in rows] == [at, at]
    assert [row["decoded"]["either"] for row in rows] == [
        {"member0": None, "member1": at},
        {"member0": 5, "member1": None},
    ]


def test_the_id_may_be_in_a_header(server):
    registry = SchemaRegistry(server.url)
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    context = Context("t", is_key=False)
    value = AvroSerde(registry, schema, id_place="header").dumps({"a": 1}, context)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": name, "value": data} for name, data in context.headers]], kind)
    (row,) = decoded(AvroPlan.of(Avro(registry=registry, schema=schema), writes=False), [value], headers)
    assert row["decoded"] == {"a": 1}


def test_rows_become_avro_with_the_prefix_of_their_schema(server):
    registry = SchemaRegistry(server.url)
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    plan = AvroPlan.of(Avro(registry=registry, schema=schema, subject="t-value"), writes=True)
    made = EncodeRows(pickle.loads(pickle.dumps(plan))).run(pa.array([{"a": 1}, None]))
    assert made.to_pylist() == [b"\0\0\0\0\1\2", None]
    assert registry.subjects() == ["t-value"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Avro(), "needs a schema"),
        (Avro(registry=SchemaRegistry("http://127.0.0.1:9")), "name the subject"),
        (Protobuf(), "needs a message class"),
        (Protobuf(message=timestamp_pb2.Timestamp, descriptors=b""), "need the full name"),
        (Protobuf(message="shop.None", descriptors=b""), "no message type shop.None"),
    ],
)
def test_what_is_not_enough_is_said_before_the_query_starts(how, message):
    plan = AvroPlan if isinstance(how, Avro) else ProtobufPlan
    with pytest.raises(ConfigError, match=message):
        plan.of(how, writes=False)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "columns need a record"),
        ("nonsense", "not an Avro schema: nonsense"),
        ('{"type": "record"}', "not an Avro schema: .*name"),
        ({"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}, "R contains itself"),
    ],
)
def test_schemas_without_columns_are_refused(schema, message):
    with pytest.raises(ConfigError, match=message):
        _ = AvroPlan.of(Avro(schema=schema), writes=False).columns


def test_a_codec_is_kept_for_the_next_task_of_a_worker():
    schema = {"type": "record", "name": "Kept", "fields": []}
    first = codec_of(AvroPlan.of(Avro(schema=schema), writes=False))
    assert codec_of(AvroPlan.of(Avro(schema=schema), writes=False)) is first


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def order_type():
    file = descriptor_pb2.FileDescriptorProto(
        name="rows.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="number", number=1, type=3, label=1)
    order.field.add(name="unsigned", number=2, type=4, label=1)
    order.field.add(name="colour", number=3, type=14, label=1, type_name=".shop.Colour")
    order.field.add(name="at", number=4, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="tags", number=5, type=9, label=3)
    order.field.add(name="lines", number=6, type=11, label=3, type_name=".shop.Order.Line")
    order.field.add(name="counts", number=7, type=11, label=3, type_name=".shop.Order.CountsEntry")
    order.field.add(name="note", number=8, type=9, label=1, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_note")
    line = order.nested_type.add(name="Line")
    line.field.add(name="article", number=1, type=9, label=1)
    entry = order.nested_type.add(name="CountsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = order_type()
ROW = {
    "number": 7,
    "unsigned": Decimal(2**64 - 1),
    "colour": "BLUE",
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "tags": ["a", "b"],
    "lines": [{"article": "pen"}],
    "counts": [("x", 1)],
    "note": None,
}


@pytest.mark.parametrize("is_framed", [False, True])
def test_messages_become_rows_and_rows_messages(server, is_framed):
    registry = SchemaRegistry(server.url) if is_framed else None
    if registry is not None:
        ProtobufSerde(registry, Order).dumps(Order(), Context("t", is_key=False))
    how = Protobuf(message=Order, registry=registry, subject="t-value")
    plan = ProtobufPlan.of(how, writes=True)
    assert plan.columns.simpleString() == (
        "struct<number:bigint,unsigned:decimal(20,0),colour:string,at:timestamp,tags:array<string>,"
        "lines:array<struct<article:string>>,counts:map<string,int>,note:string>"
    )
    (data,) = EncodeRows(plan).run(pa.array([ROW], arrow_type(plan.columns))).to_pylist()
    assert data.startswith(b"\0\0\0\0\1\0") == is_framed
    (row,) = decoded(ProtobufPlan.of(how, writes=False), [data])
    assert row == {"decoded": ROW, "error": None}


def test_a_message_type_can_come_from_the_registry(server):
    registry = SchemaRegistry(server.url)
    data = ProtobufSerde(registry, Order).dumps(Order(number=7, note="x"), Context("t", is_key=False))
    plan = ProtobufPlan.of(Protobuf(registry=registry, subject="t-value"), writes=False)
    rows = decoded(plan, [data, b"\0\0\0\0\1\0\xff"])
    assert (rows[0]["decoded"]["number"], rows[0]["decoded"]["note"]) == (7, "x")
    assert rows[1]["decoded"] is None
    assert "DecodeError" in rows[1]["error"]


# -- files of tables ---------------------------------------------------------------------------------------------------


def test_a_task_writes_a_file_for_each_partition_and_tells_of_them_in_its_last_batch(tmp_path, monkeypatch):
    columns = StructType().add("n", LongType()).add("place", StringType()).add("day", DateType())
    rows = [
        {"n": 1, "place": "a/b", "day": None},
        {"n": 2, "place": "a/b", "day": None},
        {"n": 3, "place": None, "day": date(2026, 1, 2)},
    ]
    batches = [pa.array([row], arrow_type(columns)) for row in rows]
    write = WriteFiles(str(tmp_path), columns, ("day", "place"))
    texts = [array.to_pylist() for array in write.run(iter(batches))]
    assert [len(each) for each in texts] == [1, 1, 1]
    assert texts[:2] == [[None], [None]]
    files = sorted(WrittenFile.of_text(texts[2][0]), key=lambda file: file.row_count)
    assert [(file.row_count, file.partition) for file in files] == [
        (1, {"day": "2026-01-02", "place": None}),
        (2, {"day": None, "place": "a/b"}),
    ]
    for file in files:
        path = tmp_path / file.path
        assert path.stat().st_size == file.size_bytes
        assert pyarrow.parquet.read_table(path, partitioning=None).column_names == ["n"]
    monkeypatch.setattr("ottla.spark.tables.files.COLLECTED_BYTES_MAX", 1)
    assert [bool(array[0].as_py()) for array in write.run(iter(batches))] == [True, True, True]
    assert list(write.run(iter([]))) == []
