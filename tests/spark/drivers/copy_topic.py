"""A driver of its own, for tests that kill it: copies a topic into a Parquet table and into other topics.

    python copy_topic.py '{"master": …, "servers": …, "source": …, "target": …, "home": …, "drain": false,
                           "outputs": ["table", "topic", "exact"], "config": {}}'

It runs until its standard input ends, or with `drain` until it has copied what is there. A failed query ends it.
"""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path

import ottla.spark


def main() -> None:
    job = json.loads(sys.argv[1])
    home = Path(job["home"])
    config = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **job["config"]}
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
    queries = []
    for name in job["outputs"]:
        writer = outputs[name]
        writer = writer.option("checkpointLocation", str(home / f"{name}-checkpoint"))
        queries.append((writer.trigger(availableNow=True) if job["drain"] else writer).start())
    if job["drain"]:
        for query in queries:
            query.awaitTermination()
        return
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        for query in queries:
            if not query.isActive:
                raise SystemExit(f"a query ended: {query.exception()}")
    for query in queries:
        query.stop()


if __name__ == "__main__":
    main()
