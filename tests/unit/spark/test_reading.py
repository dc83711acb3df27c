"""How a task reads its range where the log is not as it was planned, with a broker beside it and without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.spark import options as source_options
from ottla.spark import reading
from ottla.spark.losses import DataLossError
from ottla.spark.offsets import OffsetRange
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.waiting import wait_until

COUNT = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def options(broker: Broker, *, fails_on_loss: bool) -> source_options.SourceOptions:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "any",
        "failOnDataLoss": "true" if fails_on_loss else "false",
        "kafka.fetch.max.wait.ms": "20",
    }
    return source_options.parse(given, is_streaming=False)


def new_topic(client: RawClient, name: str, count: int = COUNT) -> str:
    client.ask(create_topic(name), 7)
    for number in range(count):
        client.ask(produce(name, one_batch(b"%d" % number)), 9)
    return name


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [int(value.as_py()) for each in batches for value in each.column("value")]


@pytest.mark.parametrize("gone", [1, 4, COUNT])
def test_what_is_left_of_a_range_whose_beginning_is_gone_is_read(broker: Broker, client: RawClient, gone: int) -> None:
    topic = new_topic(client, f"gone-{gone}")
    trim = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=gone)])
    client.ask(DeleteRecordsRequest(topics=[trim], timeout_ms=1000), 2)
    part = OffsetRange(TopicPartition(topic, 0), 0, COUNT)
    assert numbers(reading.read_range(part, options(broker, fails_on_loss=False))) == list(range(gone, COUNT))
    with pytest.raises(DataLossError):
        numbers(reading.read_range(part, options(broker, fails_on_loss=True)))


class Clock:
    """In place of the module `time`: stands still unless it is moved, and counts how often it was looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now


def test_patience_with_a_log_that_is_too_short_begins_anew_with_each_record(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader gets its records bit by bit: in all longer than is waited for, never as long without any."""
    topic = new_topic(client, "growing", 1)
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    part = OffsetRange(TopicPartition(topic, 0), 0, COUNT)
    read = reading._fetched(part, options(broker, fails_on_loss=True))
    assert next(read).start_offset == 0

    def grow(offset: int) -> None:
        looks = clock.looks
        clock.now += reading.SHORT_LOG_PATIENCE_S * 0.6
        wait_until(lambda: clock.looks >= looks + 3)  # it has asked in vain, and thought about it
        with RawClient(broker.bootstrap_servers) as writer:
            writer.ask(produce(topic, one_batch(b"%d" % offset)), 9)

    for offset in range(1, COUNT):
        growing = threading.Thread(target=grow, args=(offset,), daemon=True)
        growing.start()
        assert next(read).start_offset == offset
        growing.join()
    assert list(read) == []
