"""Queries that nobody thought of: generated histories and options, through Spark's own connector and through ours.

Each seed makes topics with a history (records in several partitions, transactions that were committed, aborted or are
left open, records that were deleted) and queries with drawn options. Both connectors must give the same rows, or both
must fail. OTTLA_SPARK_QUERIES=200 draws more of them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.testing.broker import Broker

pytestmark = pytest.mark.usefixtures("connector")

QUERIES = int(os.environ.get("OTTLA_SPARK_QUERIES", "20"))
QUERIES_PER_HISTORY = 10
STREAMS = max(2, QUERIES // 15)
FORMATS = ("kafka", "ottla")
START_MS = 1_700_000_000_000
WAIT_S = 60


@dataclass
class History:
    """A topic as it was written: offsets in use and times, by partition."""

    topic: str
    ends: list[int]
    starts: list[int]
    last_ms: int = START_MS
    steps: list[str] = field(default_factory=list)


def written(rng: random.Random, servers: str, topic: str, create_topic: Callable[..., None]) -> History:
    partitions = rng.randint(1, 3)
    create_topic(servers, topic, partitions)
    history = History(topic, [0] * partitions, [0] * partitions)
    plain = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    admin = AdminClient({"bootstrap.servers": servers})
    for number in range(rng.randint(2, 6)):
        partition = rng.randrange(partitions)
        kind = rng.choice(["plain", "plain", "commit", "abort", "delete"])
        count = rng.randint(1, 30)
        history.steps.append(f"{kind} {count} in {partition}")
        if kind == "delete":
            before = rng.randint(history.starts[partition], history.ends[partition])
            deleted = admin.delete_records([TopicPartition(topic, partition, before)])
            for future in deleted.values():
                history.starts[partition] = future.result(WAIT_S).low_watermark
            continue
        producer = plain
        if kind != "plain":
            producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-{number}"})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
        for _ in range(count):
            history.last_ms += rng.randint(0, 2000)
            key = rng.choice([None, b"key %d" % rng.randrange(5)])
            headers: Any = rng.choice([None, [("name", b"value"), ("empty", None)]])
            producer.produce(topic, b"%d" % history.last_ms, key, partition, timestamp=history.last_ms, headers=headers)
        assert producer.flush(WAIT_S) == 0
        if kind == "commit":
            producer.commit_transaction(WAIT_S)
        elif kind == "abort":
            producer.abort_transaction(WAIT_S)
        history.ends[partition] += count + (kind != "plain")
    return history


def drawn_offsets(rng: random.Random, history: History) -> str:
    """An offset for each partition; now and then one is missing, too many, or beyond the log."""
    places = {}
    for number, (start, end) in enumerate(zip(history.starts, history.ends, strict=True)):
        usual = [-2, start, end, rng.randint(start, end), rng.randint(start, end)]
        places[str(number)] = rng.choice([*usual, -1, end + 4] if rng.random() < 0.2 else usual)
    if rng.random() < 0.05:
        places[str(len(places))] = 0
    return json.dumps({history.topic: places})


def drawn_times(rng: random.Random, history: History) -> str:
    span = history.last_ms - START_MS
    places = {
        str(number): rng.choice(
            [START_MS + rng.randint(-1000, span + 1000), START_MS, -2 if rng.random() < 0.2 else START_MS]
        )
        for number in range(len(history.ends))
    }
    return json.dumps({history.topic: places})


def drawn_bound(rng: random.Random, history: History, side: str) -> dict[str, str]:
    kind = rng.choice(["none", "name", "offsets", "offsets", "times", "time"])
    if kind == "name":
        return {f"{side}Offsets": rng.choice(["earliest", "latest"])}
    if kind == "offsets":
        return {f"{side}Offsets": drawn_offsets(rng, history)}
    if kind == "times":
        return {f"{side}OffsetsByTimestamp": drawn_times(rng, history)}
    if kind == "time":
        return {f"{side}Timestamp": str(rng.randint(START_MS - 1000, history.last_ms + 1000))}
    return {}


def drawn_topics(rng: random.Random, history: History) -> dict[str, str]:
    topic = history.topic
    kind = rng.choice(["subscribe", "subscribe", "assign", "pattern"])
    if kind == "assign":
        chosen = rng.sample(range(len(history.ends)), rng.randint(1, len(history.ends)))
        return {"assign": json.dumps({topic: chosen})}
    if kind == "pattern":
        return {"subscribePattern": rng.choice([topic, topic[3:], f"^{topic}$", topic[:-1] + ".$", f"{topic}-none"])}
    return {"subscribe": topic}


def drawn_query(rng: random.Random, history: History) -> dict[str, str]:
    options = drawn_topics(rng, history)
    options |= drawn_bound(rng, history, "starting") | drawn_bound(rng, history, "ending")
    maybe: dict[str, Callable[[], str]] = {
        "failOnDataLoss": lambda: "false",
        "startingOffsetsByTimestampStrategy": lambda: "latest",
        "includeHeaders": lambda: "true",
        "minPartitions": lambda: str(rng.randint(1, 8)),
        "maxRecordsPerPartition": lambda: str(rng.randint(1, 20)),
        "kafka.isolation.level": lambda: "read_committed",
    }
    return options | {name: draw() for name, draw in maybe.items() if rng.random() < 0.3}


def outcome(spark: SparkSession, form: str, servers: str, options: dict[str, str]) -> object:
    """The rows in order, or that there was an error."""
    try:
        frame = spark.read.format(form).option("kafka.bootstrap.servers", servers).options(**options).load()
        return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))
    except (PySparkException, Py4JError) as error:
        return f"fails: {type(error).__name__}"


@pytest.mark.parametrize("seed", range((QUERIES + QUERIES_PER_HISTORY - 1) // QUERIES_PER_HISTORY))
def test_generated_queries_give_the_same_rows_or_fail_alike(
    spark: SparkSession, broker: Broker, topic: str, seed: int, create_topic: Callable[..., None]
) -> None:
    rng = random.Random(seed)
    servers = broker.bootstrap_servers
    history = written(rng, servers, topic, create_topic)
    differences = []
    for _ in range(QUERIES_PER_HISTORY):
        options = drawn_query(rng, history)
        official, ours = (outcome(spark, form, servers, options) for form in FORMATS)
        both_fail = isinstance(official, str) and isinstance(ours, str)
        if official != ours and not both_fail:
            differences.append(f"{options}\n  official: {str(official)[:300]}\n  ours: {str(ours)[:300]}")
    assert not differences, f"{history}\n" + "\n".join(differences)


@pytest.mark.parametrize("seed", range(STREAMS))
def test_generated_streams_read_the_same_and_leave_the_same_offsets(
    spark: SparkSession, broker: Broker, topic: str, seed: int, tmp_path: Path, create_topic: Callable[..., None]
) -> None:
    rng = random.Random(1000 + seed)
    servers = broker.bootstrap_servers
    history = written(rng, servers, topic, create_topic)
    options = {"subscribe": topic, "startingOffsets": rng.choice(["earliest", drawn_offsets(rng, history)])}
    options |= {"maxOffsetsPerTrigger": str(rng.randint(5, 40)), "failOnDataLoss": "false"}
    options |= {"kafka.isolation.level": rng.choice(["read_committed", "read_uncommitted"])}
    found: dict[str, Any] = {}
    for form in FORMATS:
        table, checkpoint = str(tmp_path / f"{form}-table"), tmp_path / f"{form}-checkpoint"
        stream = spark.readStream.format(form).option("kafka.bootstrap.servers", servers).options(**options).load()
        writer = (
            stream.writeStream.format("parquet").option("path", table).option("checkpointLocation", str(checkpoint))
        )
        try:
            assert writer.trigger(availableNow=True).start().awaitTermination(2 * WAIT_S)
        except PySparkException as error:
            found[form] = f"fails: {type(error).__name__}"
            continue
        rows = sorted(
            (tuple(row) for row in spark.read.parquet(table).collect()), key=lambda row: (row[2], row[3], row[4])
        )
        last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name), default=None)
        end = last and json.loads(last.read_text().splitlines()[-1])
        found[form] = rows, end
    assert found["kafka"] == found["ottla"], f"{history}\n{options}"
