"""What queries report of themselves, and the tools for tests of pipelines, in real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from ottla.cli.main import main
from ottla.client.admin.blocking import Admin
from ottla.client.pipelines import PipelineReport, PipelineState
from ottla.testing.spark import PipelineTest
from ottla.testing.waiting import wait_until


@pytest.fixture(scope="module")
def pipelines(spark: SparkSession) -> Iterator[PipelineTest]:
    with PipelineTest(spark) as running:
        yield running


def copy(pipelines: PipelineTest, source: str, target: str, checkpoint: str, **options: str) -> StreamingQuery:
    servers = {"kafka.bootstrap.servers": pipelines.bootstrap_servers}
    stream = pipelines.spark.readStream.format("ottla").options(**servers, subscribe=source, startingOffsets="earliest")
    wanted = stream.options(**options).load().where("cast(value as string) like '%a%'").select("key", "value")
    writer = wanted.writeStream.format("ottla").options(**servers, topic=target, delivery="exactly-once")
    return writer.queryName(target).option("checkpointLocation", checkpoint).start()


def test_a_pipeline_is_fed_runs_and_is_looked_at(pipelines: PipelineTest, topic: str, checkpoint: str) -> None:
    pipelines.feed(topic, [{"user": "a"}, ("key", "plain a"), b"\xff\xfea", {"user": "b"}, None])
    query = copy(pipelines, topic, f"{topic}-out", checkpoint)
    pipelines.run_until_caught_up(query)
    pipelines.assert_values(f"{topic}-out", ["plain a", {"user": "a"}, b"\xff\xfea"])
    pipelines.feed(topic, ["more a"])
    pipelines.run_until_caught_up(query)
    assert [record.key for record in pipelines.rows(f"{topic}-out") if record.value == b"plain a"] == [b"key"]
    with pytest.raises(AssertionError, match=r"lacks \['other'\] and has too many: \['more a'"):
        pipelines.assert_values(f"{topic}-out", ["plain a", {"user": "a"}, b"\xff\xfea", "other"])
    query.stop()
    assert pipelines.rows("nowhere") == []


def test_the_error_of_a_query_ends_the_wait(pipelines: PipelineTest, topic: str, checkpoint: str) -> None:
    pipelines.create_topic(topic, 2, retention_ms="1000000")
    query = copy(pipelines, topic, f"{topic}-out", checkpoint, maxOffsetsPerTrigger="few")
    with pytest.raises(StreamingQueryException, match="maxOffsetsPerTrigger cannot be 'few'"):
        pipelines.run_until_caught_up(query)


def reports_of(pipelines: PipelineTest) -> list[PipelineReport]:
    with Admin(bootstrap_servers=pipelines.bootstrap_servers) as admin:
        return admin.list_pipelines()


def reports(pipelines: PipelineTest) -> dict[str, PipelineReport]:
    return {each.name: each for each in reports_of(pipelines)}


def test_every_batch_is_reported_and_shown(
    pipelines: PipelineTest, topic: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{topic}-out"
    listener = ottla.spark.report(pipelines.spark, pipelines.bootstrap_servers)
    try:
        pipelines.feed(topic, ["a"] * 7)
        query = copy(pipelines, topic, name, checkpoint)
        pipelines.run_until_caught_up(query)
        wait_until(lambda: name in reports(pipelines) and reports(pipelines)[name].rows == 7)
        report = reports(pipelines)[name]
        assert (report.query_id, report.run_id, report.batch_id) == (query.id, query.runId, 0)
        assert report.lag == {f"{topic}-0": 0}
        assert main(["pipeline", "status", "--json", "--bootstrap-server", pipelines.bootstrap_servers, name]) == 0
        shown: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (shown["name"], shown["lag_offsets"]) == (name, 0)
        query.stop()
        wait_until(lambda: reports(pipelines)[name].state is PipelineState.STOPPED)
        broken = copy(pipelines, topic, f"{name}-broken", f"{checkpoint}-broken", maxOffsetsPerTrigger="few")
        with pytest.raises(StreamingQueryException):
            broken.awaitTermination(60)
        wait_until(lambda: reports(pipelines)[f"{name}-broken"].state is PipelineState.FAILED)
        assert main(["pipeline", "status", "--bootstrap-server", pipelines.bootstrap_servers]) == 0
        assert f"{name}  stopped  batch 0  7 rows" in capsys.readouterr().out
    finally:
        listener.close()
