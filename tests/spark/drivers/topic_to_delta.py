"""A driver of its own: a topic into a Delta table, killed after the table's commit and before Spark's.

    python topic_to_delta.py '{"servers": …, "topic": …, "home": …, "kill_after": 1}'

It dies once the batch `kill_after` is in the table; without it, it ends when all is written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import ottla.spark
from ottla.spark.decode import Json, decode
from ottla.spark.tables import DeltaSink


def main() -> None:
    job = json.loads(sys.argv[1])
    home = Path(job["home"])
    config = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = ottla.spark.session("delta", "local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("ottla").options(
        **{"kafka.bootstrap.servers": job["servers"]},
        subscribe=job["topic"],
        startingOffsets="earliest",
        maxOffsetsPerTrigger="100",
    )
    sink = DeltaSink(str(home / "table"))

    def write(rows: object, number: int) -> None:
        sink(rows, number)  # type: ignore[arg-type]
        if number == job.get("kill_after"):
            os.killpg(0, signal.SIGKILL)

    query = (
        decode(source.load(), Json(schema="n long"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
