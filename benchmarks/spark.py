"""Topics in and out of Spark: our source and sink beside Spark's own connector, on Ottla and on Apache Kafka.

One session, one machine, one run, with both brokers there. Both formats on both brokers read and write the same topics
in turns, once Java is warm, see turns.py. CPU is that of the driver's Java with everything it has started, Python
workers and their daemons, and apart from it that of the broker: on a small machine wall time measures both together.
The connector is the newest that runs on this Spark, see `ottla.testing.spark_connector`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
import peers
from ottla.spark import class_archive
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.spark_connector import CONNECTOR_VERSION, avro_jars, connector_jars
from turns import Plan, Work, take_turns
from wire import Peer

RECORDS = 2_000_000
VALUE_BYTES = 100
PARTITIONS = 2
TICKS = os.sysconf("SC_CLK_TCK")
# What the results call them.
FORMATS = {"ours": "ottla", "official": "kafka"}
SMALL_BATCH = 100
SMALL_BATCHES, SMALL_WARM_UP = 40, 10
IDLE_SETTLE_S, IDLE_S = 5.0, 20.0
WAIT_S = 300
SESSION_STARTS = 3


# -- CPU of a tree of processes ----------------------------------------------------------------------------------------


def stat_of(pid: int) -> tuple[int, float] | None:
    """Parent and CPU seconds of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS


class ProcessTree:
    """A process and whatever it has started, now or before."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[int, float] = {}

    def cpu_s(self) -> float:
        """CPU seconds of all of them. One that ended counts with what it had when it was last seen."""
        stats = {int(name): stat for name in os.listdir("/proc") if name.isdecimal() and (stat := stat_of(int(name)))}
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in stats.items():
            children.setdefault(parent, []).append(pid)
        waiting = [self._root]
        while waiting:
            pid = waiting.pop()
            if pid in stats:
                self._seen[pid] = stats[pid][1]
            waiting += children.get(pid, [])
        return sum(self._seen.values())


# -- the session -------------------------------------------------------------------------------------------------------

START = """
import sys, time
started = time.perf_counter()
if sys.argv[1] == "ours":
    import ottla.spark
    spark = ottla.spark.session("start", "local[2]")
else:
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[2]").getOrCreate()
seconds = time.perf_counter() - started
with open(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat") as file:
    fields = file.read().rsplit(")", 1)[1].split()
print(seconds, int(fields[11]) + int(fields[12]))
"""


def session_start(rounds: int) -> dict[str, Any]:
    """From nothing imported to a session, in turns; ours with the archive of classes."""

    def start(kind: str) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-c", START, kind], capture_output=True, text=True, check=True, timeout=WAIT_S
        )
        seconds, ticks = done.stdout.split()[-2:]
        return {"seconds": float(seconds), "java_cpu_s": int(ticks) / TICKS}

    assert class_archive.find_or_make() is not None
    for kind in ("ours", "plain"):
        start(kind)
    return take_turns({kind: partial(start, kind) for kind in ("ours", "plain")}, Plan(rounds, warm_up_s=0.0))


@contextlib.contextmanager
def open_session(home: str) -> Iterator[tuple[SparkSession, ProcessTree]]:
    config = {
        "spark.jars": f"{connector_jars()},{avro_jars()}",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": home,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": str(SMALL_BATCHES + SMALL_WARM_UP + 100),
    }
    spark = ottla.spark.session("bench", f"local[{PARTITIONS}]", config=config)
    spark.sparkContext.setLogLevel("OFF")  # every stopped query would leave a trace of its last batch
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    try:
        yield spark, ProcessTree(gateway.proc.pid)
    finally:
        spark.stop()


# -- loads -------------------------------------------------------------------------------------------------------------


def costs_of(run_once: Callable[[], None], rows: int, spark_tree: ProcessTree, peer: Peer) -> dict[str, float]:
    """Time and CPU for a million rows."""
    before = time.perf_counter(), spark_tree.cpu_s(), peer.cpu_s()
    run_once()
    after = time.perf_counter(), spark_tree.cpu_s(), peer.cpu_s()
    seconds, spark_cpu, broker_cpu = ((late - early) / rows * 1e6 for late, early in zip(after, before, strict=True))
    return {
        "s_per_million_rows": seconds,
        "spark_cpu_s_per_million_rows": spark_cpu,
        "broker_cpu_s_per_million_rows": broker_cpu,
    }


def in_turns(
    work: Callable[[Peer], dict[str, Callable[[], None]]],
    brokers: Mapping[str, Peer],
    rows: int,
    tree: ProcessTree,
    plan: Plan,
) -> dict[str, Any]:
    """Both formats on both brokers, in one warm session, round by round."""
    works: dict[str, Work] = {
        f"{form} on {name}": partial(costs_of, run_once, rows, tree, peer)
        for name, peer in brokers.items()
        for form, run_once in work(peer).items()
    }
    return take_turns(works, plan)


def fill(peer: Peer, topic: str, count: int) -> None:
    peers.fill(peer.bootstrap, topic, partitions=PARTITIONS, value_bytes=VALUE_BYTES, count=count)


def into_nothing(frame: DataFrame) -> None:
    """Makes Spark produce every row and column."""
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: SparkSession, peer: Peer, topic: str) -> dict[str, Callable[[], None]]:
    def of_format(form: str) -> Callable[[], None]:
        source = spark.read.format(form).option("kafka.bootstrap.servers", peer.bootstrap).option("subscribe", topic)
        return lambda: into_nothing(source.load())

    return {name: of_format(form) for name, form in FORMATS.items()}


def writing(spark: SparkSession, peer: Peer, topic: str, rows: int) -> dict[str, Callable[[], None]]:
    """`nothing` is what making the rows costs, which both formats pay too: the floor of this row."""
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        f"CAST(rpad(CAST(id AS STRING), {VALUE_BYTES}, 'x') AS BINARY) AS value",
    )

    def of_format(form: str) -> Callable[[], None]:
        writer = frame.write.format(form).option("kafka.bootstrap.servers", peer.bootstrap).option("topic", topic)
        return lambda: writer.mode("append").save()

    return {**{name: of_format(form) for name, form in FORMATS.items()}, "nothing": lambda: into_nothing(frame)}


@contextlib.contextmanager
def stream(spark: SparkSession, peer: Peer, form: str, topic: str, **options: str) -> Iterator[StreamingQuery]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as checkpoint:
        source = spark.readStream.format(form).option("kafka.bootstrap.servers", peer.bootstrap)
        frame = source.option("subscribe", topic).options(startingOffsets="earliest", **options).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def wait_for_batches(query: StreamingQuery, count: int) -> Sequence[Mapping[str, Any]]:
    deadline = time.monotonic() + WAIT_S
    while len(progress := [each for each in query.recentProgress if each["numInputRows"]]) < count:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(progress)} of {count} batches within {WAIT_S} s")
        time.sleep(0.2)
    return progress[:count]


def micro_batch_ms(spark: SparkSession, peer: Peer, form: str, topic: str, batches: int, warm_up: int) -> float:
    """The median of a small batch, from its trigger to its commit."""
    with stream(spark, peer, form, topic, maxOffsetsPerTrigger=str(SMALL_BATCH)) as query:
        progress = wait_for_batches(query, warm_up + batches)
    return statistics.median(float(each["durationMs"]["triggerExecution"]) for each in progress[warm_up:])


def idle_percent(
    spark: SparkSession, tree: ProcessTree, peer: Peer, form: str, topic: str, seconds: float
) -> dict[str, float]:
    """CPU of Spark and of the broker while a query waits for data, in percent of a core."""
    with stream(spark, peer, form, topic) as query:
        wait_for_batches(query, 1)
        time.sleep(min(IDLE_SETTLE_S, seconds))
        before = tree.cpu_s(), peer.cpu_s()
        time.sleep(seconds)
        after = tree.cpu_s(), peer.cpu_s()
    spark_share, broker_share = ((late - early) / seconds * 100 for late, early in zip(after, before, strict=True))
    return {"spark": spark_share, "broker": broker_share}


# -- all of it ---------------------------------------------------------------------------------------------------------


def micro_batches(
    spark: SparkSession, brokers: Mapping[str, Peer], plan: Plan, batches: int, warm_up: int
) -> dict[str, Any]:
    """Each round is a query of its own, whose first batches do not count."""
    works: dict[str, Work] = {}
    for name, peer in brokers.items():
        fill(peer, "bench-small", SMALL_BATCH * (warm_up + batches + 1))
        for format_name, form in FORMATS.items():
            works[f"{format_name} on {name}"] = partial(small_batch, spark, peer, form, batches, warm_up)
    return take_turns(works, plan)


def small_batch(spark: SparkSession, peer: Peer, form: str, batches: int, warm_up: int) -> dict[str, float]:
    return {"micro_batch_ms": micro_batch_ms(spark, peer, form, "bench-small", batches, warm_up)}


def measure(
    spark: SparkSession, tree: ProcessTree, brokers: Mapping[str, Peer], records: int, plan: Plan, scale: float
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    print("  source", flush=True)
    for peer in brokers.values():
        fill(peer, "bench-read", records)
        fill(peer, "bench-write", PARTITIONS)  # makes the topic
    results["source"] = in_turns(lambda peer: reading(spark, peer, "bench-read"), brokers, records, tree, plan)
    print("  sink", flush=True)
    results["sink"] = in_turns(lambda peer: writing(spark, peer, "bench-write", records), brokers, records, tree, plan)
    print("  small batches", flush=True)
    small = (SMALL_BATCHES, SMALL_WARM_UP) if scale == 1.0 else (5, 2)
    results["micro_batch"] = micro_batches(spark, brokers, plan, *small)
    print("  idle queries", flush=True)
    seconds = IDLE_S if scale == 1.0 else 1.0
    results["idle_percent_of_a_core"] = {
        f"{format_name} on {name}": idle_percent(spark, tree, peer, form, "bench-small", seconds)
        for name, peer in brokers.items()
        for format_name, form in FORMATS.items()
    }
    results["ours_over_official"] = {name: ratios(results, name) for name in brokers}
    return results


def ratios(results: dict[str, Any], broker: str) -> dict[str, float]:
    """Ours divided by theirs, medians: more is better for rows per second, less for the others."""

    def ratio(work: str, what: str) -> float:
        ours, official = (results[work][f"{name} on {broker}"][what]["median"] for name in FORMATS)
        return float(ours / official)

    compared = {}
    for work in ("source", "sink"):
        compared[f"{work}_rows_per_s"] = 1 / ratio(work, "s_per_million_rows")
        compared[f"{work}_cpu"] = ratio(work, "spark_cpu_s_per_million_rows")
    compared["micro_batch_ms"] = ratio("micro_batch", "micro_batch_ms")
    return compared


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    if missing := missing_programs():
        print(f"  left out: Spark and its connector need {missing}")
        return {}
    plan, records = plan or Plan(), int(RECORDS * scale)
    results: dict[str, Any] = {"connector_version": CONNECTOR_VERSION, "records": records}
    print("  session start", flush=True)
    results["session_start"] = session_start(SESSION_STARTS if scale == 1.0 else 1)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        open_session(home) as (spark, tree),
        peers.ottla() as ours,
        peers.kafka() as theirs,
    ):
        results["spark_version"] = spark.version
        results.update(measure(spark, tree, {"ottla": ours, "kafka": theirs}, records, plan, scale))
    return results


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
