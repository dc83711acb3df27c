"""A query of many small batches holds on to nothing: no thread, socket or transaction, and no memory, per batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla
from ottla.testing.spark import PipelineTest
from ottla.testing.waiting import wait_until

WARM_UP = 40  # batches; until then Spark starts workers and connections are made
PER_BATCH = 0.25  # what may be left of threads and sockets: pools grow a little, a leak is one per batch or more
PER_BATCH_KB = 128
LONG_S = 3600


@dataclass(frozen=True, slots=True)
class Held:
    """By Java and the Python processes below it; memory by the latter, as Java's is its collector's business."""

    threads: int
    sockets: int
    python_kb: int


def held() -> Held:
    threads = sockets = python_kb = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
            )
            threads += int(status["Threads"])
            sockets += sum(os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir())
            if status["Name"].strip() != "java":
                python_kb += int(status["VmRSS"].split()[0]) if "VmRSS" in status else 0
    return Held(threads, sockets, python_kb)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(directory.name))
    found: list[int] = []
    left = list(children.get(pid, []))
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


@pytest.mark.alone  # in a session that others have used, Java's sockets are theirs as well
@pytest.mark.parametrize("batches", [150, pytest.param(5000, marks=pytest.mark.long)])
def test_nothing_is_left_of_a_batch(
    spark: SparkSession,
    topic: str,
    checkpoint: str,
    stopped: Callable[[StreamingQuery], StreamingQuery],
    batches: int,
) -> None:
    with PipelineTest(spark) as test:
        test.create_topic(topic)
        test.create_topic(f"{topic}-out")
        test.feed(topic, [str(number) for number in range(batches)])
        servers = {"kafka.bootstrap.servers": test.bootstrap_servers}
        source = spark.readStream.format("ottla").options(**servers, subscribe=topic, startingOffsets="earliest")
        rows = source.options(maxOffsetsPerTrigger="1", group=topic).load().select("value")
        writer = rows.writeStream.format("ottla").options(**servers, topic=f"{topic}-out", delivery="exactly-once")
        query = stopped(writer.option("checkpointLocation", checkpoint).start())

        def wait_for(count: int) -> Held:
            last = Path(checkpoint) / "commits" / str(count - 1)
            wait_until(lambda: last.exists() or not query.isActive, timeout_s=LONG_S)
            assert query.isActive, query.exception()
            return held()

        before = wait_for(WARM_UP)
        after = wait_for(batches)
        count = batches - WARM_UP
        assert after.threads - before.threads < count * PER_BATCH, (before, after)
        assert after.sockets - before.sockets < count * PER_BATCH, (before, after)
        assert after.python_kb - before.python_kb < count * PER_BATCH_KB, (before, after)
        query.stop()
        test.assert_values(f"{topic}-out", [str(number) for number in range(batches)])
        with ottla.Admin(bootstrap_servers=test.bootstrap_servers) as admin:
            assert admin.list_transactions(states=["Ongoing"]) == []
