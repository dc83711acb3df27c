"""The options of the source: what is understood, what is refused and in which words."""

import pickle
from typing import Any

import pytest

from ottla.client.offsets import Isolation
from ottla.ids import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.spark.option_reader import OptionError
from ottla.spark.options import COLUMNS, NoMatch, SourceOptions, columns_of, parse

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parsed(*, is_streaming: bool = False, **options: str) -> SourceOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        given["subscribe"] = "orders"
    return parse({**SERVERS, **given}, is_streaming=is_streaming)


def refused(match: str, *, is_streaming: bool = False, **options: str) -> None:
    with pytest.raises(OptionError, match=match):
        parsed(is_streaming=is_streaming, **options)


def test_a_batch_reads_everything_there_is_unless_told_otherwise() -> None:
    options = parsed()
    assert (options.starting.place, options.ending.place) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.push_filters
    assert options.columns == COLUMNS
    assert options.ignored == ()


def test_a_stream_starts_with_what_comes_unless_told_otherwise() -> None:
    assert parsed(is_streaming=True).starting.place == LATEST


def test_names_of_options_are_not_case_sensitive() -> None:
    options = parse({"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": "a", "failondataloss": "FALSE"}, is_streaming=False)
    assert (options.bootstrap_servers, options.topics.names, options.fail_on_data_loss) == ("h:1", ("a",), False)


def test_topics_are_named_listed_by_pattern_or_partition_by_partition() -> None:
    assert parsed(subscribe="a, b,,a").topics.names == ("a", "b")
    assert parsed(subscribePattern="orders-.*").topics.pattern == "orders-.*"
    assert parsed(assign='{"b":[1],"a":[2,0]}').topics.partitions == (
        TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"subscribe": " , "}, "subscribe cannot be .*give a topic"),
        ({"subscribePattern": "("}, "subscribePattern cannot be .*not a regular expression"),
        ({"subscribePattern": " "}, "subscribePattern cannot be"),
        ({"assign": "orders"}, 'assign cannot be .*JSON such as {"orders"'),
        ({"assign": '{"orders":0}'}, "assign cannot be"),
        ({"assign": '{"orders":[-1]}'}, "assign cannot be"),
        ({"assign": '{"orders":[]}'}, "has no partitions"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "exactly one of .* assign and subscribe"),
    ],
)
def test_topics_that_cannot_be_are_refused(options: dict[str, Any], match: str) -> None:
    refused(match, **options)


def test_what_is_read_and_from_whom_must_be_said() -> None:
    with pytest.raises(OptionError, match=r"exactly one of .* none of them"):
        parse(SERVERS, is_streaming=False)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse({"subscribe": "a"}, is_streaming=False)


def test_offsets_come_by_name_by_number_and_by_time() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert parsed(startingOffsets="earliest").starting.place == EARLIEST
    starting = parsed(startingOffsets='{"orders":{"0":23,"1":-2}}').starting
    assert starting.offsets == {first: 23, second: EARLIEST}
    assert parsed(endingOffsets='{"orders":{"0":50,"1":-1}}').ending.offsets == {first: 50, second: LATEST}
    assert parsed(startingTimestamp="1700000000000").starting.timestamp_ms == 1_700_000_000_000
    assert parsed(endingOffsetsByTimestamp='{"orders":{"0":5}}').ending.timestamps == {first: 5}


def test_a_time_for_all_comes_before_times_and_times_before_offsets() -> None:
    every: dict[str, Any] = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
        "startingTimestamp": "7",
    }
    assert parsed(**every).starting.option == "startingTimestamp"
    del every["startingTimestamp"]
    assert parsed(**every).starting.option == "startingOffsetsByTimestamp"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingOffsets": "first"}, "startingOffsets cannot be 'first': write earliest, latest, group or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets cannot be"),
        ({"startingOffsets": '{"orders":[0]}'}, "startingOffsets cannot be .*instead of its partitions"),
        ({"startingOffsets": '{"orders":{"zero":1}}'}, "not a partition with its offset"),
        ({"startingOffsets": '{"orders":{"0":1.5}}'}, "not a partition with its offset"),
        ({"startingOffsets": "{}"}, "startingOffsets cannot be"),
        ({"startingOffsets": '{"orders":{"0":1},"orders":{"1":2}}'}, "startingOffsets cannot be .*'orders' .*twice"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":1,"0":2}}'}, "Timestamp cannot be .*'0' stands there twice"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp cannot be 'yesterday': write milliseconds"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":-3}}'}, "endingOffsetsByTimestamp cannot be"),
        ({"startingOffsets": "latest"}, "of a batch query cannot be latest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "of a batch query cannot be latest"),
        ({"endingOffsets": "earliest"}, "of a batch query cannot be earliest"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "of a batch query cannot be earliest"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "Strategy cannot be 'guess': write error or latest"),
    ],
)
def test_bounds_that_cannot_be_are_refused(options: dict[str, Any], match: str) -> None:
    refused(match, **options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    refused(f"{name} is for batch queries", is_streaming=True, **{name: "latest"})


def test_strategies_and_limits_are_read() -> None:
    options = parsed(
        is_streaming=True,
        startingOffsetsByTimestampStrategy="LATEST",
        minPartitions="8",
        maxRecordsPerPartition="1000",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="100",
        maxTriggerDelay="30s",
        rowsPerBatch="500",
        idleWaitMs="0",
    )
    assert options.no_match is NoMatch.LATEST
    assert (options.min_partitions, options.max_records_per_partition) == (8, 1000)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (10, 100)
    assert (options.max_trigger_delay_ms, options.rows_per_batch, options.idle_wait_ms) == (30_000, 500, 0)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("5", 5), ("5ms", 5), ("2 s", 2000), ("15m", 900_000), ("15min", 900_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_times_are_written_as_in_spark(text: str, ms: int) -> None:
    assert parsed(is_streaming=True, maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"minPartitions": "0"}, "minPartitions cannot be '0': write a whole number of at least 1"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition cannot be"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger cannot be"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger 9 is above"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay cannot be 'soon'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss cannot be 'no': write true or false"),
        ({"includeHeaders": "1"}, "includeHeaders cannot be"),
        ({"columns": "value,colour"}, "columns cannot be .*give some of key, value"),
        ({"columns": ""}, "columns cannot be"),
        ({"pushFilters": "yes"}, "pushFilters cannot be"),
        ({"kafka.fetch.max.bytes": "2147483648"}, "write a whole number of at most 2147483647"),
        ({"kafka.fetch.min.bytes": "2147483648"}, "write a whole number of at most 2147483647"),
        ({"maxOffsetsPerTrigger": "9223372036854775808"}, "of at most 9223372036854775807"),
        ({"startingOffsets": '{"orders":{"0":9223372036854775808}}'}, "not a partition with its offset"),
        ({"startingTimestamp": "9223372036854775808"}, "write milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":9223372036854775808}}'}, "not a partition with its offset"),
    ],
)
def test_values_that_cannot_be_are_refused(options: dict[str, Any], match: str) -> None:
    refused(match, is_streaming=True, **options)


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.levle", "kafka.isolationLevel"])
def test_committed_records_only_are_never_asked_for_in_vain(name: str) -> None:
    options: dict[str, Any] = {name: "READ_COMMITTED"}
    refused("write kafka.isolation.level read_committed", **options)


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
def test_settings_of_a_consumer_that_would_break_the_source_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.{name} is not an option of this source"):
        parse({**SERVERS, "subscribe": "a", f"kafka.{name}": "x"}, is_streaming=False)


def test_settings_of_a_consumer_that_mean_something_are_honoured() -> None:
    client = parse(
        {
            **SERVERS,
            "subscribe": "a",
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "500",
            "kafka.fetch.max.wait.ms": "7",
            "kafka.fetch.min.bytes": "0",
            "kafka.request.timeout.ms": "2000",
            "kafka.default.api.timeout.ms": "9000",
            "kafka.socket.connection.setup.timeout.ms": "300",
        },
        is_streaming=False,
    ).client
    assert (client.client_id, client.isolation) == ("me", Isolation.READ_COMMITTED)
    assert (client.fetch_max_bytes, client.partition_max_bytes, client.fetch_min_bytes) == (1000, 500, 0)
    assert (client.fetch_max_wait_ms, client.request_timeout_ms) == (7, 2000)
    assert (client.timeout_ms, client.connect_timeout_ms) == (9000, 300)
    # Spark's own names: of a task that gets no records, and of a stream that finds no broker.
    assert parsed(kafkaConsumer__pollTimeoutMs="77").client.read_patience_ms == 77
    assert parsed(fetchOffset__numRetries="5").client.offset_attempts_max == 5


@pytest.mark.parametrize("servers", ["127.0.0.1", "a:9092,b", "::1:9092x", "PLAINTEXT://a:9092", "a:"])
def test_an_address_without_its_port_is_rejected_before_it_is_tried(servers: str) -> None:
    with pytest.raises(OptionError, match=r"write HOST:PORT with the port"):
        parse({"kafka.bootstrap.servers": servers, "subscribe": "a"}, is_streaming=False)


@pytest.mark.parametrize("servers", ["127.0.0.1:9092", " a-b.c:1 , [::1]:9092 ,"])
def test_addresses_with_ports_are_taken(servers: str) -> None:
    parse({"kafka.bootstrap.servers": servers, "subscribe": "a"}, is_streaming=False)


def test_a_table_that_spark_gives_no_options_is_told_what_to_declare_instead() -> None:
    for options in ({}, {"path": "x"}):
        with pytest.raises(OptionError, match=r"CREATE TABLE … USING ottla OPTIONS .*createOrReplaceTempView"):
            parse(options, is_streaming=False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp 5 is after endingTimestamp 4"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "startingOffsets of orders-0 is 5, after endingOffsets 4",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
                "endingOffsetsByTimestamp": '{"orders":{"0":4}}',
            },
            "startingOffsetsByTimestamp of orders-0 is 5, after endingOffsetsByTimestamp 4",
        ),
    ],
)
def test_a_query_that_begins_after_its_end_is_rejected(options: dict[str, Any], match: str) -> None:
    refused(match, **options)


def test_the_end_of_a_log_is_after_every_offset() -> None:
    parsed(startingOffsets='{"orders":{"0":5}}', endingOffsets='{"orders":{"0":-1}}')


def test_the_places_that_are_advised_are_taken_among_times_too() -> None:
    bound = parsed(startingOffsetsByTimestamp='{"orders":{"0":-2,"1":-1,"2":7}}').starting
    assert sorted((bound.timestamps or {}).values()) == [-2, -1, 7]
    refused("where -2 is earliest", startingOffsetsByTimestamp='{"orders":{"0":-3}}')


def test_an_isolation_that_does_not_exist_is_rejected() -> None:
    refused("isolation.level cannot be", kafka__isolation__level="serializable")


def test_options_without_meaning_are_accepted_and_unknown_ones_are_named() -> None:
    options = parsed(groupIdPrefix="x", kafka__receive__buffer__bytes="1", colour="red")
    assert options.ignored == ("colour", "kafka.receive.buffer.bytes")


def test_a_typo_in_an_option_is_named_with_the_option_that_was_meant() -> None:
    options = parsed(startingOfsets="earliest", failOnDataloss="false", maxOffsetPerTrigger="7")
    assert options.ignored == (
        "maxoffsetpertrigger (did you mean maxOffsetsPerTrigger?)",
        "startingofsets (did you mean startingOffsets?)",
    )


def test_columns_come_in_the_order_of_the_schema() -> None:
    assert columns_of({}) == COLUMNS
    assert columns_of({"includeHeaders": "true"}) == (*COLUMNS, "headers")
    assert columns_of({"columns": "VALUE , key"}) == ("key", "value")
    assert columns_of({"columns": "timestamptype,headers"}) == ("timestampType", "headers")
    assert columns_of({"columns": "value", "includeHeaders": "true"}) == ("value", "headers")


def test_options_travel_to_executors() -> None:
    options = parsed(startingOffsets='{"orders":{"0":3}}')
    assert pickle.loads(pickle.dumps(options)) == options
