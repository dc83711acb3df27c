"""Bytes of records as typed columns on real Spark, and back; what cannot be decoded goes to another topic."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Row, SparkSession

import ottla
from ottla.client.serializers import AvroSerde, Context, SchemaRegistry
from ottla.errors import ConfigError
from ottla.spark.decode import Avro, Json, dead_letters, decode, encode, with_dead_letters
from ottla.testing.broker import Broker
from ottla.testing.schema_registry import SchemaRegistryServer

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "article", "type": ["null", "string"], "default": None}],
}
COLUMNS = "number long, article string"


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def avro(value) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA), value)
    return buffer.getvalue()


def rows_of(spark: SparkSession, values):
    return spark.createDataFrame([(b"k%d" % n, value) for n, value in enumerate(values)], "key binary, value binary")


def test_json_is_decoded_by_spark_itself(spark):
    values = [b'{"number":1,"article":"pen"}', None, b"{", b'{"number":"x"}', b"[1]", b'{"other":2}']
    decoded = decode(rows_of(spark, values), Json(schema=COLUMNS))
    assert "EvalPython" not in decoded._jdf.queryExecution().toString()
    rows = decoded.collect()
    assert [row.decoded for row in rows] == [
        Row(number=1, article="pen"),
        None,
        None,
        None,
        None,
        Row(number=None, article=None),
    ]
    assert [row.error is None for row in rows] == [True, True, False, False, False, True]
    with pytest.raises(PySparkException, match="a row cannot be decoded: not JSON that fits"):
        decode(rows_of(spark, values), Json(schema=COLUMNS), mode="failfast").collect()


def test_json_with_the_prefix_of_a_registry(spark, server):
    registry = SchemaRegistry(server.url)
    how = Json(schema=COLUMNS, registry=registry, subject="t-value")
    rows = decode(rows_of(spark, [b'\0\0\0\0\1{"number":1}', b'{"number":2}', b"\0\0"]), how).collect()
    assert [row.decoded and row.decoded.number for row in rows] == [1, None, None]
    assert ["no prefix" in (row.error or "") for row in rows] == [False, True, True]


def test_avro_becomes_columns_and_columns_avro(spark, server):
    registry = SchemaRegistry(server.url)
    bare = decode(rows_of(spark, [avro({"number": 1, "article": "pen"}), None, b"\xff"]), Avro(schema=SCHEMA))
    assert bare.schema["decoded"].dataType.simpleString() == "struct<number:bigint,article:string>"
    rows = bare.collect()
    assert [row.decoded for row in rows] == [Row(number=1, article="pen"), None, None]
    assert rows[2].error is not None
    good = bare.where("decoded is not null").select("key", "decoded")
    how = Avro(schema=SCHEMA, registry=registry, subject="t-value")
    (row,) = encode(good, how, column="decoded").collect()
    assert AvroSerde(registry).loads(bytes(row.value), Context("t", is_key=False)) == {"number": 1, "article": "pen"}
    assert bytes(row.key) == b"k0"
    again = decode(encode(good, how, column="decoded"), Avro(registry=registry, subject="t-value"))
    assert [row.decoded for row in again.collect()] == [Row(number=1, article="pen")]


def test_columns_beside_those_of_a_record_are_encoded_together(spark):
    rows = spark.createDataFrame([(b"k", 7, "pen")], "key binary, number long, article string")
    (row,) = encode(rows, Json(schema=COLUMNS)).collect()
    assert (bytes(row.key), json.loads(row.value)) == (b"k", {"number": 7, "article": "pen"})
    (row,) = encode(rows, Json(schema="article string")).collect()
    assert json.loads(row.value) == {"article": "pen"}
    with pytest.raises(ConfigError, match="lacks colour"):
        encode(rows, Json(schema="colour string"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "none"}, "no column none"),
        ({"into": "key"}, "a column key already"),
        ({"mode": "drop"}, "permissive or"),
    ],
)
def test_wrong_arguments_are_refused_before_the_query_starts(spark, arguments, message):
    with pytest.raises(ConfigError, match=message):
        decode(rows_of(spark, []), Json(schema=COLUMNS), **arguments)


def test_a_stream_sends_what_it_cannot_decode_to_another_topic(
    spark: SparkSession, broker: Broker, create_topic, topic, checkpoint, server
):
    servers = broker.bootstrap_servers
    dead = f"{topic}.dead"
    for name in (topic, dead):
        create_topic(servers, name, 1)
    serde = AvroSerde(SchemaRegistry(server.url), SCHEMA)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(3):
        data = serde.dumps({"number": number, "article": None}, Context(topic, is_key=False))
        producer.produce(topic, key=b"%d" % number, value=b"bad" if number == 1 else data, headers=[("own", b"1")])
    producer.flush()
    stream = spark.readStream.format("ottla").options(
        **{"kafka.bootstrap.servers": servers}, subscribe=topic, startingOffsets="earliest", includeHeaders="true"
    )
    decoded = decode(stream.load(), Avro(registry=SchemaRegistry(server.url), subject=f"{topic}-value"))
    found: list[int] = []

    failures = iter([True])

    def keep(rows, number):
        assert "error" not in rows.columns
        if next(failures, False):
            raise RuntimeError("after the dead letters were written")
        found.extend(row.number for row in rows.select("decoded.*").collect())

    handle = with_dead_letters(keep, dead, {"kafka.bootstrap.servers": servers, "delivery": "exactly-once"})
    writer = decoded.writeStream.foreachBatch(handle).option("checkpointLocation", checkpoint)
    with pytest.raises(StreamingQueryException, match="after the dead letters were written"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found == [0, 2]
    letters = spark.read.format("ottla").options(**{"kafka.bootstrap.servers": servers}, subscribe=dead)
    assert letters.load().count() == 1
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(dead, 0)])
        letter = next(iter(consumer))
    assert (letter.key, letter.value) == (b"1", b"bad")
    headers = dict(letter.headers)
    assert headers["own"] == b"1"
    assert (headers["ottla.topic"], headers["ottla.partition"], headers["ottla.offset"]) == (topic.encode(), b"0", b"1")
    assert b"not written with a schema registry" in (headers["ottla.error"] or b"")


def test_dead_letters_need_no_places(spark):
    decoded = decode(rows_of(spark, [b"{"]), Json(schema=COLUMNS))
    (row,) = dead_letters(decoded).collect()
    assert [header.key for header in row.headers] == ["ottla.error"]
