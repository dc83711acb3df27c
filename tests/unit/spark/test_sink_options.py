"""What the sink asks of options and columns, without a session."""

from __future__ import annotations

import logging
import pickle

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.types import StructType

from ottla.spark import sink
from ottla.spark.option_reader import OptionError
from ottla.spark.sink import BatchSink, ColumnError, StreamSink, check_columns
from ottla.spark.sink_options import BATCH_OPTIONS, BatchOfStream, SinkOptions, parse

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
HEADERS = "array<struct<key:string,value:binary>>"

GOOD_COLUMNS = [
    "value string",
    "value binary, key string",
    f"key binary, value string, headers {HEADERS}, partition int",
    "value string, id bigint, extra map<string,int>",
]
BAD_COLUMNS = {
    "id string": "no column `value`, only id",
    "Value string": "no column `value`, only Value",
    "value int": "the column `value` is a string or binary, and not int: cast it",
    "value string, key bigint": "the column `key` is a string or binary, and not bigint",
    "value string, partition bigint": "the column `partition` is an int, and not bigint: cast it",
    "value string, headers map<string,binary>": f"the column `headers` is {HEADERS}, and not map<string,binary>",
    "value string, headers array<string>": "and not array<string>",
    "value string, headers array<struct<key:string,value:string>>": "and not array<struct<key:string,value:string>>",
    "value string, headers array<struct<value:binary,key:string>>": "and not array<struct<value:binary,key:string>>",
    "value string, topic binary": "the column `topic` is a string, and not binary",
}
BAD_OPTIONS = {
    "kafka.key.serializer": ("x", "kafka.key.serializer is not an option of this sink: keys are text or bytes"),
    "kafka.value.serializer": ("x", "kafka.value.serializer is not an option of this sink"),
    "kafka.interceptor.classes": ("x", "Java classes cannot be used"),
    "kafka.transactional.id": ("x", "delivery=exactly-once"),
    "kafka.acks": ("2", "kafka.acks cannot be '2': write all, 1 or 0"),
    "kafka.compression.type": ("rar", "none, gzip, snappy, lz4, zstd"),
    "kafka.batch.size": ("-1", "kafka.batch.size cannot be '-1'"),
    "kafka.linger.ms": ("soon", "kafka.linger.ms cannot be 'soon'"),
    "kafka.delivery.timeout.ms": ("0", "write a whole number of at least 1"),
    "kafka.max.request.size": ("2147483648", "write a whole number of at most 2147483647"),
    "kafka.max.block.ms": ("9223372036854775808", "write a whole number of at most 9223372036854775807"),
    "kafka.enable.idempotence": ("perhaps", "write true or false"),
    "kafka.partitioner.class": ("com.example.Mine", "put the number into a column `partition`"),
    "kafka.security.protocol": ("SASL_SSL", "kafka.security.protocol SASL_SSL needs kafka.sasl.jaas.config"),
    "kafka.bootstrap.servers": (" ", "kafka.bootstrap.servers is missing"),
    "topic": (" ", "topic cannot be ' '"),
    "decisionsTopic": (" ", "decisionstopic cannot be ' '"),
}


@pytest.fixture(scope="module")
def schema_of():
    """The schema that a text says. Spark's own parser is in Java, so a few types are made by hand."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
    )

    plain = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "bigint": LongType()}

    def type_of(text: str):
        if text in plain:
            return plain[text]
        kind, inner = text.removesuffix(">").split("<", 1)
        if kind == "array":
            return ArrayType(type_of(inner))
        if kind == "map":
            return MapType(*(type_of(part) for part in inner.split(",")))
        return StructType([field_of(part, ":") for part in inner.split(",")])

    def field_of(text: str, between: str):
        name, _, kind = text.strip().partition(between)
        return StructField(name, type_of(kind))

    def schema(text: str) -> StructType:
        fields, depth, start = [], 0, 0
        for at, letter in enumerate(text + ","):
            depth += (letter == "<") - (letter == ">")
            if letter == "," and not depth:
                fields.append(text[start:at])
                start = at + 1
        return StructType([field_of(each, " ") for each in fields])

    return schema


@pytest.mark.parametrize("text", GOOD_COLUMNS)
def test_columns_of_a_record_are_taken_and_others_do_no_harm(schema_of, text):
    check_columns(schema_of(text), has_topic=True)


@pytest.mark.parametrize(("text", "message"), BAD_COLUMNS.items(), ids=BAD_COLUMNS)
def test_columns_that_make_no_record_are_told(schema_of, text, message):
    with pytest.raises(ColumnError) as caught:
        check_columns(schema_of(text), has_topic=True)
    assert message in str(caught.value)


def test_a_topic_is_an_option_or_a_column(schema_of):
    check_columns(schema_of("value string, topic string"), has_topic=False)
    with pytest.raises(ColumnError, match="no topic to write to: give the option topic, or a column"):
        check_columns(schema_of("value string"), has_topic=False)


@pytest.mark.parametrize(("name", "value", "message"), [(name, *rest) for name, rest in BAD_OPTIONS.items()])
def test_options_that_cannot_be_are_told_with_what_to_write(name, value, message):
    with pytest.raises(OptionError) as caught:
        parse({**SERVERS, name: value})
    assert message in str(caught.value)


def test_every_option_is_understood_and_names_are_not_case_sensitive():
    parsed = parse(
        {
            **SERVERS,
            "Topic": "orders",
            "kafka.client.id": "me",
            "kafka.acks": "ALL",
            "kafka.compression.type": "LZ4",
            "kafka.batch.size": "16384",
            "kafka.linger.ms": "5",
            "kafka.max.request.size": "2000000",
            "kafka.delivery.timeout.ms": "7000",
            "kafka.request.timeout.ms": "3000",
            "kafka.socket.connection.setup.timeout.ms": "1000",
            "kafka.max.block.ms": "9000",
            "kafka.metadata.max.age.ms": "60000",
            "kafka.partitioner.class": "org.apache.kafka.clients.producer.UniformStickyPartitioner",
            "kafka.retries": "3",
            "checkpointLocation": "/somewhere",
            "kafka.ssl.provider": "/there",
            "startingOffsets": "latest",
        }
    )
    assert parsed == SinkOptions(
        bootstrap_servers="127.0.0.1:9092",
        topic="orders",
        client_id="me",
        compression="lz4",
        hashes_keys=False,
        batch_bytes_max=16384,
        request_bytes_max=2_000_000,
        linger_ms=5,
        delivery_timeout_ms=7000,
        request_timeout_ms=3000,
        connect_timeout_ms=1000,
        block_ms_max=9000,
        metadata_age_ms_max=60_000,
        ignored=("kafka.ssl.provider", "startingoffsets"),
    )
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_a_batch_is_not_larger_than_a_request_may_be():
    assert parse({**SERVERS, "kafka.max.request.size": "5000"}).batch_bytes_max == 5000


@pytest.mark.parametrize(
    ("acks", "idempotence", "expected"),
    [("all", None, True), ("all", "false", False), ("1", None, False), ("0", "false", False)],
)
def test_batches_are_numbered_unless_that_is_declined(acks, idempotence, expected):
    given = {**SERVERS, "kafka.acks": acks}
    if idempotence is not None:
        given["kafka.enable.idempotence"] = idempotence
    assert parse(given).is_idempotent is expected


def test_fewer_acknowledgements_do_not_go_with_idempotence():
    with pytest.raises(OptionError, match=r"kafka\.enable\.idempotence needs kafka\.acks all"):
        parse({**SERVERS, "kafka.acks": "1", "kafka.enable.idempotence": "true"})


def test_only_a_batch_minds_being_asked_to_overwrite(schema_of):
    given, schema = {**SERVERS, "topic": "t"}, schema_of("value string")
    with pytest.raises(OptionError, match=r'write with mode\("append"\)'):
        BatchSink(given, schema, True)
    StreamSink(given, schema, True)


def test_a_writer_travels_and_options_without_meaning_are_told_once(schema_of, caplog, monkeypatch):
    monkeypatch.setattr(sink, "_told", set())
    given, schema = {**SERVERS, "topic": "t", "kafka.odd": "1"}, schema_of("value string")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            writer = pickle.loads(pickle.dumps(StreamSink(given, schema, False)))
    assert writer._options.topic == "t"
    assert [record.getMessage() for record in caplog.records] == ["options that the sink ignores: kafka.odd"]


def test_what_only_executors_need_is_not_loaded_with_the_sink():
    import subprocess
    import sys

    program = (
        "import sys, ottla.spark.sink; print([n for n in sys.modules if n.startswith(('ottla.client', 'ottla.net'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_delivery_is_at_least_once_unless_asked_for() -> None:
    assert not parse(SERVERS).is_exactly_once
    exact = parse({**SERVERS, "delivery": "Exactly-Once", "kafka.transaction.timeout.ms": "5000"})
    assert exact.is_exactly_once
    assert (exact.transaction_timeout_ms, exact.ignored, exact.batch) == (5000, (), None)


@pytest.mark.parametrize("name", ["deliverry", "semantic", "delivery.guarantee"])
def test_exactly_once_under_another_name_is_not_ignored(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not an option of this sink: write delivery exactly-once"):
        parse({**SERVERS, name: "exactly_once"})


def test_the_batch_of_a_stream_is_named_by_the_helper() -> None:
    named = dict(zip(BATCH_OPTIONS, ("q-orders", "r", "7"), strict=True))
    assert parse({**SERVERS, **named}).batch == BatchOfStream("q-orders", "r", 7)


def test_decisions_need_a_topic_of_their_own():
    options = {**SERVERS, "topic": "orders", "decisionsTopic": "orders"}
    with pytest.raises(OptionError, match="decisionsTopic is the topic orders itself"):
        parse({**options, "delivery": "exactly-once"})
    assert parse(options).topic == "orders"
