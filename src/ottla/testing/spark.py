"""Tests of pipelines on Spark: a broker, records in, a query that runs until it has read them, records out.

    with PipelineTest(spark) as test:
        test.feed("orders", [{"user": "a", "cents": 1250}, {"user": "b", "cents": 800}])
        query = start_my_pipeline(spark, test.bootstrap_servers)
        test.run_until_caught_up(query)
        test.assert_values("large-orders", [{"user": "a", "cents": 1250}])

Make the session once for all tests, with `ottla.spark.session("tests", "local[2]")`: starting Java is what takes time.
Topics are created when they are first used.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.admin.topics import NewTopic
from ottla.client.blocking import Blocking
from ottla.client.fetching import Fetcher, FetchOptions
from ottla.client.offsets import Isolation, OffsetSpec, list_offsets
from ottla.client.producer.blocking import Producer
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S: Final = 60.0
PROJECT_S: Final = 300.0
# Two-phase transactions let a sink with delivery=exactly-once show what it does in production.
BROKER_SETTINGS: Final = {"transaction.two.phase.commit.enable": "true"}

Value = str | bytes | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record of a topic."""

    __test__ = False  # its name is for users; pytest need not look into it

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int

    def json(self) -> Any:
        """The value, decoded."""
        return None if self.value is None else json.loads(self.value)


class PipelineTest:
    """A broker for the tests of pipelines, with what a test does to its topics."""

    __test__ = False

    def __init__(self, spark: SparkSession | None = None, settings: Mapping[str, str] | None = None) -> None:
        """`spark`: the session of queries that the test starts itself; `run_project` has one of its own.

        settings: of the broker, such as `num.partitions`.
        """
        self._spark = spark
        self._broker = Broker({**BROKER_SETTINGS, **(settings or {})}, in_process=False)
        self._client: Blocking | None = None

    def __enter__(self) -> Self:
        self._broker.start()
        try:
            self._client = Blocking(self.bootstrap_servers).__enter__()
        except BaseException:
            self._broker.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for query in self._spark.streams.active if self._spark is not None else ():
            query.stop()
        try:
            if self._client is not None:
                self._client.__exit__()
        finally:
            self._broker.stop()

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "give PipelineTest a session to start queries with"
        return self._spark

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def broker(self) -> Broker:
        """For tests that kill it and start it again."""
        return self._broker

    @property
    def client(self) -> Blocking:
        assert self._client is not None, "use it in a with statement"
        return self._client

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """For a topic with settings; `retention_ms="1000"` sets `retention.ms`."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        made = self.client.wait(
            ClusterAdmin(self.client.cluster).create_topics([NewTopic(topic, partitions, config=named or None)])
        )
        if isinstance(outcome := made[topic], ApiError):
            raise outcome

    def feed(self, topic: str, rows: Iterable[Value | tuple[Value, Value]], *, timestamp_ms: int | None = None) -> None:
        """Writes records and waits for them: text, bytes, a mapping (as JSON) or null, alone or as key and value."""
        pairs = [row if isinstance(row, tuple) else (None, row) for row in rows]
        keys, values = ([_bytes(pair[side]) for pair in pairs] for side in (0, 1))
        if pairs:
            with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
                producer.send_columns(topic, values, keys, timestamps=timestamp_ms).result()

    def rows(self, topic: str) -> list[TestRecord]:
        """The committed records of a topic, partition by partition; none where there is no such topic."""
        return self.client.wait(self._rows(topic))

    def assert_values(self, topic: str, expected: Sequence[Value]) -> None:
        """Whether a topic holds exactly these values, in any order; the message says which are missing and too many."""
        found = Counter(_comparable(record.value) for record in self.rows(topic))
        wanted = Counter(_comparable(_bytes(value)) for value in expected)
        missing, surplus = list((wanted - found).elements()), list((found - wanted).elements())
        if missing or surplus:
            raise AssertionError(f"{topic} lacks {missing} and has too many: {surplus}")

    def run_until_caught_up(self, query: StreamingQuery, timeout_s: float = WAIT_S) -> None:
        """Returns once a query has done everything that was written before this call. An error of it is raised."""
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                query.processAllAvailable()
            except BaseException as error:
                failures.append(error)

        waiting = threading.Thread(target=wait, name="caught-up", daemon=True)
        waiting.start()
        waiting.join(timeout_s)
        if waiting.is_alive():
            last = query.lastProgress
            query.stop()  # which ends the wait
            waiting.join(timeout_s)
            raise AssertionError(f"the query has not caught up within {timeout_s:g} s; its last progress: {last}")
        if failures:
            raise failures[0]

    def run_project(self, path: Path, *, storage: Path, timeout_s: float = PROJECT_S) -> None:
        """Runs a pipeline once as `ottla pipeline run --once` does, in a process of its own, against this broker.

        path: of a project or a program. storage: for checkpoints and tables, in place of those of the project.
        """
        command = [sys.executable, "-m", "ottla", "pipeline", "run", os.fspath(path), "--once", "--master", "local[2]"]
        command += ["--storage", storage.resolve().as_uri(), "--bootstrap-server", self.bootstrap_servers]
        environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": self.bootstrap_servers}
        environment["OTTLA_PIPELINES_DIR"] = os.fspath(storage)  # beside one of the same name that runs for real
        done = subprocess.run(
            command, env=environment, cwd=storage, timeout=timeout_s, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AssertionError(f"the pipeline ended with {done.returncode}:\n{done.stderr[-4000:]}")

    async def _rows(self, topic: str) -> list[TestRecord]:
        cluster = self.client.cluster
        found = (await cluster.refresh([topic])).topics.get(topic)
        if found is None:
            return []
        partitions = [TopicPartition(topic, each.partition) for each in found.partitions]
        isolation = Isolation.READ_COMMITTED
        starts, ends = [
            {
                partition: offset.offset
                for partition, offset in (
                    await list_offsets(cluster, dict.fromkeys(partitions, int(spec)), isolation)
                ).items()
            }
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        records: list[TestRecord] = []
        async with (
            asyncio.timeout(WAIT_S),
            Fetcher(cluster, starts, ends, FetchOptions(isolation=isolation)) as fetcher,
        ):
            while not fetcher.is_done:
                for fetched in await fetcher.next():
                    columns = fetched.columns()
                    records += [
                        TestRecord(key, value, fetched.partition.partition, offset)
                        for key, value, offset in zip(columns.keys, columns.values, columns.offsets, strict=True)
                    ]
        return sorted(records, key=lambda record: (record.partition, record.offset))


def _bytes(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _comparable(value: bytes | None) -> str | None:
    """JSON is compared by what it says, whatever the order and the blanks."""
    if value is None:
        return None
    try:
        return json.dumps(json.loads(value), sort_keys=True)
    except ValueError:
        return value.decode(errors="backslashreplace")
