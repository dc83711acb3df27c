"""`ottla pipeline run` and `stop`, as they are used: in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import ottla
from ottla.client.pipelines import PipelineState
from ottla.spark.pipelines import project
from ottla.spark.pipelines.project import init
from ottla.spark.pipelines.run_file import DIRECTORY_VARIABLE
from ottla.testing.spark import PipelineTest
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.usefixtures("java")

WAIT_S = 240
PROGRAM = """
import os
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
servers = {"kafka.bootstrap.servers": os.environ["OTTLA_BOOTSTRAP_SERVERS"]}
rows = spark.readStream.format("ottla").options(**servers, subscribe="NAME", startingOffsets="earliest").load()
writer = rows.select("value").writeStream.format("ottla").options(**servers, topic="NAME-out", delivery="exactly-once")
query = writer.queryName("NAME").option("checkpointLocation", os.path.join(os.path.dirname(__file__), "state")).start()
query.awaitTermination()
"""


@pytest.fixture(scope="module")
def pipelines() -> Iterator[PipelineTest]:
    with PipelineTest() as running:
        yield running


@pytest.fixture
def program(tmp_path: Path, topic: str, pipelines: PipelineTest) -> Path:
    for name in (topic, f"{topic}-out"):
        pipelines.create_topic(name)
    path = tmp_path / f"{topic}.py"
    path.write_text(PROGRAM.replace("NAME", topic))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "pipeline", *words]


def test_a_program_runs_until_it_is_stopped_from_another_terminal_and_then_once(
    pipelines: PipelineTest, program: Path, topic: str, tmp_path: Path
) -> None:
    environment = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path / "runs")}
    pipelines.feed(topic, ["1", "2"])
    run = command("run", str(program), "--master", "local[2]", "--bootstrap-server", pipelines.bootstrap_servers)
    log = tmp_path / "run.log"
    with log.open("wb") as out, subprocess.Popen(run, env=environment, stdout=out, stderr=out) as running:
        try:
            wait_until(lambda: len(pipelines.rows(f"{topic}-out")) == 2 or running.poll() is not None, timeout_s=WAIT_S)
            assert running.poll() is None, log.read_text()
            stopped = subprocess.run(
                command("stop", topic), env=environment, timeout=WAIT_S, capture_output=True, text=True, check=False
            )
            assert stopped.stdout == f"{topic} has stopped (process {running.pid})\n", stopped.stderr
            assert running.wait(WAIT_S) == 0, log.read_text()
        finally:
            running.kill()
    with ottla.Admin(bootstrap_servers=pipelines.bootstrap_servers) as admin:
        (report,) = [each for each in admin.list_pipelines() if each.name == topic]
    assert report.state is PipelineState.STOPPED
    pipelines.feed(topic, ["3"])
    pipelines.run_project(program, storage=tmp_path)
    pipelines.assert_values(f"{topic}-out", ["1", "2", "3"])


def test_a_query_that_fails_is_the_end_of_a_run(pipelines: PipelineTest, program: Path, tmp_path: Path) -> None:
    program.write_text(program.read_text().replace('"earliest"', '"earlier"'))
    with pytest.raises(AssertionError, match="startingOffsets cannot be 'earlier'"):
        pipelines.run_project(program, storage=tmp_path)


@pytest.mark.skipif(
    any(find_spec(name) is None for name in project.MODULES), reason="pyspark.pipelines is not whole here"
)
def test_the_test_of_a_new_project_passes_and_a_second_run_goes_on(pipelines: PipelineTest, tmp_path: Path) -> None:
    made = init("shop", tmp_path)
    pipelines.create_topic("large-orders")
    pipelines.feed("orders", [{"user": "a", "cents": 1250}, {"user": "b", "cents": 800}, "not an order"])
    storage = tmp_path / "storage"
    storage.mkdir()
    pipelines.run_project(made, storage=storage)
    pipelines.assert_values("large-orders", [{"user": "a", "cents": 1250}])
    pipelines.feed("orders", [{"user": "a", "cents": 3000}])
    pipelines.run_project(made, storage=storage)
    pipelines.assert_values("large-orders", [{"user": "a", "cents": 1250}, {"user": "a", "cents": 3000}])
