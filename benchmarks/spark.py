"""Topics in and out of Spark: our source and sink beside Spark's own connector, on Ottla and on Apache Kafka.

One session, one machine, one run. Both formats read and write the same topics in turn; the first turns warm Java up and
do not count, of the others the fastest and the one with the least CPU. CPU is that of the driver's Java with everything
it has started, Python workers and their daemons, and apart from it that of the broker: on a small machine wall time
measures both together. The connector is the newest that runs on this Spark, see `ottla.testing.spark_connector`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import ottla.spark
import peers
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.spark_connector import CONNECTOR_VERSION, connector_jars
from peers import TICKS, Peer

RECORDS = 2_000_000
VALUE_BYTES = 100
PARTITIONS = 2
WARM_UP, ROUNDS = 2, 5
# What the results call them.
FORMATS = {"ours": "ottla", "official": "kafka"}
SMALL_BATCH = 100
SMALL_BATCHES, SMALL_WARM_UP, SMALL_TURNS = 60, 20, 4
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


def session_start() -> dict[str, dict[str, float]]:
    """From nothing imported to a session, in turn; the smallest of several. The first turn may make the archive."""
    seen: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": []}
    for _ in range(SESSION_STARTS + 1):
        for kind, starts in seen.items():
            done = subprocess.run(
                [sys.executable, "-c", START, kind], capture_output=True, text=True, check=True, timeout=WAIT_S
            )
            seconds, ticks = done.stdout.split()[-2:]
            starts.append((float(seconds), int(ticks) / TICKS))
    return {
        kind: {"seconds": min(each[0] for each in starts[1:]), "java_cpu_s": min(each[1] for each in starts[1:])}
        for kind, starts in seen.items()
    }


@contextlib.contextmanager
def open_session(home: str) -> Iterator[tuple[SparkSession, ProcessTree]]:
    config = {
        "spark.jars": connector_jars(),
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


def best_of(
    work: dict[str, Callable[[], None]], rows: int, spark_tree: ProcessTree, peer: Peer, rounds: int
) -> dict[str, dict[str, float]]:
    """Runs the pieces of work in turn; per piece the best rows per second and the least CPU per million rows."""
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in work}
    for _ in range(WARM_UP + rounds):
        for name, run_once in work.items():
            before = time.perf_counter(), spark_tree.cpu_s(), peer.cpu_s()
            run_once()
            after = time.perf_counter(), spark_tree.cpu_s(), peer.cpu_s()
            seen[name].append(tuple(late - early for late, early in zip(after, before, strict=True)))  # type: ignore[arg-type]
    results = {}
    for name, runs in seen.items():
        seconds, spark_cpu, broker_cpu = (min(column) for column in zip(*runs[WARM_UP:], strict=True))
        results[name] = {
            "rows_per_s": rows / seconds,
            "spark_cpu_s_per_million_rows": spark_cpu / rows * 1e6,
            "broker_cpu_s_per_million_rows": broker_cpu / rows * 1e6,
        }
    return results


def fill(peer: Peer, topic: str, count: int) -> None:
    peers.run_client(
        {
            "bootstrap": peer.bootstrap,
            "topic": topic,
            "work": "produce",
            "partitions": PARTITIONS,
            "value_bytes": VALUE_BYTES,
            "batch_bytes": 1_000_000,
            "compression": "none",
            "count": count,
        }
    )


def into_nothing(frame: DataFrame) -> None:
    """Makes Spark produce every row and column."""
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: SparkSession, peer: Peer, topic: str) -> dict[str, Callable[[], None]]:
    def of_format(form: str) -> Callable[[], None]:
        source = spark.read.format(form).option("kafka.bootstrap.servers", peer.bootstrap).option("subscribe", topic)
        return lambda: into_nothing(source.load())

    return {name: of_format(form) for name, form in FORMATS.items()}


def writing(spark: SparkSession, peer: Peer, topic: str, rows: int) -> dict[str, Callable[[], None]]:
    """`nothing` is what making the rows costs, which both formats pay too."""
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


def wait_for_batches(query: StreamingQuery, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WAIT_S
    while len(progress := [each for each in query.recentProgress if each["numInputRows"]]) < count:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(progress)} of {count} batches within {WAIT_S} s")
        time.sleep(0.2)
    return progress[:count]


def micro_batch_ms(spark: SparkSession, peer: Peer, form: str, topic: str) -> float:
    """The median of a small batch, from its trigger to its commit."""
    with stream(spark, peer, form, topic, maxOffsetsPerTrigger=str(SMALL_BATCH)) as query:
        progress = wait_for_batches(query, SMALL_WARM_UP + SMALL_BATCHES)
    return statistics.median(each["durationMs"]["triggerExecution"] for each in progress[SMALL_WARM_UP:])


def idle_percent(spark: SparkSession, tree: ProcessTree, peer: Peer, form: str, topic: str) -> dict[str, float]:
    """CPU of Spark and of the broker while a query waits for data, in percent of a core."""
    with stream(spark, peer, form, topic) as query:
        wait_for_batches(query, 1)
        time.sleep(IDLE_SETTLE_S)
        before = tree.cpu_s(), peer.cpu_s()
        time.sleep(IDLE_S)
        after = tree.cpu_s(), peer.cpu_s()
    spark_share, broker_share = ((late - early) / IDLE_S * 100 for late, early in zip(after, before, strict=True))
    return {"spark": spark_share, "broker": broker_share}


# -- all of it ---------------------------------------------------------------------------------------------------------


def measure(spark: SparkSession, tree: ProcessTree, peer: Peer, records: int, rounds: int) -> dict[str, Any]:
    print(f"  {peer.name}: source", flush=True)
    fill(peer, "bench-read", records)
    results: dict[str, Any] = {"source": best_of(reading(spark, peer, "bench-read"), records, tree, peer, rounds)}
    print(f"  {peer.name}: sink", flush=True)
    fill(peer, "bench-write", PARTITIONS)  # makes the topic
    results["sink"] = best_of(writing(spark, peer, "bench-write", records), records, tree, peer, rounds)
    print(f"  {peer.name}: small batches", flush=True)
    fill(peer, "bench-small", SMALL_BATCH * (SMALL_WARM_UP + SMALL_BATCHES + 1))
    # Java gets warmer all the time: each of them comes first as often as second.
    small: dict[str, list[float]] = {name: [] for name in FORMATS}
    for turn in range(SMALL_TURNS):
        for name in reversed(FORMATS) if turn % 2 else FORMATS:
            small[name].append(micro_batch_ms(spark, peer, FORMATS[name], "bench-small"))
    results["micro_batch_ms"] = {name: min(times) for name, times in small.items()}
    print(f"  {peer.name}: idle queries", flush=True)
    results["idle_percent_of_a_core"] = {
        name: idle_percent(spark, tree, peer, form, "bench-small") for name, form in FORMATS.items()
    }
    results["ours_over_official"] = ratios(results)
    return results


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Ours divided by theirs: more is better for rows per second, less for the others."""
    compared = {}
    for work in ("source", "sink"):
        ours, official = results[work]["ours"], results[work]["official"]
        compared[f"{work}_rows_per_s"] = ours["rows_per_s"] / official["rows_per_s"]
        cpu = "spark_cpu_s_per_million_rows"
        compared[f"{work}_cpu"] = ours[cpu] / official[cpu]
    compared["micro_batch_ms"] = results["micro_batch_ms"]["ours"] / results["micro_batch_ms"]["official"]
    return compared


def run(records: int = RECORDS, rounds: int = ROUNDS) -> dict[str, Any]:
    if missing := missing_programs():
        print(f"  left out: Spark and its connector need {missing}")
        return {}
    results: dict[str, Any] = {"connector_version": CONNECTOR_VERSION, "records": records}
    print("  session start", flush=True)
    results["session_start"] = session_start()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, open_session(home) as (spark, tree):
        results["spark_version"] = spark.version
        for start in (peers.ottla, peers.kafka):
            with start() as peer:
                results[f"on_{peer.name}"] = measure(spark, tree, peer, records, rounds)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    results = run(arguments.records, arguments.rounds)
    print(json.dumps(results, indent=2))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
