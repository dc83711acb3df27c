"""What a task of the sink waits for, with a broker beside it and without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from ottla.spark.sink_options import SinkOptions
from ottla.spark.workers import client_for
from ottla.spark.writing import SENDINGS_MAX, WriteError, _producer_of, _Task, client_options, write
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, list_offsets

TOPICS = ["first", "second", "third"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def rows(topics: list[str], value: bytes = b"v") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"topic": topics, "value": [value] * len(topics)})


def end_offset(broker: Broker, topic: str) -> int:
    with RawClient(broker.bootstrap_servers) as client:
        return int(client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset)


@pytest.mark.parametrize("refusing", range(len(TOPICS)))
def test_a_write_fails_whichever_of_its_requests_does(broker: Broker, refusing: int) -> None:
    topics = [f"{name}-{refusing}" for name in TOPICS]
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic(topics[refusing], config={"max.message.bytes": "100"}), 7)
    options = SinkOptions(broker.bootstrap_servers, is_idempotent=False)
    with pytest.raises(WriteError, match=f"cannot write to the topic {topics[refusing]}: .*max.message.bytes"):
        write(options, iter([rows(topics, b"x" * 1000)]))


def test_all_is_acknowledged_when_a_write_returns(broker: Broker) -> None:
    topics = [f"topic-{number}" for number in range(10)]
    options = SinkOptions(broker.bootstrap_servers, linger_ms=0)
    for written in range(1, 4):
        assert write(options, iter([rows(topics)])) == len(topics)
        assert [end_offset(broker, topic) for topic in topics] == [written] * len(topics)


def test_a_task_is_ahead_of_its_brokers_by_a_few_requests_only(broker: Broker) -> None:
    options = SinkOptions(broker.bootstrap_servers, topic="bounded", linger_ms=0)
    with client_for(broker.bootstrap_servers, client_options(options)) as client:
        task = _Task(client, options, _producer_of(client, options))
        for _ in range(3 * SENDINGS_MAX):
            task.add(pa.RecordBatch.from_pydict({"value": [b"v"] * 10}))
            assert len(task._sendings) <= SENDINGS_MAX
        task.finish()
    assert end_offset(broker, "bounded") == 30 * SENDINGS_MAX
