"""`format("ottla")` as a source, in real Spark: tables and streams of topics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as NewKafkaTopic
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

import ottla
from ottla.ids import TopicPartition
from ottla.spark.datasource import OttlaDataSource
from ottla.testing.broker import Broker

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Send = Callable[..., None]
Create = Callable[..., None]
Stopped = Callable[[StreamingQuery], StreamingQuery]


def table(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load()


def stream(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataStreamReader:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options)


def numbers(frame: DataFrame) -> list[int]:
    """The keys, which are numbers, sorted."""
    return sorted(int(row.number) for row in frame.selectExpr("cast(key as string) as number").collect())


# -- tables ------------------------------------------------------------------------------------------------------------


def test_a_topic_is_a_table(spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(1000))
    frame = table(spark, broker, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.orderBy("partition", "offset").collect()
    assert len(rows) == 1000
    third, fourth = rows[3], rows[2]
    assert (bytes(third.key), bytes(third.value), third.topic) == (b"6", b"value 6", topic)
    assert (third.partition, third.offset, third.timestampType) == (0, 3, 0)
    assert third.timestamp.astimezone(UTC) == datetime.fromtimestamp(1_700_000_006, UTC)
    assert [(header.key, header.value) for header in third.headers] == [("number", b"6"), ("null", None)]
    assert fourth.headers is None


def test_a_source_that_is_registered_by_hand_is_the_same(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))
    session = spark.newSession()
    session.dataSource.register(OttlaDataSource)
    assert numbers(table(session, broker, topic)) == list(range(10))


def test_bounds_and_splits_reach_the_executors(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(200))
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 10, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 5}}),
    }
    frame = table(spark, broker, topic, minPartitions="6", **bounds)
    assert frame.rdd.getNumPartitions() == 6
    assert numbers(frame) == sorted([*range(20, 200, 2), *range(1, 10, 2)])


def test_an_empty_topic_is_an_empty_table(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    assert table(spark, broker, topic).count() == 0


def test_only_the_columns_that_are_asked_for_are_there(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))
    frame = table(spark, broker, topic, columns="value,offset")
    assert frame.columns == ["value", "offset"]
    (largest,) = frame.agg({"offset": "max"}).collect()
    assert largest[0] == 4


@pytest.fixture(params=["true"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's own setting, on unless a test says otherwise."""
    spark.conf.set(PUSHDOWN, request.param)
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
def test_filters_cut_what_is_read_where_spark_and_the_query_allow_it(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(100))

    def where(condition: str) -> DataFrame:
        return table(spark, broker, topic, pushFilters="true").where(condition)

    one = where("partition = 1 and offset >= 3 and offset < 6")
    assert one.rdd.getNumPartitions() == 1
    assert numbers(one) == [7, 9, 11]
    assert numbers(where("timestamp >= timestamp_millis(1700000097000)")) == [97, 98, 99]
    assert numbers(where("topic = 'another'")) == []
    assert numbers(where("cast(value as string) = 'value 5' and partition = 1")) == [5]
    assert numbers(table(spark, broker, topic, pushFilters="true")) == list(range(100))


@pytest.mark.usefixtures("pushdown")
def test_spark_mixes_up_the_filters_of_a_dataframe_and_so_none_is_taken_unasked(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))

    def both(frame: DataFrame) -> list[int]:
        return numbers(frame.where("partition = 0").union(frame.where("partition = 1")))

    assert both(table(spark, broker, topic)) == list(range(10))
    # Where this fails, Spark has mended it: pushFilters may become true by itself.
    assert both(table(spark, broker, topic, pushFilters="true")) != list(range(10))


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("pushdown", ["false"], indirect=True)
def test_filters_are_not_asked_for_where_spark_does_not_allow_it(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))
    assert numbers(table(spark, broker, topic, pushFilters="true").where("partition = 0")) == [0, 2, 4, 6, 8]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_what_is_wrong_is_said_by_the_exception(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create
) -> None:
    with pytest.raises(PySparkException, match=f"the topic {topic} does not exist"):
        table(spark, broker, topic).collect()
    create_topic(broker.bootstrap_servers, topic)
    with pytest.raises(PySparkException, match="startingOffsets cannot be 'sometimes'"):
        table(spark, broker, topic, startingOffsets="sometimes").collect()
    with pytest.raises(AnalysisException, match="columns cannot be 'colour'"):
        table(spark, broker, topic, columns="colour")
    with pytest.raises(PySparkException, match=r"kafka.auto.offset.reset is not an option"):
        table(spark, broker, topic, **{"kafka.auto.offset.reset": "earliest"}).collect()


def test_what_is_wrong_with_a_stream_is_said_and_not_buried(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = stream(spark, broker, topic, maxOffsetsPerTrigger="few").load()
    query = frame.writeStream.format("memory").queryName("rejected").start()
    with pytest.raises(StreamingQueryException, match="maxOffsetsPerTrigger cannot be 'few'") as caught:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(caught.value)


def test_a_table_that_is_declared_with_options_gets_none_and_says_so(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    spark.sql(
        "CREATE TABLE declared USING ottla"
        f" OPTIONS ('kafka.bootstrap.servers' '{broker.bootstrap_servers}', subscribe '{topic}')"
    )
    try:
        with pytest.raises(PySparkException, match="Spark passes none to a table that was declared"):
            spark.sql("SELECT * FROM declared").collect()
    finally:
        spark.sql("DROP TABLE declared")


def test_a_broker_that_is_not_there_fails_the_query_in_time(spark: SparkSession) -> None:
    with Broker() as gone:
        servers = gone.bootstrap_servers
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "a")
    with pytest.raises(PySparkException, match=r"given up after 1 s: .* connection refused"):
        reader.option("kafka.default.api.timeout.ms", "1000").load().collect()


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_with_a_limit_ends_with_what_was_there(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, checkpoint: str
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(1000))
    query = (
        stream(spark, broker, topic, maxOffsetsPerTrigger="300")
        .load()
        .writeStream.format("memory")
        .queryName("limited")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [progress.numInputRows for progress in query.recentProgress] == [300, 300, 300, 100]
    assert numbers(spark.table("limited")) == list(range(1000))
    written = (Path(checkpoint) / "offsets" / "3").read_text().splitlines()[-1]
    assert json.loads(written) == {topic: {"0": 500, "1": 500}}


@pytest.mark.parametrize("small", ["0", "1000"], ids=["by executors", "with the plan"])
def test_small_batches_have_the_rows_of_the_table_whoever_reads_them(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, small: str
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(250))
    options = {"includeHeaders": "true", "maxOffsetsPerTrigger": "100", "smallBatchOffsets": small}
    frame = stream(spark, broker, topic, **options).load()
    query = frame.writeStream.format("memory").queryName(f"small{small}").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [progress.numInputRows for progress in query.recentProgress] == [100, 100, 50]
    (source,) = query.recentProgress[0].sources
    assert json.loads(source.latestOffset) == {topic: {"0": 125, "1": 125}}
    order = ("partition", "offset")
    found = spark.table(f"small{small}").orderBy(*order).collect()
    assert found == table(spark, broker, topic, includeHeaders="true").orderBy(*order).collect()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, checkpoint: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    output = str(tmp_path / "table")
    for round_number in range(3):
        send(broker.bootstrap_servers, topic, range(round_number * 100, round_number * 100 + 100))
        query = (
            stream(spark, broker, topic)
            .load()
            .writeStream.format("parquet")
            .option("path", output)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert numbers(spark.read.parquet(output)) == list(range(300))


def test_a_stream_from_the_latest_has_what_comes_and_stops_at_once(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, stopped: Stopped
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))
    frame = stream(spark, broker, topic, startingOffsets="latest").load()
    query = stopped(frame.writeStream.format("memory").queryName("later").start())
    query.processAllAvailable()
    send(broker.bootstrap_servers, topic, range(10, 20))
    query.processAllAvailable()
    assert numbers(spark.table("later")) == list(range(10, 20))
    time.sleep(2)  # idle: it waits for records as long as it ever does
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 10


def test_new_partitions_and_new_topics_join_a_running_stream(
    spark: SparkSession, broker: Broker, topic: str, send: Send, stopped: Stopped
) -> None:
    kafka = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    kafka.create_topics([NewKafkaTopic(f"{topic}-a", 1, 1)])[f"{topic}-a"].result(60)
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = reader.option("subscribePattern", f"{topic}-.*").option("startingOffsets", "earliest").load()
    query = stopped(frame.writeStream.format("memory").queryName("joined").start())
    send(broker.bootstrap_servers, f"{topic}-a", range(0, 10, 2))
    query.processAllAvailable()
    assert numbers(spark.table("joined")) == list(range(0, 10, 2))
    kafka.create_partitions([NewPartitions(f"{topic}-a", 2)])[f"{topic}-a"].result(60)
    send(broker.bootstrap_servers, f"{topic}-a", range(1, 10, 2))
    query.processAllAvailable()
    assert numbers(spark.table("joined")) == list(range(10))
    kafka.create_topics([NewKafkaTopic(f"{topic}-b", 2, 1)])[f"{topic}-b"].result(60)
    send(broker.bootstrap_servers, f"{topic}-b", range(10, 20))
    query.processAllAvailable()
    assert numbers(spark.table("joined")) == list(range(20))


def test_a_stream_that_retention_overtook_fails_or_goes_on(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, checkpoint: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    output = str(tmp_path / "table")

    def run(**options: str) -> None:
        query = (
            stream(spark, broker, topic, **options)
            .load()
            .writeStream.format("parquet")
            .option("path", output)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    send(broker.bootstrap_servers, topic, range(10))
    run()
    send(broker.bootstrap_servers, topic, range(10, 30))
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 12})
    with pytest.raises(StreamingQueryException, match="does not have offset 5: it has 12 to 14"):
        run()
    run(failOnDataLoss="false")
    assert numbers(spark.read.parquet(output)) == sorted([*range(10), *range(11, 30, 2), *range(24, 30, 2)])


def test_a_stream_whose_topic_is_deleted_fails(
    spark: SparkSession, broker: Broker, topic: str, create_topic: Create, send: Send, stopped: Stopped
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, range(10))
    query = stopped(stream(spark, broker, topic).load().writeStream.format("memory").queryName("deleted").start())
    query.processAllAvailable()
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topic(topic)
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 no longer exists; it was read up to 5"):
        query.awaitTermination(60)
