"""`delivery=exactly-once`: every row is in the topic once, for readers of committed records.

The first tests call the parts of the sink as Spark calls them, without Java; then Spark runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from ottla.client import prepared
from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.spark import sink_options, workers, writing
from ottla.spark.delivery.commits import Commits, LostTransactionError
from ottla.spark.delivery.decision import Writer
from ottla.spark.delivery.log import DecisionLog, DecisionsError
from ottla.spark.delivery.messages import PreparedWrite
from ottla.spark.delivery.tasks import Attempt
from ottla.spark.sink_options import DECISIONS_TOPIC
from ottla.testing.broker import Broker
from ottla.testing.waiting import wait_until

TWO_PHASE = {"transaction.two.phase.commit.enable": "true", "num.partitions": "2"}
WAIT_S = 120


@pytest.fixture(scope="module", params=["two-phase", "by timeout", "apache_kafka"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with two-phase transactions, and two that have none."""
    if request.param == "apache_kafka":
        yield request.getfixturevalue("apache_kafka")
        workers._clients.close()
        return
    with Broker(TWO_PHASE if request.param == "two-phase" else {"num.partitions": "2"}) as running:
        yield running.bootstrap_servers
        workers._clients.close()


@pytest.fixture(scope="module")
def client(servers: str) -> Iterator[Blocking]:
    with Blocking(servers) as connected:
        yield connected


class Query:
    """A query that writes to a topic, with its batches run by hand."""

    def __init__(self, servers: str, topic: str, client: Blocking) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "exactly-once"}
        self.options = sink_options.parse(options)
        self.client = client
        self.topic = topic
        self.run = 0
        self.commits = Commits(client.cluster, DECISIONS_TOPIC)

    @property
    def writer(self) -> Writer:
        return Writer(self.topic, f"run{self.run}")

    def restart(self) -> None:
        """Another driver."""
        self.run += 1
        self.commits = Commits(self.client.cluster, DECISIONS_TOPIC)

    def task(self, batch: int, partition: int = 0, rows: int = 3) -> PreparedWrite:
        values = [f"{batch}/{partition}/{number}" for number in range(rows)]
        batches = [pa.RecordBatch.from_pydict({"value": values})] if rows else []
        attempt = Attempt(self.writer, batch, partition)
        count, transaction = writing.write_in_transaction(self.options, attempt, iter(batches))
        return PreparedWrite(self.writer, batch, partition, 0, count, transaction)

    def commit(self, batch: int, *writes: PreparedWrite) -> None:
        self.client.wait(self.commits.commit(self.writer, batch, writes))

    def abort(self, batch: int, *writes: PreparedWrite) -> None:
        self.client.wait(self.commits.abort(self.writer, batch, writes))

    def open_ids(self) -> list[str]:
        listed = self.client.wait(ClusterAdmin(self.client.cluster).list_transactions(states=["Ongoing"]))
        return [each.transactional_id for each in listed if each.transactional_id.startswith(self.writer.scope_prefix)]

    def assert_committed(self, rows: list[str]) -> None:
        """Apache Kafka answers an end before its partitions know of it, so it may take a moment."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(self.committed()) >= len(rows))
        assert self.committed() == rows

    def committed(self) -> list[str]:
        from ottla.spark import options as source_options
        from ottla.spark.source import BatchReader

        given = {"kafka.bootstrap.servers": self.options.bootstrap_servers, "subscribe": self.topic}
        parsed = source_options.parse({**given, "kafka.isolation.level": "read_committed"}, is_streaming=False)
        reader = BatchReader(parsed)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return sorted(row["value"].decode() for row in rows)


@pytest.fixture
def query(servers: str, topic: str, client: Blocking, create_topic: Callable[..., None]) -> Query:
    create_topic(servers, topic)
    return Query(servers, topic, client)


def expected(*parts: tuple[int, int]) -> list[str]:
    return sorted(f"{batch}/{partition}/{number}" for batch, partition in parts for number in range(3))


def test_decisions_are_not_written_into_a_topic_that_is_not_made_for_them(
    servers: str, client: Blocking, topic: str, create_topic: Callable[..., None]
) -> None:
    create_topic(servers, topic)
    query = Query(servers, topic, client)
    query.options = replace(query.options, decisions_topic=topic)
    with pytest.raises(DecisionsError, match=f"{topic} for decisions has 2 partitions and needs 8: name another one"):
        query.task(0)
    assert query.open_ids() == []


def test_rows_are_seen_once_their_batch_is_decided_and_not_before(query: Query) -> None:
    first, second = query.task(0, 0), query.task(0, 1)
    assert (first.record_count, second.record_count) == (3, 3)
    assert query.committed() == []
    query.commit(0, first, second, query.task(0, 2, rows=0))
    query.assert_committed(expected((0, 0), (0, 1)))
    query.commit(1, query.task(1, 0))
    query.assert_committed(expected((0, 0), (0, 1), (1, 0)))
    assert query.open_ids() == []


def test_a_batch_that_is_run_again_finds_its_decision_and_writes_nothing(query: Query) -> None:
    query.commit(0, query.task(0))
    query.restart()
    again = query.task(0)
    assert (again.record_count, again.transaction) == (0, None)
    query.commit(0, again)
    query.assert_committed(expected((0, 0)))


def test_a_commit_that_stopped_after_its_decision_is_carried_out_by_the_next_driver(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = query.task(0)

    async def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "_end_all", killed)
        with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
            asyncio.run(commit_elsewhere(query, write))
    assert query.committed() == []
    query.abort(0, write)  # as Spark does after a commit that failed: what was decided stays
    assert query.committed() == []
    query.restart()
    query.commit(0, query.task(0))
    query.assert_committed(expected((0, 0)))


async def commit_elsewhere(query: Query, write: PreparedWrite) -> None:
    """On a loop of its own, which the interruption ends."""
    from ottla.client.metadata import Cluster, parse_addresses

    async with Cluster(parse_addresses(query.options.bootstrap_servers)) as cluster:
        await Commits(cluster, DECISIONS_TOPIC).commit(query.writer, 0, [write])


def test_what_was_not_decided_is_aborted_and_left_overs_are_swept_up(query: Query) -> None:
    failed, loser = query.task(0), query.task(0)
    assert failed.transaction is not None
    assert len(query.open_ids()) == 2
    query.abort(0, failed)
    assert query.open_ids() == [loser.transaction.transactional_id if loser.transaction else ""]
    query.restart()
    query.commit(0, query.task(0))
    query.assert_committed(expected((0, 0)))
    assert query.open_ids() == []


def test_what_could_not_be_swept_up_is_tried_again_with_the_next_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.task(0)  # of a driver that is killed
    query.restart()

    async def time_is_up(*_: object, **__: object) -> bool:
        raise TimedOutError(60)

    with monkeypatch.context() as patched:
        patched.setattr(ClusterAdmin, "abort_transaction", time_is_up)
        query.commit(0, query.task(0))
    assert len(query.open_ids()) == 1
    query.commit(1, query.task(1))
    assert query.open_ids() == []
    query.assert_committed(expected((0, 0), (1, 0)))


def test_a_worker_keeps_its_transactional_id_from_batch_to_batch(query: Query) -> None:
    ids = set()
    for batch in range(4):
        write = query.task(batch)
        assert write.transaction is not None
        ids.add(write.transaction.transactional_id)
        query.commit(batch, write)
    assert len(ids) == 1
    query.assert_committed(expected((0, 0), (1, 0), (2, 0), (3, 0)))


def test_an_id_whose_transaction_is_open_is_not_used_again(query: Query) -> None:
    first, second = query.task(0), query.task(0)
    assert first.transaction is not None
    assert second.transaction is not None
    assert first.transaction.transactional_id != second.transaction.transactional_id
    query.commit(0, first)
    query.assert_committed(expected((0, 0)))
    assert query.open_ids() == []


def test_a_driver_that_was_replaced_cannot_decide_otherwise(query: Query) -> None:
    old, old_commits, old_writer = query.task(0), query.commits, query.writer
    old_log = DecisionLog(query.client.cluster, DECISIONS_TOPIC, old_writer)
    query.client.wait(old_log.open())
    old_commits._logs[old_writer] = old_log
    query.restart()
    query.commit(0, query.task(0))
    query.client.wait(old_commits.commit(old_writer, 0, [old]))  # it is fenced, looks again and finds what was decided
    query.assert_committed(expected((0, 0)))
    assert query.open_ids() == []


def test_processes_of_one_driver_take_turns(query: Query) -> None:
    """Spark commits in whichever of its Python processes is free."""
    processes = [Commits(query.client.cluster, DECISIONS_TOPIC) for _ in range(2)]
    for batch in range(6):
        query.commits = processes[batch // 2 % 2]
        query.commit(batch, query.task(batch))
    query.assert_committed(expected(*((batch, 0) for batch in range(6))))
    assert query.open_ids() == []


def test_a_decided_transaction_that_was_aborted_all_the_same_is_reported(query: Query) -> None:
    write = query.task(0)
    assert write.transaction is not None
    query.client.wait(prepared.end(query.client.cluster, write.transaction, commits=False))
    with pytest.raises(LostTransactionError, match="batch 0 was decided, and 1 of its 1 transactions were aborted"):
        query.commit(0, write)
    query.restart()
    query.commits = Commits(query.client.cluster, DECISIONS_TOPIC, fail_on_data_loss=False)
    query.commit(0)
    query.commit(1, query.task(1))
    query.assert_committed(expected((1, 0)))


def test_a_task_that_fails_aborts_what_it_wrote(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"] * 10})
        raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError):
        writing.write_in_transaction(query.options, Attempt(query.writer, 0), rows())
    assert query.open_ids() == []


def test_two_phase_transactions_have_no_timeout(query: Query) -> None:
    write = query.task(0)
    assert write.transaction is not None
    name = write.transaction.transactional_id
    described: Any = query.client.wait(ClusterAdmin(query.client.cluster).describe_transactions([name]))[name]
    has_two_phase = query.client.wait(prepared.has_two_phase(query.client.cluster))
    assert described.timeout_ms == (2**31 - 1 if has_two_phase else query.options.transaction_timeout_ms)
    query.abort(0, write)


# -- in Spark ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_phase_broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE, in_process=False) as running:
        yield running


def numbers(spark: SparkSession, servers: str, topic: str, form: str = "ottla") -> list[int]:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = reader.option("kafka.isolation.level", "read_committed").load().selectExpr("cast(value as string) as v")
    return sorted(int(row.v) for row in rows.collect())


def test_a_stream_writes_each_row_once_and_so_does_a_batch(
    spark: SparkSession, two_phase_broker: Broker, topic: str, tmp_path: Path, create_topic: Callable[..., None]
) -> None:
    servers = two_phase_broker.bootstrap_servers
    for name in (topic, f"{topic}-out"):
        create_topic(servers, name)
    sink = {"kafka.bootstrap.servers": servers, "delivery": "exactly-once"}
    numbered = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    numbered.write.format("ottla").options(**sink, topic=topic).mode("append").save()
    assert numbers(spark, servers, topic) == list(range(1000))

    def copy() -> StreamingQuery:
        source = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        stream = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="300").load().select("value")
        writer = stream.writeStream.format("ottla").options(**sink, topic=f"{topic}-out")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        return query

    copy()
    assert numbers(spark, servers, f"{topic}-out") == list(range(1000))
    # The last batch once more, as after a driver that was killed before Spark had written down that it was done.
    commits = tmp_path / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    for path in (last, commits / f".{last.name}.crc"):
        path.unlink(missing_ok=True)
    copy()
    assert numbers(spark, servers, f"{topic}-out") == list(range(1000))


def test_batches_of_foreach_batch_are_written_once(
    spark: SparkSession, two_phase_broker: Broker, topic: str, tmp_path: Path, create_topic: Callable[..., None]
) -> None:
    servers = two_phase_broker.bootstrap_servers
    create_topic(servers, topic)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("".join(f"{number}\n" for number in range(50)))
    failures = iter([True])

    def write(rows: Any, batch_id: int) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        ottla.spark.write_batch(rows, batch_id, **options)
        if next(failures, False):
            raise RuntimeError("after the batch was written")

    stream = spark.readStream.text(str(tmp_path / "in"))
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with contextlib.suppress(Exception):
        writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert numbers(spark, servers, topic) == list(range(50))
