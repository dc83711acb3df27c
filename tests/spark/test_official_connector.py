"""Spark's own connector beside ours: both formats, on Ottla and on Apache Kafka, give the same rows.

The connector's jars are one minor version behind Spark, see `ottla.testing.spark_connector`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.testing.broker import Broker

pytestmark = pytest.mark.usefixtures("connector")

FORMATS = ("kafka", "ottla")
WAIT_S = 120


@pytest.fixture(params=["ottla", "apache_kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """Both brokers, one after the other."""
    if request.param == "apache_kafka":
        return str(request.getfixturevalue("apache_kafka"))
    broker: Broker = request.getfixturevalue("broker")
    return broker.bootstrap_servers


def batch(spark: SparkSession, form: str, servers: str, **options: str) -> DataFrame:
    return spark.read.format(form).option("kafka.bootstrap.servers", servers).options(**options).load()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def two_offsets(topic: str, first: int, second: int) -> str:
    return json.dumps({topic: {"0": first, "1": second}})


# Each is a query over a topic of 300 records a second apart, beginning at 1,700,000,000 s, even numbers in partition 0.
QUERIES: dict[str, Callable[[str], dict[str, str]]] = {
    "all of a topic": lambda topic: {"subscribe": topic},
    "with headers": lambda topic: {"subscribe": topic, "includeHeaders": "true"},
    "by a pattern": lambda topic: {"subscribePattern": f"{topic[:-1]}."},
    "one partition": lambda topic: {"assign": json.dumps({topic: [1]})},
    "between offsets": lambda topic: {
        "subscribe": topic,
        "startingOffsets": two_offsets(topic, 10, -2),
        "endingOffsets": two_offsets(topic, -1, 20),
    },
    "between times": lambda topic: {
        "subscribe": topic,
        "startingTimestamp": "1700000100000",
        "endingTimestamp": "1700000200500",
    },
    "by times of each partition": lambda topic: {
        "subscribe": topic,
        "startingOffsetsByTimestamp": two_offsets(topic, 1_700_000_050_000, 1_700_000_100_000),
    },
    "cut in parts": lambda topic: {"subscribe": topic, "minPartitions": "7"},
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_same_rows_through_both(
    spark: SparkSession,
    servers: str,
    topic: str,
    query: str,
    create_topic: Callable[..., None],
    send: Callable[..., None],
) -> None:
    create_topic(servers, topic)
    send(servers, topic, range(300))
    frames = {form: batch(spark, form, servers, **QUERIES[query](topic)) for form in FORMATS}
    assert frames["kafka"].schema == frames["ottla"].schema
    rows = rows_of(frames["kafka"])
    assert rows
    assert rows_of(frames["ottla"]) == rows


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_both_read_every_codec(
    spark: SparkSession,
    servers: str,
    topic: str,
    codec: str,
    create_topic: Callable[..., None],
    send: Callable[..., None],
) -> None:
    create_topic(servers, topic)
    send(servers, topic, range(500), compression_type=codec)
    kafka, ottla = (rows_of(batch(spark, form, servers, subscribe=topic)) for form in FORMATS)
    assert len(kafka) == 500
    assert ottla == kafka


@pytest.mark.parametrize("form", FORMATS)
def test_what_one_writes_both_read(
    spark: SparkSession, servers: str, topic: str, form: str, create_topic: Callable[..., None]
) -> None:
    create_topic(servers, topic)
    written = spark.range(1000).selectExpr(
        "CASE WHEN id % 10 = 0 THEN NULL ELSE CAST(id AS STRING) END AS key",
        "CASE WHEN id % 7 = 0 THEN NULL ELSE concat('value ', id) END AS value",
        "array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
        "CAST(id % 2 AS INT) AS partition",
    )
    writer = written.write.format(form).option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.option("includeHeaders", "true").mode("append").save()
    kafka, ottla = (rows_of(batch(spark, each, servers, subscribe=topic, includeHeaders="true")) for each in FORMATS)
    assert ottla == kafka
    found = {bytes(row[-1][0].value): (row[0], row[1], row[3]) for row in ottla}
    assert found == {
        b"%d" % number: (
            None if number % 10 == 0 else b"%d" % number,
            None if number % 7 == 0 else b"value %d" % number,
            number % 2,
        )
        for number in range(1000)
    }


def test_both_send_a_key_to_the_same_partition(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Callable[..., None]
) -> None:
    servers = broker.bootstrap_servers
    placed = {}
    for form in FORMATS:
        create_topic(servers, f"{topic}-{form}", 5)
        frame = spark.range(500).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
        writer = frame.write.format(form).option("kafka.bootstrap.servers", servers).mode("append")
        writer.option("topic", f"{topic}-{form}").save()
        read = batch(spark, "kafka", servers, subscribe=f"{topic}-{form}")
        placed[form] = {bytes(row.key): row.partition for row in read.collect()}
    assert placed["ottla"] == placed["kafka"]
    assert len(placed["kafka"]) == 500


def test_one_checkpoint_passes_from_one_to_the_other_and_back(
    spark: SparkSession,
    servers: str,
    topic: str,
    checkpoint: str,
    tmp_path: Path,
    create_topic: Callable[..., None],
    send: Callable[..., None],
) -> None:
    table = str(tmp_path / "table")
    create_topic(servers, topic)
    for turn, form in enumerate(["kafka", "ottla", "kafka", "ottla", "ottla", "kafka"]):
        send(servers, topic, range(turn * 100, (turn + 1) * 100))
        source = spark.readStream.format(form).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        # Two batches a turn, so that offsets in the middle are handed over too.
        stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "60").load()
        writer = stream.writeStream.format("parquet").option("path", table).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        numbers = [int(row.key) for row in spark.read.parquet(table).select("key").collect()]
        assert sorted(numbers) == list(range((turn + 1) * 100)), f"after turn {turn} with {form}"


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_of_one_writes_what_both_read(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    form: str,
    checkpoint: str,
    create_topic: Callable[..., None],
    send: Callable[..., None],
) -> None:
    servers = broker.bootstrap_servers
    for name in (topic, f"{topic}-out"):
        create_topic(servers, name)
    send(servers, topic, range(500))
    source = spark.readStream.format(form).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = source.option("startingOffsets", "earliest").load().select("key", "value")
    writer = stream.writeStream.format(form).option("kafka.bootstrap.servers", servers)
    query = writer.option("topic", f"{topic}-out").option("checkpointLocation", checkpoint)
    assert query.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    kafka, ottla = (rows_of(batch(spark, each, servers, subscribe=f"{topic}-out")) for each in FORMATS)
    assert ottla == kafka
    assert sorted(int(row[0]) for row in ottla) == list(range(500))
