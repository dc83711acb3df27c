"""What a pipeline on Spark does beside reading and writing: exactly once, decoding, tables. Beside Spark's own parts.

    python benchmarks/run.py --only pipelines

One session as in spark.py, with Spark's connector and its Avro functions beside ours, and everybody in turns. Streams
are bounded (`availableNow`), so that each ends by itself and leaves no transaction open. The sinks get their rows from
Parquet files, which Java reads: what differs between them is the sink. Ottla has two-phase transactions on, which such
pipelines should have.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import ottla
import peers
from ottla.spark.decode import Avro, Json, decode
from ottla.spark.tables import topic_to_parquet, topic_to_table
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.spark_connector import AVRO_VERSION, CONNECTOR_VERSION
from spark import PARTITIONS, VALUE_BYTES, ProcessTree, costs_of, fill, into_nothing, open_session
from turns import Plan, Work, take_turns
from wire import Peer

SETTINGS = {"transaction.two.phase.commit.enable": "true"}
BATCH_ROWS = 100_000
BATCHES = 8
FIRST_BATCHES = 2  # of each query: it starts its workers and introduces its producers
SMALL_BATCH, SMALL_BATCHES, SMALL_FIRST = 100, 30, 5
DECODED_ROWS = 1_000_000
TABLE_ROWS = 1_000_000
WAIT_S = 600

OFFICIAL, OURS, EXACTLY_ONCE = "official", "ours", "exactly-once"
ORDER = "number bigint, customer string, article string, cents bigint, at timestamp"
ORDER_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "article", "type": ["null", "string"]},
            {"name": "cents", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
)


def orders(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, PARTITIONS).select(
        F.col("id").alias("number"),
        F.expr("concat('customer-', id % 1000)").alias("customer"),
        F.expr("if(id % 10 = 0, null, concat('article-', id % 77))").alias("article"),
        F.expr("id * 7 % 10000").alias("cents"),
        F.expr("timestamp_millis(1700000000000 + id)").alias("at"),
    )


# -- the sinks ---------------------------------------------------------------------------------------------------------


@contextmanager
def finished(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """A query that has read everything and has ended."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(WAIT_S):
                raise RuntimeError(f"a query of the benchmark is not done after {WAIT_S} s")
            yield query
        finally:
            query.stop()


def batch_ms(query: StreamingQuery, first: int) -> float:
    """The median of its batches, from trigger to commit, without the first ones."""
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    return statistics.median(float(each["durationMs"]["triggerExecution"]) for each in progress[first:])


def sink(rows: DataFrame, peer: Peer, how: str, topic: str) -> DataStreamWriter:
    writer = rows.writeStream.format("kafka" if how == OFFICIAL else "ottla")
    writer = writer.option("kafka.bootstrap.servers", peer.bootstrap).option("topic", topic)
    return writer.option("delivery", "exactly-once") if how == EXACTLY_ONCE else writer


def write_files(spark: SparkSession, home: Path, batches: int) -> str:
    """Files of which two are a batch."""
    per_file = BATCH_ROWS // PARTITIONS
    rows = spark.range(0, batches * BATCH_ROWS, 1, batches * PARTITIONS).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        f"CAST(rpad(CAST(id AS STRING), {VALUE_BYTES}, 'x') AS BINARY) AS value",
    )
    target = str(home / "rows")
    rows.write.option("maxRecordsPerFile", per_file).parquet(target)
    return target


def bulk_round(spark: SparkSession, tree: ProcessTree, peer: Peer, how: str, path: str) -> dict[str, float]:
    rows = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", PARTITIONS).parquet(path)
    before = tree.cpu_s()
    writer = rows.writeStream.format("noop") if how == "nothing" else sink(rows, peer, how, "bench-batches")
    with finished(writer) as query:
        batches = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        assert set(batches) == {BATCH_ROWS}, f"batches of {set(batches)} rows"
        cpu = (tree.cpu_s() - before) / sum(batches) * 1e6
        return {"batch_ms": batch_ms(query, FIRST_BATCHES), "spark_cpu_s_per_million_rows": cpu}


def small_round(spark: SparkSession, peer: Peer, how: str) -> dict[str, float]:
    source = spark.readStream.format("kafka" if how == OFFICIAL else "ottla").option("subscribe", "bench-hundreds")
    source = source.option("kafka.bootstrap.servers", peer.bootstrap).option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", str(SMALL_BATCH)).load().select("key", "value")
    with finished(sink(rows, peer, how, "bench-hundreds-out")) as query:
        return {"micro_batch_ms": batch_ms(query, SMALL_FIRST)}


# -- decoding ----------------------------------------------------------------------------------------------------------


def decoding(spark: SparkSession, rows: int) -> dict[str, dict[str, Callable[[], None]]]:
    """Bytes that are in memory into columns that are thrown away."""
    made = orders(spark, rows).select(F.struct("*").alias("row"))
    values = {
        "json": made.select(F.to_json("row").cast("binary").alias("value")),
        "avro": made.select(to_avro("row", ORDER_AVRO).alias("value")),
    }
    for frame in values.values():
        frame.persist().count()
    json_text = F.col("value").cast("string")
    frames = {
        "json": {
            OURS: decode(values["json"], Json(schema=ORDER)).select("decoded.*", "error"),
            OFFICIAL: values["json"].select(F.from_json(json_text, ORDER).alias("decoded")).select("decoded.*"),
        },
        "avro": {
            OURS: decode(values["avro"], Avro(schema=ORDER_AVRO)).select("decoded.*", "error"),
            OFFICIAL: values["avro"]
            .select(from_avro("value", ORDER_AVRO, {"mode": "PERMISSIVE"}).alias("decoded"))
            .select("decoded.*"),
        },
    }
    return {
        form: {
            **{name: partial(into_nothing, frame) for name, frame in works.items()},
            "nothing": partial(into_nothing, values[form]),
        }
        for form, works in frames.items()
    }


# -- tables ------------------------------------------------------------------------------------------------------------


def fill_with_orders(spark: SparkSession, peer: Peer, topic: str, count: int) -> None:
    with ottla.Admin(bootstrap_servers=peer.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS)
    values = orders(spark, count).select(F.to_json(F.struct("*")).alias("value"))
    writer = values.write.format("ottla").option("kafka.bootstrap.servers", peer.bootstrap)
    writer.option("topic", topic).mode("append").save()


def into_table(spark: SparkSession, peer: Peer, how: str, topic: str) -> None:
    """Everything that is in the topic, decoded, in one batch."""
    servers = {"kafka.bootstrap.servers": peer.bootstrap}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
        target = f"{home}/table"
        if how == OFFICIAL:
            source = spark.readStream.format("kafka").options(**servers, subscribe=topic, startingOffsets="earliest")
            decoded = source.load().withColumn("decoded", F.from_json(F.col("value").cast("string"), ORDER))
            rows = decoded.select("decoded.*", "topic", "partition", "offset", "timestamp")
            with finished(rows.writeStream.format("parquet").option("path", target)):
                return
        start = topic_to_table if how == "Delta" else topic_to_parquet
        query = start(
            spark,
            topic,
            target,
            servers,
            checkpoint=f"{home}/checkpoint",
            how=Json(schema=ORDER),
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(WAIT_S)


# -- all of it ---------------------------------------------------------------------------------------------------------


def measure(
    spark: SparkSession, tree: ProcessTree, brokers: Mapping[str, Peer], home: Path, plan: Plan, scale: float
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    is_whole = scale == 1.0
    sinks = (EXACTLY_ONCE, OURS, OFFICIAL)
    print("  sinks, batches of 100,000 rows", flush=True)
    for peer in brokers.values():
        fill(peer, "bench-batches", PARTITIONS)
        fill(peer, "bench-hundreds", SMALL_BATCH * SMALL_BATCHES)
        fill(peer, "bench-hundreds-out", PARTITIONS)
    path = write_files(spark, home, BATCHES if is_whole else FIRST_BATCHES + 1)
    works: dict[str, Work] = {
        f"{how} on {name}": partial(bulk_round, spark, tree, peer, how, path)
        for name, peer in brokers.items()
        for how in sinks
    }
    works["nothing"] = partial(bulk_round, spark, tree, brokers["ottla"], "nothing", path)
    results["sink_100k"] = take_turns(works, plan)
    print("  sinks, batches of 100 rows", flush=True)
    results["sink_100"] = take_turns(
        {f"{how} on {name}": partial(small_round, spark, peer, how) for name, peer in brokers.items() for how in sinks},
        plan,
    )
    ours = brokers["ottla"]
    rows = int(DECODED_ROWS * scale)
    for form, decoders in decoding(spark, rows).items():
        print(f"  decode {form}", flush=True)
        results[f"decode_{form}"] = take_turns(
            {name: partial(costs_of, work, rows, tree, ours) for name, work in decoders.items()}, plan
        )
    spark.catalog.clearCache()
    print("  topic to table", flush=True)
    rows = int(TABLE_ROWS * scale)
    fill_with_orders(spark, ours, "bench-orders", rows)
    results["table"] = take_turns(
        {
            how: partial(costs_of, partial(into_table, spark, ours, how, "bench-orders"), rows, tree, ours)
            for how in ("Delta", "Parquet", OFFICIAL)
        },
        plan,
    )
    results["ratios"] = ratios(results)
    return results


def ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Ours divided by what it is compared with, medians of times on Ottla: less is better."""

    def ratio(work: str, what: str, ours: str, theirs: str) -> float:
        return float(results[work][ours][what]["median"] / results[work][theirs][what]["median"])

    seconds, cpu = "s_per_million_rows", "spark_cpu_s_per_million_rows"
    exact, at_least, official = (f"{how} on ottla" for how in (EXACTLY_ONCE, OURS, OFFICIAL))
    return {
        "exactly_once_over_official": ratio("sink_100k", "batch_ms", exact, official),
        "exactly_once_over_at_least_once": ratio("sink_100k", "batch_ms", exact, at_least),
        "exactly_once_over_official_cpu": ratio("sink_100k", cpu, exact, official),
        "small_exactly_once_over_official": ratio("sink_100", "micro_batch_ms", exact, official),
        **{
            f"decode_{form}_{what}": ratio(f"decode_{form}", cost, OURS, OFFICIAL)
            for form in ("json", "avro")
            for what, cost in (("time", seconds), ("cpu", cpu))
        },
        "delta_over_official_parquet": ratio("table", seconds, "Delta", OFFICIAL),
        "delta_over_official_parquet_cpu": ratio("table", cpu, "Delta", OFFICIAL),
    }


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    if missing := missing_programs():
        print(f"  left out: Spark and its connector need {missing}")
        return {}
    plan = plan or Plan()
    results: dict[str, Any] = {"connector_version": CONNECTOR_VERSION, "avro_version": AVRO_VERSION}
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        open_session(home) as (spark, tree),
        peers.ottla(SETTINGS) as ours,
        peers.kafka() as theirs,
    ):
        results["spark_version"] = spark.version
        results.update(measure(spark, tree, {"ottla": ours, "kafka": theirs}, Path(home), plan, scale))
    results["seconds"] = time.monotonic() - started
    return results


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
