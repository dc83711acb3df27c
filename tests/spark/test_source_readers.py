"""The readers against a real broker, called as Spark calls them, without a Java machine."""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import python_streaming_source_runner as sparks_runner
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import ottla
from ottla.client.errors import TimedOutError
from ottla.client.fetching import BYTES_PER_OFFSET, Fetcher
from ottla.ids import TopicPartition
from ottla.spark import options as source_options
from ottla.spark import reading, workers
from ottla.spark.datasource import OttlaDataSource
from ottla.spark.lookup import Lookup, MissingTopicsError
from ottla.spark.losses import DataLossError
from ottla.spark.option_reader import OptionError
from ottla.spark.schema import spark_schema
from ottla.spark.source import BatchReader, FilteringReader, Split, StreamReader
from ottla.testing.broker import Broker
from ottla.testing.waiting import wait_until

T = 1_700_000_000_000
WAIT_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        workers._clients.close()  # a worker of Spark keeps them; this process goes on


@pytest.fixture(scope="module")
def admin(running: Broker) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=running.bootstrap_servers) as connected:
        yield connected


class Topic:
    """A topic of one test, and how to change it."""

    def __init__(self, name: str, admin: ottla.Admin, servers: str) -> None:
        self.name = name
        self.servers = servers
        self._admin = admin
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def create(self, partitions: int = 2) -> None:
        self._admin.create_topic(self.name, partitions)

    def delete(self) -> None:
        self._admin.delete_topic(self.name)

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions(self.name, partitions)
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})  # one that knows them

    def forget_before(self, offset: int, partition: int = 0) -> None:
        self._admin.delete_records({TopicPartition(self.name, partition): offset})

    def send(self, count: int, partition: int = 0, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.servers, **settings}) if settings else self._producer
        for number in range(count):
            headers: Any = [("number", b"%d" % number)] if number % 2 else None
            producer.produce(
                self.name, b"value %d" % number, b"key", partition, timestamp=T + number * 1000, headers=headers
            )
        assert producer.flush(WAIT_S) == 0

    def options(self, **options: str) -> dict[str, str]:
        topics = {} if {"subscribePattern", "assign"} & set(options) else {"subscribe": self.name}
        return {"kafka.bootstrap.servers": self.servers, **topics, **options}

    def batch(self, **options: str) -> BatchReader:
        return BatchReader(source_options.parse(self.options(**options), is_streaming=False))

    def stream(self, **options: str) -> StreamReader:
        return StreamReader(source_options.parse(self.options(**options), is_streaming=True))

    def offsets(self, *offsets: int) -> dict[str, dict[str, int]]:
        return {self.name: {str(number): offset for number, offset in enumerate(offsets)}}


@pytest.fixture
def orders(topic: str, admin: ottla.Admin, running: Broker) -> Topic:
    return Topic(topic, admin, running.bootstrap_servers)


def rows(reader: BatchReader | StreamReader, *bounds: Any) -> list[dict[str, Any]]:
    """All rows, through everything that is sent between processes."""
    found: list[dict[str, Any]] = []
    for part in reader.partitions(*bounds):
        travelled, there = pickle.loads(pickle.dumps((reader, part)))
        for batch in travelled.read(there):
            batch.validate(full=True)
            assert batch.schema == to_arrow_schema(spark_schema(reader.options.columns), timezone="UTC")
            found += batch.to_pylist()
    return found


def places(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in found]


# -- batches -----------------------------------------------------------------------------------------------------------


def test_rows_have_the_columns_of_sparks_own_source(orders: Topic) -> None:
    orders.create(1)
    orders.send(2)
    first, second = rows(orders.batch(includeHeaders="true"))
    assert first["timestamp"].timestamp() * 1000 == T
    assert {**first, "timestamp": None} == {
        "key": b"key", "value": b"value 0", "topic": orders.name, "partition": 0, "offset": 0,
        "timestamp": None, "timestampType": 0, "headers": None,
    }  # fmt: skip
    assert second["headers"] == [{"key": "number", "value": b"1"}]


def test_append_time_is_told_from_create_time_in_one_batch(orders: Topic, admin: ottla.Admin) -> None:
    orders.create(1)
    orders.send(3)
    admin.alter_config(ottla.ConfigResource.topic(orders.name), {"message.timestamp.type": "LogAppendTime"})
    orders.send(2)
    found = rows(orders.batch(columns="timestampType,timestamp"))
    assert [row["timestampType"] for row in found] == [0, 0, 0, 1, 1]
    assert found[-1]["timestamp"].timestamp() > T / 1000 + 1000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_and_batches_are_cut_at_the_bounds(orders: Topic, codec: str) -> None:
    orders.create(1)
    settings: dict[str, Any] = {"compression.type": codec, "linger.ms": 50}
    orders.send(500, **settings)
    bounds = {"startingOffsets": json.dumps(orders.offsets(100)), "endingOffsets": json.dumps(orders.offsets(402))}
    found = rows(orders.batch(rowsPerBatch="120", **bounds))
    assert [row["offset"] for row in found] == list(range(100, 402))
    assert found[7]["value"] == b"value 107"


def test_aborted_records_are_seen_only_by_those_who_ask_for_uncommitted_ones(orders: Topic) -> None:
    orders.create(1)
    producer = Producer({"bootstrap.servers": orders.servers, "transactional.id": orders.name})
    producer.init_transactions(WAIT_S)
    for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)) * 2:
        producer.begin_transaction()
        producer.produce(orders.name, value, partition=0)
        producer.flush(WAIT_S)
        end(WAIT_S)
    assert [row["value"] for row in rows(orders.batch())] == [b"a", b"b", b"a", b"b"]
    committed = rows(orders.batch(**{"kafka.isolation.level": "read_committed"}))
    assert [(row["value"], row["offset"]) for row in committed] == [(b"a", 0), (b"a", 4)]


def test_records_of_an_open_transaction_are_waited_for_by_nobody(orders: Topic) -> None:
    orders.create(1)
    orders.send(3)
    producer = Producer({"bootstrap.servers": orders.servers, "transactional.id": orders.name})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(orders.name, b"open", partition=0)
    producer.flush(WAIT_S)
    assert len(rows(orders.batch(**{"kafka.isolation.level": "read_committed"}))) == 3
    producer.abort_transaction(WAIT_S)


def test_what_is_read_is_bounded_by_offsets_and_times(orders: Topic) -> None:
    orders.create(2)
    orders.send(10, 0)
    orders.send(10, 1)

    def read(**options: str) -> list[tuple[int, int]]:
        return places(rows(orders.batch(**options)))

    given = json.dumps(orders.offsets(8, -2))
    assert read(startingOffsets=given, endingOffsets=json.dumps(orders.offsets(-1, 2))) == [
        (0, 8),
        (0, 9),
        (1, 0),
        (1, 1),
    ]
    assert read(startingTimestamp=str(T + 7500)) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert read(endingTimestamp=str(T + 1000)) == [(0, 0), (1, 0)]
    assert read(
        startingOffsetsByTimestamp=json.dumps(orders.offsets(T + 9000, T + 8000)),
        endingOffsetsByTimestamp=json.dumps(orders.offsets(T + 99_000, T + 9000)),
    ) == [(0, 9), (1, 8)]


def test_a_time_after_the_last_record_is_an_error_or_the_end(orders: Topic) -> None:
    orders.create(1)
    orders.send(3)
    late = {"startingTimestamp": str(T + 60_000)}
    with pytest.raises(OptionError, match=r"no record of .* is as recent as startingTimestamp; .* to latest"):
        orders.batch(**late).partitions()
    assert rows(orders.batch(startingOffsetsByTimestampStrategy="latest", **late)) == []


def test_offsets_must_name_every_partition_and_no_other(orders: Topic) -> None:
    orders.create(2)
    with pytest.raises(OptionError, match=r"startingOffsets must list every partition, and .*-1 is missing"):
        orders.batch(startingOffsets=json.dumps(orders.offsets(0))).partitions()
    with pytest.raises(OptionError, match=r"startingOffsets names .*-2, which is not read by this query"):
        orders.batch(startingOffsets=json.dumps(orders.offsets(0, 0, 0))).partitions()


def test_topics_come_by_pattern_and_partitions_by_assignment(orders: Topic) -> None:
    orders.create(2)
    orders.send(1, 0)
    orders.send(2, 1)
    assert places(rows(orders.batch(assign=json.dumps({orders.name: [1]})))) == [(1, 0), (1, 1)]
    pattern = orders.name[:-1] + "[" + orders.name[-1] + "]"
    assert len(rows(orders.batch(subscribePattern=pattern))) == 3
    middle = re.escape(orders.name[1:-1])
    assert len(rows(orders.batch(subscribePattern=middle))) == 3, "found anywhere in a name"
    assert rows(orders.batch(subscribePattern=f"^{middle}$")) == []


def test_a_query_that_begins_after_its_end_or_after_the_log_is_an_error(orders: Topic) -> None:
    orders.create(1)
    orders.send(3)
    after_the_log = {"startingOffsets": json.dumps(orders.offsets(7))}
    for options in (after_the_log, {**after_the_log, "failOnDataLoss": "false"}):
        with pytest.raises(OptionError, match=r"startingOffsets of .*-0 is offset 7, and endingOffsets is offset 3"):
            orders.batch(**options).partitions()
    mixed = {"startingOffsets": json.dumps(orders.offsets(2)), "endingTimestamp": str(T + 500)}
    with pytest.raises(OptionError, match="is offset 2, and endingTimestamp is offset 1"):
        orders.batch(**mixed).partitions()
    assert rows(orders.batch(startingOffsets=json.dumps(orders.offsets(3)))) == []


def test_earliest_and_latest_may_stand_among_times(orders: Topic) -> None:
    orders.create(3)
    for partition in range(3):
        orders.send(4, partition)
    times = {"startingOffsetsByTimestamp": json.dumps(orders.offsets(-2, T + 3000, -1))}
    assert places(rows(orders.batch(**times))) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)]
    assert orders.stream(**times).initialOffset() == orders.offsets(0, 3, -1)


def test_tasks_are_cut_as_asked_for(orders: Topic) -> None:
    orders.create(2)
    orders.send(90, 0)
    orders.send(10, 1)
    assert len(orders.batch().partitions()) == 1, "so few records are read by one"
    assert len(orders.batch(minPartitions="2").partitions()) == 2
    assert len(orders.batch(minPartitions="5").partitions()) == 5
    assert len(orders.batch(maxRecordsPerPartition="25").partitions()) == 5
    assert len(rows(orders.batch(minPartitions="7", maxRecordsPerPartition="25"))) == 100


def test_only_the_columns_that_are_asked_for_are_made(orders: Topic) -> None:
    orders.create(1)
    orders.send(2)
    assert rows(orders.batch(columns="headers,value")) == [
        {"value": b"value 0", "headers": None},
        {"value": b"value 1", "headers": [{"key": "number", "value": b"1"}]},
    ]


def test_filters_of_a_query_cut_what_is_read(orders: Topic) -> None:
    orders.create(2)
    orders.send(10, 0)
    orders.send(10, 1)

    def read(*filters: Any) -> tuple[list[tuple[int, int]], int]:
        reader = FilteringReader(orders.batch().options)
        left = list(reader.pushFilters(list(filters)))
        return places(rows(reader)), len(left)

    assert read(EqualTo(("partition",), 1), LessThan(("offset",), 2)) == ([(1, 0), (1, 1)], 0)
    assert read(EqualTo(("topic",), "another")) == ([], 0)
    late = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(T / 1000 + 9, UTC))
    assert read(late) == ([(0, 9), (1, 9)], 1)


# -- what is not there -------------------------------------------------------------------------------------------------


def test_a_missing_topic_is_named(orders: Topic) -> None:
    with pytest.raises(MissingTopicsError, match=f"the topic {orders.name} does not exist on .*: create it"):
        orders.batch().partitions()
    with pytest.raises(MissingTopicsError, match="does not exist"):
        orders.stream().initialOffset()
    orders.create(1)
    with pytest.raises(MissingTopicsError, match=f"{orders.name}-3 of assign does not exist"):
        orders.batch(assign=json.dumps({orders.name: [3]})).partitions()


def test_no_broker_is_an_error_within_the_time_given(unused_port: int) -> None:
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{unused_port}", "subscribe": "a"}
    reader = BatchReader(source_options.parse({**options, "kafka.default.api.timeout.ms": "300"}, is_streaming=False))
    with pytest.raises(TimedOutError, match=r"given up after 0.3 s: 127.0.0.1:\d+: no connection: connection refused"):
        reader.partitions()


@pytest.fixture
def unused_port() -> int:
    with Broker() as broker:
        return broker.port


def test_records_that_are_gone_are_an_error_that_says_what_to_do(orders: Topic) -> None:
    orders.create(1)
    orders.send(10)
    start = {"startingOffsets": json.dumps(orders.offsets(0))}
    orders.forget_before(6)
    with pytest.raises(
        DataLossError, match=r"does not have offset 0: it has 6 to 9, and 0 to 9 .* failOnDataLoss to false"
    ):
        rows(orders.batch(**start))
    assert places(rows(orders.batch(failOnDataLoss="false", **start))) == [(0, 6), (0, 7), (0, 8), (0, 9)]


def test_an_end_that_the_log_has_not_reached_is_an_error_or_its_end(orders: Topic) -> None:
    orders.create(1)
    orders.send(3)
    end = {"endingOffsets": json.dumps(orders.offsets(5))}
    with pytest.raises(DataLossError, match="-0 ends at 3, and endingOffsets asks for 5"):
        rows(orders.batch(**end))
    assert places(rows(orders.batch(failOnDataLoss="false", **end))) == [(0, 0), (0, 1), (0, 2)]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_goes_from_offset_to_offset(orders: Topic) -> None:
    orders.create(2)
    orders.send(3, 1)
    reader = orders.stream(startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == orders.offsets(0, 0)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == reader.reportLatestOffset() == orders.offsets(0, 3)
    assert places(rows(reader, start, end)) == [(1, 0), (1, 1), (1, 2)]
    assert rows(reader, end, end) == []


def test_a_first_batch_from_the_latest_reads_nothing_however_often_it_is_run(orders: Topic) -> None:
    orders.create(1)
    orders.send(3)
    reader = orders.stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == orders.offsets(3)
    orders.send(2)
    # Spark was stopped in that batch: it asks for its start anew, and has its end written down.
    again = orders.stream()
    assert rows(again, again.initialOffset(), end) == []
    later = again.latestOffset(end, ReadAllAvailable())
    assert places(rows(again, end, later)) == [(0, 3), (0, 4)]


def test_an_idle_stream_waits_and_wakes_when_a_record_comes(orders: Topic) -> None:
    orders.create(1)
    reader = orders.stream(idleWaitMs="20000")
    now = orders.offsets(0)
    reader.latestOffset(now, ReadAllAvailable())  # the first waits are short
    reader._idle_rounds = 12
    answers: list[object] = []
    waiting = threading.Thread(target=lambda: answers.append(reader.latestOffset(now, ReadAllAvailable())))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    began = time.monotonic()
    orders.send(1)
    waiting.join(WAIT_S)
    assert answers == [orders.offsets(1)]
    assert time.monotonic() - began < 10


def test_waits_grow_while_nothing_comes_and_begin_anew_with_a_batch(orders: Topic) -> None:
    orders.create(1)
    reader = orders.stream(idleWaitMs="1")
    now = orders.offsets(0)
    for _ in range(3):
        assert reader.latestOffset(now, ReadAllAvailable()) == now
    assert reader._idle_rounds == 3
    reader.commit(now)
    assert reader._idle_rounds == 0


def test_a_batch_is_no_larger_than_its_limit(orders: Topic) -> None:
    orders.create(2)
    orders.send(90, 0)
    orders.send(10, 1)
    reader = orders.stream(startingOffsets="earliest", maxOffsetsPerTrigger="50")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) == orders.offsets(45, 5)
    assert reader.latestOffset(start, ReadAllAvailable()) == orders.offsets(90, 10)


def test_a_batch_waits_for_enough_records_or_for_long_enough(orders: Topic) -> None:
    orders.create(1)
    now = 0.0
    parsed = source_options.parse(
        orders.options(minOffsetsPerTrigger="5", maxTriggerDelay="10s", idleWaitMs="1"), is_streaming=True
    )
    reader = StreamReader(parsed, clock=lambda: now)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    orders.send(1)
    assert reader.latestOffset(orders.offsets(0), limit) == orders.offsets(1), "the first after a start waits for none"
    start = orders.offsets(1)
    orders.send(2)
    assert reader.latestOffset(start, limit) == start
    now = 10.0
    assert reader.latestOffset(start, limit) == orders.offsets(3)
    orders.send(4)
    assert reader.latestOffset(orders.offsets(3), limit) == orders.offsets(3)
    assert reader.latestOffset(orders.offsets(3), ReadAllAvailable()) == orders.offsets(7)
    orders.send(1)
    assert reader.latestOffset(orders.offsets(3), limit) == orders.offsets(8)


def test_available_now_ends_where_the_log_ended(orders: Topic) -> None:
    orders.create(1)
    orders.send(10)
    reader = orders.stream(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    orders.send(5)
    limit = reader.getDefaultReadLimit()
    ends = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], limit))
    assert ends == [orders.offsets(0), orders.offsets(6), orders.offsets(10), orders.offsets(10)]


def test_new_partitions_are_read_from_their_beginning(orders: Topic) -> None:
    orders.create(1)
    orders.send(2)
    reader = orders.stream(startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    orders.grow(2)
    orders.send(3, 1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == orders.offsets(2, 3)
    assert places(rows(reader, start, end)) == [(1, 0), (1, 1), (1, 2)]


def test_new_topics_join_a_pattern(orders: Topic, admin: ottla.Admin) -> None:
    first, second = (Topic(f"{orders.name}-{number}", admin, orders.servers) for number in (1, 2))
    reader = orders.stream(subscribePattern=f"{orders.name}-.*", startingOffsets="earliest")
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadAllAvailable()) == {}
    first.create(1)
    first.send(1)
    end = reader.latestOffset({}, ReadAllAvailable())
    second.create(1)
    second.send(1)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert later == {**first.offsets(1), **second.offsets(1)}
    assert [row["topic"] for row in rows(reader, end, later)] == [second.name]


def test_a_deleted_topic_is_a_loss(orders: Topic) -> None:
    orders.create(1)
    orders.send(2)
    start = orders.offsets(2)
    orders.delete()
    reader = orders.stream()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {}
    with pytest.raises(DataLossError, match=f"{orders.name}-0 no longer exists; it was read up to 2"):
        reader.partitions(start, end)
    assert orders.stream(failOnDataLoss="false").partitions(start, end) == []


def test_a_topic_that_goes_between_two_questions_is_gone_and_not_waited_for(
    orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create(1)
    ask = Lookup.partitions

    def deleted_after_it_was_seen(lookup: Lookup, known: Any = ()) -> list[TopicPartition]:
        seen = ask(lookup, known)
        if seen:
            orders.delete()
        return seen

    monkeypatch.setattr(Lookup, "partitions", deleted_after_it_was_seen)
    began = time.monotonic()
    assert orders.stream().latestOffset(orders.offsets(0), ReadAllAvailable()) == {}
    assert time.monotonic() - began < 20


def test_a_topic_that_goes_before_a_task_reads_it_is_a_loss(orders: Topic) -> None:
    orders.create(1)
    orders.send(2)
    orders.delete()
    patience = {"kafka.default.api.timeout.ms": "500"}
    with pytest.raises(DataLossError, match="does not exist, and 0 to 1 were requested"):
        rows(orders.stream(**patience), orders.offsets(0), orders.offsets(2))
    assert rows(orders.stream(failOnDataLoss="false", **patience), orders.offsets(0), orders.offsets(2)) == []


def test_a_topic_that_was_made_anew_is_a_loss(orders: Topic) -> None:
    orders.create(1)
    orders.send(5)
    orders.delete()
    orders.create(1)
    orders.send(2)
    reader = orders.stream()
    end = reader.latestOffset(orders.offsets(5), ReadAllAvailable())
    with pytest.raises(DataLossError, match="went back from offset 5 to 2"):
        reader.partitions(orders.offsets(5), end)
    assert orders.stream(failOnDataLoss="false").partitions(orders.offsets(5), end) == []


def test_retention_that_overtakes_a_stream_is_a_loss(orders: Topic) -> None:
    orders.create(1)
    orders.send(10)
    orders.forget_before(7)
    with pytest.raises(DataLossError, match="does not have offset 2: it has 7 to 9, and 2 to 9 were requested"):
        rows(orders.stream(), orders.offsets(2), orders.offsets(10))
    going_on = orders.stream(failOnDataLoss="false")
    assert places(rows(going_on, orders.offsets(2), orders.offsets(10))) == [(0, 7), (0, 8), (0, 9)]
    assert rows(going_on, orders.offsets(2), orders.offsets(5)) == []


def test_unknown_options_are_named_once(orders: Topic, caplog: pytest.LogCaptureFixture) -> None:
    orders.create(1)
    reader = orders.stream(colour="red", idleWaitMs="1")
    for _ in range(2):
        reader.latestOffset(orders.offsets(0), ReadAllAvailable())
    assert [record.getMessage() for record in caplog.records if "colour" in record.getMessage()] == [
        'format("ottla") ignores these unknown options: colour'
    ]


def test_a_small_range_of_a_large_log_is_fetched_no_further_than_its_end(
    orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create(1)
    orders.send(20_000, **{"batch.size": 2000})
    sizes: list[int] = []
    take: Callable[..., Any] = Fetcher._batches

    def measured(partition: Any, progress: Any, data: memoryview, answer: Any) -> Any:
        sizes.append(len(data))
        return take(partition, progress, data, answer)

    monkeypatch.setattr(Fetcher, "_batches", staticmethod(measured))
    reader = orders.stream()
    for _ in range(2):
        assert len(rows(reader, orders.offsets(1000), orders.offsets(1100))) == 100
    assert sizes[-1] < 20_000  # the second time, the size of a record is known


def test_arrow_batches_are_as_large_as_asked_for(orders: Topic) -> None:
    orders.create(1)
    orders.send(1000, **{"batch.size": 1000})
    reader = orders.batch(rowsPerBatch="300")
    (part,) = reader.partitions()
    counts = [batch.num_rows for batch in reader.read(part)]
    assert sum(counts) == 1000
    assert all(300 <= count < 400 for count in counts[:-1])
    assert isinstance(next(reader.read(part)), pa.RecordBatch)


# -- progress as a group -----------------------------------------------------------------------------------------------


def committed(orders: Topic, group: str) -> dict[int, int]:
    found = orders._admin.committed_offsets(group)
    return {partition.partition: each.offset for partition, each in found.items()}


@pytest.mark.parametrize("option", ["group", "kafka.group.id"])
def test_a_stream_commits_what_is_done_to_its_group_and_continues_by_its_checkpoint(orders: Topic, option: str) -> None:
    orders.create(2)
    orders.send(4, 0)
    group = f"group-of-{orders.name}"
    reader = orders.stream(startingOffsets="earliest", idleWaitMs="1", **{option: group})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert committed(orders, group) == {0: 0, 1: 0}, "the batch is planned and not done"
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert committed(orders, group) == {0: 4, 1: 0}
    assert orders.stream(startingOffsets="earliest", **{option: group}).initialOffset() == start


def test_a_stream_starts_where_a_group_has_got_to_if_it_is_asked_to(orders: Topic) -> None:
    orders.create(2)
    orders.send(4, 0)
    orders.send(4, 1)
    group = f"group-of-{orders.name}"
    orders._admin.alter_offsets(group, {TopicPartition(orders.name, 1): 3})
    options = {"kafka.group.id": group, "startingOffsets": "group"}
    assert orders.stream(**options).initialOffset() == orders.offsets(0, 3)
    assert places(rows(orders.batch(**options))) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)]
    with pytest.raises(OptionError, match=r"startingOffsets is group, and there is none"):
        orders.stream(startingOffsets="group")


def test_a_group_with_members_is_not_taken_over(orders: Topic) -> None:
    orders.create(1)
    group = f"group-of-{orders.name}"
    consumer = Consumer({"bootstrap.servers": orders.servers, "group.id": group})
    consumer.subscribe([orders.name])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
    try:
        with pytest.raises(OptionError, match=rf"the group {group} has members \(1\)"):
            orders.stream(group=group).initialOffset()
        with pytest.raises(OptionError, match=rf"the group {group} has members \(1\)"):
            orders.stream(group=group).latestOffset(orders.offsets(0), ReadAllAvailable())
    finally:
        consumer.close()


def outlive(broker: Broker, caplog: pytest.LogCaptureFixture, work: Callable[[], object], sign: str) -> object:
    """What work gives that begins without a broker, which comes back once the log shows `sign`."""
    answers: list[object] = []
    broker.kill()
    try:
        with caplog.at_level(logging.WARNING):
            waiting = threading.Thread(target=lambda: answers.append(work()))
            waiting.start()
            wait_until(lambda: any(sign in message for message in caplog.messages) or not waiting.is_alive())
    finally:
        broker.restart()
    waiting.join(WAIT_S)
    (answer,) = answers
    return answer


def test_a_stream_outlasts_a_broker_that_is_away_for_longer_than_one_question_may_take(
    caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    with Broker(in_process=False) as broker, ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        orders = Topic(topic, admin, broker.bootstrap_servers)
        orders.create(1)
        orders.send(2)
        reader = orders.stream(
            idleWaitMs="1", **{"kafka.default.api.timeout.ms": "500", "fetchOffset.numRetries": "99"}
        )
        assert reader.latestOffset(orders.offsets(0), ReadAllAvailable()) == orders.offsets(2)
        later = outlive(
            broker, caplog, lambda: reader.latestOffset(orders.offsets(0), ReadAllAvailable()), "waits for its brokers"
        )
        assert later == orders.offsets(2)
        caplog.clear()
        found = outlive(
            broker, caplog, lambda: rows(reader, orders.offsets(0), orders.offsets(2)), "waits for its broker:"
        )
        assert places(found) == [(0, 0), (0, 1)]  # type: ignore[arg-type]
        workers._clients.close()


# -- small batches of streams ------------------------------------------------------------------------------------------


def planned(reader: StreamReader, start: object, end: object) -> tuple[int, list[dict[str, Any]] | None]:
    """How many tasks Spark is told of, and the rows that it gets with them: None where executors are to read."""
    question, answer = io.BytesIO(), io.BytesIO()
    for offsets in (start, end):
        text = json.dumps(offsets).encode()
        question.write(struct.pack(">i", len(text)) + text)
    question.seek(0)
    schema = spark_schema(reader.options.columns)
    sparks_runner.partitions_func(reader, OttlaDataSource({}), schema, 10_000, question, answer)
    answer.seek(0)
    (task_count,) = struct.unpack(">i", answer.read(4))
    for _ in range(task_count):
        (size,) = struct.unpack(">i", answer.read(4))
        assert isinstance(pickle.loads(answer.read(size)), Split)
    (status,) = struct.unpack(">i", answer.read(4))
    if status == sparks_runner.PREFETCHED_RECORDS_NOT_FOUND:
        return task_count, None
    if status == sparks_runner.EMPTY_PYARROW_RECORD_BATCHES:
        return task_count, []
    answer.read(4)  # what begins a stream of Arrow
    return task_count, pa.ipc.open_stream(answer).read_all().to_pylist()


def test_a_small_batch_travels_with_its_plan(orders: Topic) -> None:
    orders.create(3)
    for partition in (0, 2):
        orders.send(5, partition)
    reader = orders.stream(startingOffsets="earliest", includeHeaders="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    task_count, found = planned(reader, start, end)
    assert task_count == 1
    assert found is not None
    assert places(found) == [(0, number) for number in range(5)] + [(2, number) for number in range(5)]
    assert found == rows(reader, start, end)
    assert reader.reportLatestOffset() == end
    # A batch that is planned again after a restart, without a question for its end.
    assert planned(orders.stream(includeHeaders="true"), start, end) == (1, found)


@pytest.mark.parametrize(
    "options",
    [{"smallBatchOffsets": "9"}, {"smallBatchOffsets": "0"}, {"minPartitions": "1"}, {"maxRecordsPerPartition": "100"}],
    ids=str,
)
def test_executors_read_what_is_not_small_or_has_its_tasks_named(orders: Topic, options: dict[str, str]) -> None:
    orders.create(1)
    orders.send(10)
    reader = orders.stream(startingOffsets="earliest", **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert planned(reader, start, end) == (1, None)
    assert len(rows(reader, start, end)) == 10


def test_executors_read_records_that_are_few_and_large(orders: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SMALL_BYTES_MAX", 8 * BYTES_PER_OFFSET)  # by a guess, eight records are small
    orders.create(1)
    orders.send(8)
    assert planned(orders.stream(), orders.offsets(0), orders.offsets(8))[1] is not None
    assert planned(orders.stream(), orders.offsets(0), orders.offsets(9)) == (1, None)
    monkeypatch.setattr(reading, "SMALL_BYTES_MAX", 100)  # and known to be more
    reading._sizes.clear()
    monkeypatch.setattr(reading, "BYTES_PER_OFFSET", 0)
    assert planned(orders.stream(), orders.offsets(0), orders.offsets(8)) == (1, None)


def test_a_small_batch_whose_records_are_gone_is_left_to_the_executors_which_say_so(orders: Topic) -> None:
    orders.create(2)
    orders.send(5, 0)
    orders.send(5, 1)
    orders.forget_before(3, 1)
    start, end = orders.offsets(0, 0), orders.offsets(5, 5)
    assert planned(orders.stream(), start, end) == (1, None)
    with pytest.raises(DataLossError, match=f"{orders.name}-1 does not have offset 0"):
        rows(orders.stream(), start, end)
    found = rows(orders.stream(failOnDataLoss="false"), start, end)
    assert places(found) == [*((0, number) for number in range(5)), (1, 3), (1, 4)]


def test_a_small_batch_of_aborted_records_is_empty(orders: Topic) -> None:
    orders.create(1)
    producer = Producer({"bootstrap.servers": orders.servers, "transactional.id": orders.name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(orders.name, b"never", partition=0)
    producer.flush(WAIT_S)
    producer.abort_transaction()
    reader = orders.stream(**{"kafka.isolation.level": "read_committed"})
    assert planned(reader, orders.offsets(0), orders.offsets(2)) == (1, [])


def test_small_ranges_of_many_partitions_are_one_request(orders: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.create(20)
    for partition in range(20):
        orders.send(3, partition)
    asked: list[int] = []
    ask = Fetcher._ask

    async def counted(fetcher: Fetcher, node_id: int, partitions: list[TopicPartition]) -> object:
        asked.append(len(partitions))
        return await ask(fetcher, node_id, partitions)

    monkeypatch.setattr(Fetcher, "_ask", counted)
    reader = orders.stream(smallBatchOffsets="0")
    found = rows(reader, orders.offsets(*[0] * 20), orders.offsets(*[3] * 20))
    assert places(found) == [(partition, offset) for partition in range(20) for offset in range(3)]
    assert asked == [20]
