"""Rows into topics, on real Spark and a real broker, read back by a client that knows neither."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.streaming.query import StreamingQuery

from ottla.records import batch
from ottla.records.layout import Compression
from ottla.testing.broker import Broker

# Not a plain import: kafka-python warns of itself while it is loaded.
murmur2 = pytest.importorskip("kafka.partitioner.default").murmur2

WAIT_S = 120.0
HEADERS = "array<struct<key:string,value:binary>>"


class Found(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: int


def records_of(servers: str, topic: str) -> list[Found]:
    """All records of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False})
    found: list[Found] = []
    for number in sorted(consumer.list_topics(topic, WAIT_S).topics[topic].partitions):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)
        consumer.assign([TopicPartition(topic, number, 0)])
        offset = 0
        while offset < end:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing more came of {topic}-{number} after {offset} of {end}"
            assert message.error() is None, message.error()
            found.append(Found(number, message.key(), message.value(), message.headers() or [], message.timestamp()[1]))
            at = message.offset()
            assert at is not None
            offset = at + 1
    consumer.close()
    return found


def write(frame: DataFrame, broker: Broker, topic: str | None = None, **settings: object) -> None:
    writer = frame.write.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in settings.items():
        writer = writer.option("kafka." + name.replace("_", "."), str(value))
    writer.mode("append").save()


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value_type", ["string", "binary"])
@pytest.mark.parametrize("key_type", ["string", "binary", None])
def test_keys_and_values_are_text_or_bytes_or_null(spark, broker, topic, create_topic, key_type, value_type):
    create_topic(broker.bootstrap_servers, topic, 1)
    rows = [("k1", "v1"), (None, "v2"), ("", ""), ("schlüssel", "größe"), ("k5", None)]
    frame = spark.createDataFrame(rows, "key string, value string").coalesce(1)
    kept = [F.col("value").cast(value_type)]
    if key_type is not None:
        kept.append(F.col("key").cast(key_type))
    before_ms = int(time.time() * 1000)
    write(frame.select(*kept), broker, topic)
    found = records_of(broker.bootstrap_servers, topic)
    texts = [(key if key_type else None, value) for key, value in rows]
    assert [(record.key, record.value) for record in found] == [
        tuple(None if text is None else text.encode() for text in row) for row in texts
    ]
    assert all(before_ms <= record.timestamp <= int(time.time() * 1000) for record in found)
    assert all(record.headers == [] for record in found)


def test_headers_are_written_with_nulls_where_they_may_be(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 1)
    rows = [
        ("a", [("one", b"1"), ("two", None), ("one", b"again")]),
        ("b", []),
        ("c", None),
        ("d", [("", b""), ("ü", b"\xff")]),
    ]
    write(spark.createDataFrame(rows, f"value string, headers {HEADERS}").coalesce(1), broker, topic)
    found = records_of(broker.bootstrap_servers, topic)
    assert [record.headers for record in found] == [headers or [] for _, headers in rows]


def test_a_partition_may_be_named_row_by_row_and_null_leaves_it_to_the_key(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 5)
    rows = [(f"k{number}", str(number), number % 3 if number % 2 else None) for number in range(60)]
    write(spark.createDataFrame(rows, "key string, value string, partition int"), broker, topic)
    expected = {
        value.encode(): (murmur2(key.encode()) & 0x7FFF_FFFF) % 5 if partition is None else partition
        for key, value, partition in rows
    }
    assert {record.value: record.partition for record in records_of(broker.bootstrap_servers, topic)} == expected


def test_other_columns_are_left_alone(spark, broker, topic):
    write(spark.range(3).selectExpr("id", "cast(id as string) AS value", "id * 2 AS twice"), broker, topic)
    assert sorted(record.value or b"" for record in records_of(broker.bootstrap_servers, topic)) == [b"0", b"1", b"2"]


def test_a_frame_without_rows_is_written_without_asking_a_broker(spark):
    frame = spark.createDataFrame([], "value string")
    frame.write.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t").mode(
        "append"
    ).save()


def test_every_row_may_name_its_topic_and_the_option_overrules_it(spark, broker, topic):
    topics = [f"{topic}-{number}" for number in range(3)]
    rows = [(topics[number % 3], str(number)) for number in range(30)]
    frame = spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    write(frame, broker)
    for name in topics:
        expected = sorted(value.encode() for row_topic, value in rows if row_topic == name)
        assert sorted(record.value or b"" for record in records_of(broker.bootstrap_servers, name)) == expected
    write(frame, broker, f"{topic}-all")
    assert len(records_of(broker.bootstrap_servers, f"{topic}-all")) == 30


# -- partitions --------------------------------------------------------------------------------------------------------


def test_keys_go_where_other_clients_send_them(spark, broker, topic, create_topic):
    servers = broker.bootstrap_servers
    keys = [f"customer-{number}" for number in range(500)] + ["", "ä", "x" * 1000]
    for name in (topic, f"{topic}-theirs"):
        create_topic(servers, name, 7)
    write(spark.createDataFrame([(key, key) for key in keys], "key string, value string"), broker, topic)
    # librdkafka with the partitioner of the Java client.
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(f"{topic}-theirs", key=key.encode(), value=key.encode())
    assert producer.flush(WAIT_S) == 0
    ours, theirs = (
        {record.key: record.partition for record in records_of(servers, name)} for name in (topic, f"{topic}-theirs")
    )
    del ours[b""], theirs[b""]  # librdkafka takes an empty key for none
    assert ours == theirs
    assert len(set(ours.values())) == 7


def test_rows_of_a_key_keep_their_order(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 3)
    frame = spark.range(0, 30_000, 1, 1).selectExpr("cast(id % 10 AS string) AS key", "cast(id AS string) AS value")
    write(frame, broker, topic, batch_size=5000)
    by_key: dict[bytes | None, list[int]] = {}
    for record in records_of(broker.bootstrap_servers, topic):
        assert record.value is not None
        by_key.setdefault(record.key, []).append(int(record.value))
    assert by_key == {str(key).encode(): list(range(key, 30_000, 10)) for key in range(10)}


@pytest.mark.parametrize("settings", [{}, {"partitioner_ignore_keys": "true"}], ids=["null keys", "ignored keys"])
def test_rows_whose_keys_do_not_decide_fill_all_partitions_alike(spark, broker, topic, create_topic, settings):
    create_topic(broker.bootstrap_servers, topic, 4)
    key = "cast('same' AS string)" if settings else "cast(null AS string)"
    frame = spark.range(0, 40_000, 1, 2).selectExpr(f"{key} AS key", "cast(id AS string) AS value")
    # Spark's names have dots where a Python name cannot.
    write(frame, broker, topic, batch_size=16_384, **settings)
    found = records_of(broker.bootstrap_servers, topic)
    assert len(found) == len({record.value for record in found}) == 40_000
    counts = Counter(record.partition for record in found)
    assert min(counts.values()) > 0.8 * 10_000
    assert max(counts.values()) < 1.2 * 10_000


# -- settings of the producer ------------------------------------------------------------------------------------------


def batches_in_log(broker: Broker, topic: str) -> list[batch.BatchHeader]:
    headers: list[batch.BatchHeader] = []
    for directory in sorted(Path(broker.directory).glob(f"{topic}-[0-9]")):
        for log in sorted(directory.glob("*.log")):
            headers += batch.scan(log.read_bytes()).headers
    return headers


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_used_and_read_back(spark, broker, topic, codec):
    frame = spark.range(5000).selectExpr("cast(id AS string) AS key", "concat('value ', id) AS value")
    write(frame, broker, topic, compression_type=codec)
    headers = batches_in_log(broker, topic)
    assert {header.compression for header in headers} == {Compression[codec.upper()]}
    assert {record.value for record in records_of(broker.bootstrap_servers, topic)} == {
        b"value %d" % number for number in range(5000)
    }


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks_decide_whether_batches_are_numbered(spark, broker, topic, acks, until):
    write(spark.range(100).selectExpr("cast(id AS string) AS value"), broker, topic, acks=acks)
    until(lambda: sum(header.record_count for header in batches_in_log(broker, topic)) == 100, "all rows are there")
    assert {header.producer_id >= 0 for header in batches_in_log(broker, topic)} == {acks == "all"}


def test_a_batch_is_not_larger_than_was_asked_for(spark, broker, topic):
    write(spark.range(20_000).selectExpr("cast(id AS string) AS value"), broker, topic, batch_size=4000)
    headers = batches_in_log(broker, topic)
    assert max(header.size_bytes for header in headers) <= 4000 + 61
    assert sum(header.record_count for header in headers) == 20_000


def test_the_producer_of_a_worker_serves_its_next_task_too(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 1)
    frame = spark.range(10).selectExpr("cast(id AS string) AS value").coalesce(1)
    for _ in range(6):
        write(frame, broker, topic, client_id=topic)
    headers = batches_in_log(broker, topic)
    assert len(headers) == 6
    producers = Counter(header.producer_id for header in headers)
    assert len(producers) <= 2, "a worker for each of the two cores"
    for producer_id, count in producers.items():
        sequences = [header.base_sequence for header in headers if header.producer_id == producer_id]
        assert sequences == list(range(0, 10 * count, 10))


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_columns_and_options_are_checked_before_anything_is_written(spark, broker, topic):
    # What can be wrong with them is in the unit tests.
    with pytest.raises(AnalysisException, match="the column `value` is a string or binary, and not int: cast it"):
        write(spark.createDataFrame([], "value int"), broker, topic)
    with pytest.raises(AnalysisException, match=r"kafka\.acks cannot be '2': write all, 1 or 0"):
        write(spark.createDataFrame([], "value string"), broker, topic, acks=2)


def test_a_topic_must_be_named_somewhere_and_in_every_row(spark, broker):
    with pytest.raises(AnalysisException, match="no topic to write to: give the option topic, or a column"):
        write(spark.createDataFrame([("v",)], "value string"), broker)
    with pytest.raises(PythonException, match="a row has null in its column `topic`"):
        write(spark.createDataFrame([("v", None)], "value string, topic string"), broker)


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_other_modes_than_append_are_refused_and_the_message_says_so(spark, broker, topic, mode):
    writer = spark.range(1).selectExpr("'v' AS value").write.format("ottla").option("topic", topic)
    with pytest.raises(AnalysisException, match=r'(?i)append"'):
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).mode(mode).save()


def test_a_record_that_is_too_large_names_the_partition_and_what_to_raise(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 1)
    with pytest.raises(PythonException) as caught:
        write(spark.range(1).selectExpr("repeat('x', 2000000) AS value"), broker, topic)
    assert f"cannot write to the topic {topic}: {topic}-0: " in str(caught.value)
    assert "raise its max.message.bytes" in str(caught.value)


def test_large_rows_beside_small_ones_find_their_batches(spark, broker, topic):
    frame = spark.range(0, 40, 1, 1).selectExpr("repeat('x', cast(id * 20000 AS int)) AS value")
    write(frame, broker, topic)
    found = records_of(broker.bootstrap_servers, topic)
    assert sorted(len(record.value or b"") for record in found) == [number * 20000 for number in range(40)]


def test_a_partition_that_is_not_there_is_told(spark, broker, topic, create_topic):
    create_topic(broker.bootstrap_servers, topic, 2)
    with pytest.raises(PythonException, match=r"there is no partition 7: there are 2.*Look at the column `partition`"):
        write(spark.createDataFrame([("v", 7)], "value string, partition int"), broker, topic)


def test_a_header_without_a_key_is_told(spark, broker, topic):
    frame = spark.createDataFrame([("v", [(None, b"x")])], f"value string, headers {HEADERS}")
    with pytest.raises(PythonException, match="Every header needs a key"):
        write(frame, broker, topic)


def test_a_topic_that_nobody_creates_is_told(spark, topic):
    with (
        Broker({"auto.create.topics.enable": "false"}) as strict,
        pytest.raises(PythonException, match=f"the topic {topic} does not exist.*Create the topic"),
    ):
        write(spark.range(1).selectExpr("'v' AS value"), strict, topic)


def test_no_broker_is_told_within_the_time_that_was_given(spark):
    writer = spark.range(1).selectExpr("'v' AS value").write.format("ottla").mode("append").option("topic", "t")
    started = time.monotonic()
    with pytest.raises(PythonException, match=r"given up after 1 s: 127\.0\.0\.1:1: .*Is a broker at 127\.0\.0\.1:1"):
        writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option("kafka.max.block.ms", "1000").save()
    assert time.monotonic() - started < 30


def test_a_broker_that_dies_is_told_within_the_time_of_delivery(spark, topic, create_topic):
    with Broker(in_process=False) as dying:
        create_topic(dying.bootstrap_servers, topic, 1)
        settings = {"delivery_timeout_ms": 1000, "max_block_ms": 1000, "client_id": topic}
        frame = spark.range(0, 1, 1, 1).selectExpr("'v' AS value")
        write(frame, dying, topic, **settings)
        dying.kill()
        with pytest.raises(PythonException, match=r"cannot write.*given up after 1 s.*Is a broker at"):
            write(frame, dying, topic, **settings)


# -- streams -----------------------------------------------------------------------------------------------------------


def start(
    spark: SparkSession, directory: Path, broker: Broker, topic: str, checkpoint: str, **settings: str
) -> StreamingQuery:
    """A stream of the lines of files in a directory, which nothing but its checkpoint keeps from beginning anew."""
    frame = spark.readStream.text(str(directory))
    writer = frame.selectExpr("value AS key", "value").writeStream.format("ottla")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic)
    return writer.options(**settings).option("checkpointLocation", checkpoint).start()


def add_lines(directory: Path, numbers: range) -> set[bytes]:
    """A file that is there all at once."""
    temporary = directory / f".{numbers.start}"
    temporary.write_text("".join(f"{number}\n" for number in numbers))
    os.rename(temporary, directory / f"{numbers.start}.txt")
    return {str(number).encode() for number in numbers}


def values_of(broker: Broker, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in records_of(broker.bootstrap_servers, topic))


def test_a_stream_that_stops_and_starts_writes_every_row_once(
    spark, broker, topic, checkpoint, tmp_path, create_topic, stopped
):
    create_topic(broker.bootstrap_servers, topic)
    lines = tmp_path / "lines"
    lines.mkdir()
    expected: set[bytes] = set()
    for round_number in range(2):
        query = stopped(start(spark, lines, broker, topic, checkpoint))
        for part in range(2):
            first = 1000 * (2 * round_number + part)
            expected |= add_lines(lines, range(first, first + 1000))
            query.processAllAvailable()
            assert set(values_of(broker, topic)) == expected
        query.stop()
    found = values_of(broker, topic)
    assert set(found) == expected
    assert set(found.values()) == {1}, "nothing failed, so nothing came twice"


def test_a_stream_outlives_its_broker_and_writes_every_row_at_least_once(
    spark, topic, checkpoint, tmp_path, create_topic, until, stopped
):
    lines = tmp_path / "lines"
    lines.mkdir()
    with Broker(in_process=False, directory=tmp_path / "broker") as killed:
        create_topic(killed.bootstrap_servers, topic)
        query = stopped(start(spark, lines, killed, topic, checkpoint))
        expected = add_lines(lines, range(1000))
        until(lambda: set(values_of(killed, topic)) == expected, "the first lines are in the topic", query)
        killed.kill()
        expected |= add_lines(lines, range(1000, 2000))
        until(lambda: (query.status or {}).get("isTriggerActive"), "the query is at work on them", query)
        killed.restart()
        until(lambda: set(values_of(killed, topic)) == expected, "all lines are in the topic", query)
        query.stop()


def test_a_stream_that_cannot_write_fails_and_starts_again_where_it_was(
    spark, topic, checkpoint, tmp_path, create_topic, until, stopped
):
    lines = tmp_path / "lines"
    lines.mkdir()
    patience = {"kafka.delivery.timeout.ms": "500", "kafka.max.block.ms": "500"}
    with Broker(in_process=False, directory=tmp_path / "broker") as killed:
        create_topic(killed.bootstrap_servers, topic)
        query = stopped(start(spark, lines, killed, topic, checkpoint, **patience))
        expected = add_lines(lines, range(1000))
        until(lambda: set(values_of(killed, topic)) == expected, "the first lines are in the topic", query)
        killed.kill()
        expected |= add_lines(lines, range(1000, 2000))
        until(lambda: not query.isActive, "the query gives up")
        assert "Is a broker at" in str(query.exception())
        killed.restart()
        query = stopped(start(spark, lines, killed, topic, checkpoint))
        until(lambda: set(values_of(killed, topic)) == expected, "all lines are in the topic", query)
        query.stop()


def test_in_complete_mode_every_batch_is_the_whole_result(spark, broker, topic, checkpoint, tmp_path, stopped):
    lines = tmp_path / "lines"
    lines.mkdir()
    counts = spark.readStream.text(str(lines)).groupBy().count().selectExpr("cast(count AS string) AS value")
    writer = counts.writeStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    query = stopped(
        writer.option("topic", topic).option("checkpointLocation", checkpoint).outputMode("complete").start()
    )
    for number in (0, 10):
        add_lines(lines, range(number, number + 10))
        query.processAllAvailable()
    assert set(values_of(broker, topic)) >= {b"10", b"20"}


def test_a_stream_with_a_bad_option_does_not_start(spark, broker, topic, checkpoint, tmp_path, until):
    query = start(spark, tmp_path, broker, topic, checkpoint, **{"kafka.acks": "some"})
    add_lines(tmp_path, range(3))
    until(lambda: not query.isActive, "the query has ended")
    assert "kafka.acks cannot be 'some'" in str(query.exception())
