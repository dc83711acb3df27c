"""A driver of its own, for tests that kill it: copies a topic into a Parquet table and into other topics.

    python copy_topic.py '{"master": …, "servers": …, "source": …, "target": …, "home": …, "drain": false,
                           "in_turn": false, "config": {},
                           "outputs": ["table", "topic", "exact", "joined", "counted", "stateful"]}'

It runs until its standard input ends, or with `drain` until it has copied what is there, `in_turn` into one output
after the other. A failed query ends it, but for one that Spark has not waited for: it gives a Python worker ten seconds
to start, whatever else the machine does, and no setting changes that.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import ottla.spark


def joined(stream: DataFrame) -> DataFrame:
    """With itself, key by key: each input finds itself once."""
    other = stream.withColumnRenamed("value", "other")
    return stream.join(other, "key").select("key", "value")


def counted(stream: DataFrame) -> DataFrame:
    """How often a key came, whenever that changes: once, and never twice."""
    value = "if(count = 1, concat('value ', cast(key AS string)), concat('seen ', count, ' times')) AS value"
    return stream.groupBy("key").count().selectExpr("key", value)


def with_state(stream: DataFrame) -> DataFrame:
    """The same by a processor of our own: a key that it has seen gives another value."""
    return stream.groupBy("key").transformWithState(
        CountEach(), "key binary, value string", outputMode="append", timeMode="none"
    )


class CountEach(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        known = self._count.get()
        seen = 0 if known is None else known[0]
        for row in rows:
            seen += 1
            yield Row(key=row.key, value=bytes(row.value).decode() if seen == 1 else f"seen {seen} times")
        self._count.update((seen,))

    def close(self) -> None:
        pass


RESTARTS_MAX = 10
NOT_WAITED_FOR = "Python worker failed to connect back"

stateful: dict[str, Callable[[DataFrame], DataFrame]] = {
    "joined": joined,
    "counted": counted,
    "stateful": with_state,
}


def exactly_once(rows: DataFrame, job: dict[str, Any], name: str) -> DataStreamWriter:
    sink = {"kafka.bootstrap.servers": job["servers"], "topic": f"{job['target']}-{name}"}
    if name != "counted":
        return rows.writeStream.format("ottla").options(**sink, delivery="exactly-once")
    # Spark lets no sink in Python have results that change, but in the function of foreachBatch.
    writer = rows.writeStream.outputMode("update")
    return writer.foreachBatch(lambda batch, number: ottla.spark.write_batch(batch, number, **sink))


def main() -> None:
    job = json.loads(sys.argv[1])
    home = Path(job["home"])
    config = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # The only one that has what a processor of one's own needs.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        **job["config"],
    }
    spark = ottla.spark.session("copy", job["master"], config=config)
    spark.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": job["servers"]}
    stream = (
        spark.readStream.format("ottla")
        .options(**servers, subscribe=job["source"], startingOffsets="earliest", maxOffsetsPerTrigger="200")
        .load()
        .select("key", "value")
    )
    outputs = {
        "table": stream.writeStream.format("parquet").option("path", str(home / "table")),
        "topic": stream.writeStream.format("ottla").options(**servers, topic=job["target"]),
        "exact": stream.writeStream.format("ottla").options(
            **servers, topic=f"{job['target']}-exact", delivery="exactly-once"
        ),
    }
    queries, writers = [], []
    for name in job["outputs"]:
        writer = outputs[name] if name in outputs else exactly_once(stateful[name](stream), job, name)
        writer = writer.option("checkpointLocation", str(home / f"{name}-checkpoint"))
        writers.append(writer.trigger(availableNow=True) if job["drain"] else writer)
        queries.append(writers[-1].start())
        if job["in_turn"]:
            queries[-1].awaitTermination()
    if job["drain"]:
        for query in queries:
            query.awaitTermination()
        return
    restarts_left = RESTARTS_MAX
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        for place, query in enumerate(queries):
            if query.isActive:
                continue
            reason = str(query.exception())
            if NOT_WAITED_FOR not in reason or restarts_left == 0:
                raise SystemExit(f"a query ended: {reason}")
            restarts_left -= 1
            queries[place] = writers[place].start()
    for query in queries:
        query.stop()


if __name__ == "__main__":
    main()
