"""Topics into Delta tables, exactly once, and tables into topics, on real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from ottla.errors import ConfigError
from ottla.spark.decode import Json
from ottla.spark.tables import (
    DeltaSink,
    compact,
    read_table,
    table_to_topic,
    topic_to_parquet,
    topic_to_table,
    vacuum,
)
from ottla.spark.tables.delta import BatchId, Table
from ottla.testing.broker import Broker

deltalake = pytest.importorskip("deltalake")

DRIVER = Path(__file__).parent / "drivers" / "topic_to_delta.py"
NOW = {"availableNow": True}
WAIT_S = 240.0


@pytest.fixture
def produce(broker: Broker, create_topic, topic) -> Callable[..., str]:
    """Writes keys and values to the one partition of this test's topic."""
    made: list[str] = []

    def write(*records: tuple[bytes | None, bytes | None], timestamp: int = 1_700_000_000_000) -> str:
        if not made:
            create_topic(broker.bootstrap_servers, topic, 1)
            made.append(topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=0, timestamp=timestamp)
        assert producer.flush(60) == 0
        return topic

    return write


@pytest.fixture
def servers(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def rows_of(path: Path | str, *columns: str) -> list[tuple]:
    """As another program reads them: through deltalake alone."""
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    return sorted(tuple(row[name] for name in columns) for row in table.to_pylist())


def marked(path: Path | str, query: str) -> int | None:
    return deltalake.DeltaTable(str(path)).transaction_version(query)


def test_a_batch_that_runs_again_is_in_the_table_once(spark: SparkSession, tmp_path: Path):
    sink = DeltaSink(str(tmp_path / "t"), query="q")
    for number, value in [(0, 1), (0, 1), (1, 2), (0, 1), (1, 2)]:
        sink(spark.createDataFrame([(value,)], "n long"), number)
    assert rows_of(tmp_path / "t", "n") == [(1,), (2,)]
    DeltaSink(str(tmp_path / "t"), query="other")(spark.createDataFrame([(3,)], "n long"), 0)
    assert rows_of(tmp_path / "t", "n") == [(1,), (2,), (3,)]
    assert Table(str(tmp_path / "t")).has(BatchId("q", 1))
    assert not Table(str(tmp_path / "t")).has(BatchId("q", 2))


def test_a_topic_becomes_a_table_and_what_cannot_be_decoded_a_table_beside_it(
    spark: SparkSession, produce, servers, tmp_path, checkpoint
):
    path = str(tmp_path / "orders")
    job = {
        "checkpoint": checkpoint,
        "how": Json(schema="n long, place string"),
        "partition_by": {"date": "date(_timestamp)", "place": "place"},
        "trigger": NOW,
    }
    topic = produce((b"a", b'{"n":1,"place":"x/y z"}'), (b"b", b"{bad"), (b"c", b'{"n":2,"place":null}'))
    query = topic_to_table(spark, topic, path, servers, **job)
    query.awaitTermination()
    produce((b"d", b'{"n":3,"place":"p"}'), timestamp=1_700_100_000_000)
    again = topic_to_table(spark, topic, path, servers, **job)
    again.awaitTermination()
    assert again.id == query.id
    days = (date(2023, 11, 14), date(2023, 11, 16))
    expected = [(0, 1, "x/y z", days[0]), (2, 2, None, days[0]), (3, 3, "p", days[1])]
    assert rows_of(path, "_offset", "n", "place", "date") == expected
    seen = read_table(spark, path).select("_offset", "n", "place", "date").orderBy("n").collect()
    assert [tuple(row) for row in seen] == expected
    assert marked(path, query.id) == 1
    (bad,) = deltalake.DeltaTable(f"{path}~dlq").to_pyarrow_table().to_pylist()
    assert (bad["key"], bad["value"], bad["offset"], "not JSON" in bad["error"]) == (b"b", b"{bad", 1, True)


def test_new_columns_are_added_and_other_types_are_refused_before_anything_is_written(spark, tmp_path):
    path = str(tmp_path / "t")
    DeltaSink(path, query="q")(spark.createDataFrame([(1,)], "n long"), 0)
    DeltaSink(path, query="q")(spark.createDataFrame([(2, "x")], "n long, s string"), 1)
    DeltaSink(path, query="q")(spark.createDataFrame([(3,)], "n long"), 2)
    assert [tuple(row) for row in read_table(spark, path).orderBy("n").collect()] == [(1, None), (2, "x"), (3, None)]
    files = sorted(Path(path).rglob("*.parquet"))
    with pytest.raises(ConfigError, match="has a column n of bigint, and the rows have one of string"):
        DeltaSink(path, query="q")(spark.createDataFrame([("4",)], "n string"), 3)
    with pytest.raises(ConfigError, match="is partitioned by nothing, not by"):
        DeltaSink(path, query="q", partition_by=["n"])(spark.createDataFrame([(4,)], "n long"), 3)
    assert sorted(Path(path).rglob("*.parquet")) == files


def test_rows_are_upserted_by_key_and_tombstones_delete(spark, produce, servers, tmp_path, checkpoint):
    path = str(tmp_path / "t")
    job = {
        "checkpoint": checkpoint,
        "how": Json(schema="customerId long, name string"),
        "key_how": Json(schema="customerId long"),
        "mode": "upsert",
        "keys": ["customerId"],
        "trigger": NOW,
    }

    def key(number: int) -> bytes:
        return json.dumps({"customerId": number}).encode()

    topic = produce(
        (key(1), b'{"customerId":1,"name":"a"}'),
        (key(2), b'{"customerId":2,"name":"b"}'),
        (key(3), b'{"customerId":3,"name":"c"}'),
        (key(1), b'{"customerId":1,"name":"a2"}'),
        (b"no key", None),
        (b"{}", b'{"name":"keyless"}'),
    )
    topic_to_table(spark, topic, path, servers, **job).awaitTermination()
    assert rows_of(path, "customerId", "name") == [(1, "a2"), (2, "b"), (3, "c")]
    produce(
        (key(2), None),
        (key(3), b'{"customerId":3,"name":"c2"}'),
        (key(4), b'{"customerId":4,"name":"d"}'),
        (key(4), None),
    )
    topic_to_table(spark, topic, path, servers, **job).awaitTermination()
    assert rows_of(path, "customerId", "name") == [(1, "a2"), (3, "c2")]
    letters = rows_of(f"{path}~dlq", "offset", "key")
    assert letters == [(4, b"no key"), (5, b"{}")]


def test_debeziums_envelope_says_what_became_of_a_row(spark, produce, servers, tmp_path, checkpoint):
    def event(op: str, before: object, after: object) -> bytes:
        return json.dumps({"payload": {"op": op, "before": before, "after": after}}).encode()

    row = "struct<id: long, name: string>"
    topic = produce(
        (b"1", event("r", None, {"id": 1, "name": "a"})),
        (b"2", event("c", None, {"id": 2, "name": "b"})),
        (b"3", event("c", None, {"id": 3, "name": "c"})),
        (b"1", event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "a2"})),
        (b"2", event("d", {"id": 2, "name": "b"}, None)),
        (b"2", None),
    )
    topic_to_table(
        spark,
        topic,
        str(tmp_path / "t"),
        servers,
        checkpoint=checkpoint,
        how=Json(schema=f"payload struct<op: string, before: {row}, after: {row}>"),
        mode="upsert",
        keys=["id"],
        envelope="debezium",
        trigger=NOW,
    ).awaitTermination()
    assert rows_of(tmp_path / "t", "id", "name") == [(1, "a2"), (3, "c")]
    topic_to_table(
        spark,
        topic,
        str(tmp_path / "log"),
        servers,
        checkpoint=f"{checkpoint}-log",
        how=Json(schema=f"payload struct<op: string, before: {row}, after: {row}>"),
        envelope="debezium",
        trigger=NOW,
    ).awaitTermination()
    events = [(1, "a", "r"), (1, "a2", "u"), (2, "b", "c"), (2, "b", "d"), (3, "c", "c")]
    assert rows_of(tmp_path / "log", "id", "name", "_op") == events


def test_small_files_are_compacted_and_old_ones_vacuumed(spark, tmp_path):
    path = str(tmp_path / "t")
    for number in range(4):
        DeltaSink(path, query="q", compact_every=4)(spark.createDataFrame([(number,)], "n long"), number)
    assert len(deltalake.DeltaTable(path).file_uris()) == 1
    assert rows_of(path, "n") == [(0,), (1,), (2,), (3,)]
    assert compact(path)["numFilesAdded"] == 0
    assert len(vacuum(path, kept_hours=0, force=True)) >= 4
    assert marked(path, "q") == 3
    assert rows_of(path, "n") == [(0,), (1,), (2,), (3,)]
    with pytest.raises(ConfigError, match="no Delta table"):
        compact(str(tmp_path / "none"))


def test_a_table_becomes_a_topic(spark, servers, broker, create_topic, receive, topic, tmp_path):
    create_topic(broker.bootstrap_servers, topic, 1)
    path = str(tmp_path / "t")
    sink = DeltaSink(path, query="q")
    sink(spark.createDataFrame([(1, "a")], "n long, s string"), 0)
    how = Json(schema="n long, s string")
    version = table_to_topic(spark, path, topic, servers, how=how, key="cast(n AS string)")
    assert receive(broker.bootstrap_servers, topic) == [(b"1", b'{"n":1,"s":"a"}')]
    sink(spark.createDataFrame([(2, "b")], "n long, s string"), 1)
    table_to_topic(spark, path, topic, servers, how=how, key="cast(n AS string)", since_version=version)
    assert receive(broker.bootstrap_servers, topic)[1:] == [(b"2", b'{"n":2,"s":"b"}')]


def test_parquet_beside_it(spark, produce, servers, tmp_path, checkpoint):
    topic = produce((b"a", b'{"n":1}'))
    how = Json(schema="n long")
    topic_to_parquet(
        spark, topic, str(tmp_path / "p"), servers, checkpoint=checkpoint, how=how, trigger=NOW
    ).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "p")).select("n", "_offset").collect() == [Row(n=1, _offset=0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "merge"}, "append or upsert"),
        ({"mode": "upsert"}, "upsert needs keys"),
        ({"keys": ["n"]}, "append has none"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        DeltaSink("t", **arguments)


def test_rows_of_no_query_need_a_name(spark, tmp_path):
    with pytest.raises(ConfigError, match="need `query`"):
        DeltaSink(str(tmp_path / "t"))(spark.createDataFrame([(1,)], "n long"), 0)
    with pytest.raises(ConfigError, match="cannot be partitioned by x, which is of double"):
        DeltaSink(str(tmp_path / "t"), query="q", partition_by=["x"])(spark.createDataFrame([(1.0,)], "x double"), 0)


def test_a_driver_killed_between_the_commits_of_the_table_and_of_spark_writes_nothing_twice(
    java, broker: Broker, produce, tmp_path
):
    topic = produce(*[(None, b'{"n":%d}' % number) for number in range(300)])
    job = {"servers": broker.bootstrap_servers, "topic": topic, "home": str(tmp_path)}

    def run(**more: object) -> int:
        with (tmp_path / "driver.log").open("ab") as console:
            process = subprocess.Popen(
                [sys.executable, DRIVER, json.dumps({**job, **more})],
                stdout=console,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
            return process.wait(WAIT_S)

    assert run(kill_after=1) == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")) == ["0"]
    assert len(rows_of(tmp_path / "table", "n")) == 200
    assert run() == 0, (tmp_path / "driver.log").read_text()
    assert rows_of(tmp_path / "table", "n") == [(number,) for number in range(300)]
