"""Projects of pipelines: their layout, their specification, and what can be said of them without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking import Blocking
from ottla.errors import ConfigError
from ottla.spark.pipelines import checking, project
from ottla.spark.pipelines.checking import Finding, check_project, check_uses
from ottla.spark.pipelines.definitions import Use
from ottla.spark.pipelines.project import Program, Project, find, init, project_of
from ottla.spark.pipelines.run_file import DIRECTORY_VARIABLE, NotRunningError, RunFile, running_names
from ottla.testing.broker import Broker

needs_pipelines = pytest.mark.skipif(
    any(find_spec(name) is None for name in project.MODULES), reason="pyspark.pipelines is not whole here"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"auto.create.topics.enable": "false"}) as running:
        yield running


# -- the specification -------------------------------------------------------------------------------------------------


def test_a_project_is_laid_out_once(tmp_path: Path) -> None:
    made = init("shop", tmp_path)
    assert {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} == {
        "README.md",
        "spark-pipeline.yaml",
        "tests/test_pipeline.py",
        "transformations/orders.py",
        "transformations/orders_per_user.sql",
    }
    for path in made.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    with pytest.raises(ConfigError, match="exists: choose another name"):
        init("shop", tmp_path)
    with pytest.raises(ConfigError, match="cannot be the name of a pipeline"):
        init("../shop", tmp_path)


GOOD = {"name": "shop", "storage": "file:///data", "libraries": [{"glob": {"include": "transformations/**"}}]}


@pytest.mark.parametrize(
    ("loaded", "match"),
    [
        (None, "is empty"),
        ({**GOOD, "triger": "1s"}, "the unknown field triger; there are catalog, configuration"),
        ({"name": "shop"}, "needs a storage, as text"),
        ({**GOOD, "name": 7}, "needs a name, as text"),
        ({**GOOD, "configuration": {"spark.sql.shuffle.partitions": 2}}, 'is to be text: write "2" in quotes'),
        ({**GOOD, "configuration": ["a"]}, "configuration is names with values"),
        ({**GOOD, "libraries": ["transformations"]}, "libraries is a list of"),
        ({**GOOD, "libraries": [{"glob": {"include": "a/**/*.py"}}]}, "neither a file nor a directory"),
    ],
)
def test_a_field_that_is_wrong_is_named(loaded: object, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        project_of(loaded, Path("/x/spark-pipeline.yaml"))


def test_the_files_of_a_project_are_those_that_spark_finds(tmp_path: Path) -> None:
    made = init("shop", tmp_path)
    (made / "transformations" / "__pycache__").mkdir()
    (made / "transformations" / "__pycache__" / "orders.pyc").touch()
    found = project_of(GOOD, made / "spark-pipeline.yaml")
    assert [path.name for path in found.files] == ["orders.py", "orders_per_user.sql"]


def test_what_is_given_is_a_program_a_project_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("print()")
    target = find(tmp_path / "job.py")
    assert isinstance(target, Program)
    assert target.name == "job"
    with pytest.raises(ConfigError, match="there is no program"):
        find(tmp_path / "other.py")
    with pytest.raises(ConfigError, match=r"there is no spark-pipeline\.yaml in .* or above it"):
        find(tmp_path)
    with pytest.raises(ConfigError, match="give a directory with"):
        find(tmp_path / "nowhere")


def test_what_pipelines_lack_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = init("shop", tmp_path)
    monkeypatch.setattr(project, "find_spec", lambda name: None if name == "grpc" else True)
    with pytest.raises(
        ConfigError, match=r"declared pipelines need grpc, not installed: pip install 'ottla\[pipelines\]'"
    ):
        find(made)


# -- checks ------------------------------------------------------------------------------------------------------------


def problems(findings: list[Finding]) -> list[str]:
    return [finding.problem for finding in findings if not finding.is_good]


def use(broker: Broker, *, is_sink: bool = False, **options: str) -> Use:
    named = {name.replace("__", "."): value for name, value in options.items()}
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return Use("flow orders", is_sink, True, {**servers, **named})


def test_options_and_topics_are_looked_at(broker: Broker) -> None:
    found = check_uses(
        [
            use(broker, subscribe="orders"),
            use(broker, subscribe="orders", maxOffsetsPerTrigger="few"),
            use(broker, subscribePattern="ord.*"),
            use(broker, is_sink=True, topic="large", delivery="twice"),
            use(broker, is_sink=True, topic="large"),
            use(broker, is_sink=True, colour="red", topic="large"),
            use(broker, is_sink=True),
        ]
    )
    assert problems(found) == [
        "the topic does not exist: `ottla topics create orders` makes it",
        "maxOffsetsPerTrigger cannot be 'few': write a whole number of at least 1",
        "delivery cannot be 'twice': write at-least-once or exactly-once",
        *["the topic does not exist: `ottla topics create large` makes it"] * 2,
    ]
    notes = [finding.note for finding in found if finding.note]
    assert notes == [
        "there is none now; new ones are read once they exist",
        "unknown, and ignored: is it spelled right?",
        "the topic of each row is in its column `topic`",
    ]


def test_a_broker_that_is_not_there_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    calls: list[str] = []

    class Counted(Blocking):
        def __init__(self, servers: str, *rest: Any) -> None:
            calls.append(servers)
            super().__init__(servers, *rest)

    monkeypatch.setattr(checking, "Blocking", Counted)
    found = check_uses([Use("flow a", False, True, nowhere), Use("flow b", False, True, nowhere)])
    assert [finding.where for finding in found if "127.0.0.1:1" in finding.problem] == ["flow a", "flow b"]
    assert len(calls) == 1


@needs_pipelines
def test_a_new_project_needs_its_topics_only(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    found = find(init("shop", tmp_path))
    assert isinstance(found, Project)
    assert {finding.what for finding in check_project(found)} == {"topic orders", "topic large-orders"}
    assert len(problems(check_project(found))) == 2


@needs_pipelines
@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("import nowhere", "cannot be loaded: ModuleNotFoundError"),
        ("x = (", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path, text: str, match: str) -> None:
    made = init("shop", tmp_path)
    (made / "transformations" / "orders.py").write_text(text)
    target = find(made)
    assert isinstance(target, Project)
    with pytest.raises(ConfigError, match=match):
        check_project(target)


@needs_pipelines
def test_a_function_that_needs_more_of_spark_is_left_to_spark(tmp_path: Path) -> None:
    made = init("shop", tmp_path)
    text = "from pyspark import pipelines as dp\n\n@dp.table\ndef orders():\n    return spark.range(1).count() + 1\n"
    (made / "transformations" / "orders.py").write_text(text)
    target = find(made)
    assert isinstance(target, Project)
    (finding,) = check_project(target)
    assert finding.is_good
    assert "only Spark can tell" in finding.note


def test_a_project_without_transformations_or_storage_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "spark-pipeline.yaml"
    assert problems(check_project(project_of(GOOD, path))) == ["there are no files with transformations"]
    made = init("shop", tmp_path)
    relative = project_of({**GOOD, "storage": "./data"}, made / "spark-pipeline.yaml")
    assert "Spark wants a whole URI" in problems(check_project(relative))[0]


# -- which of them run -------------------------------------------------------------------------------------------------

HOLDER = """
import signal, sys
from ottla.runtime.stop_flag import StopFlag
from ottla.spark.pipelines.run_file import RunFile
stopping = StopFlag()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
with RunFile("shop").held():
    print("held", flush=True)
    stopping.wait(600)
"""


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_pipeline_runs_once_at_a_time_and_is_stopped_from_elsewhere(run_directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            assert running_names() == ["shop"]
            with pytest.raises(ConfigError, match=f"runs already, as process {holder.pid}"), RunFile("shop").held():
                pass
            assert RunFile("shop").stop(60) == holder.pid
            assert holder.wait(60) == 0
        finally:
            holder.kill()
    assert running_names() == []
    with pytest.raises(NotRunningError, match="no pipeline shop runs here; running: none"):
        RunFile("shop").stop(1)


def test_a_file_that_a_killed_process_left_says_nothing(run_directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGKILL)
    assert (run_directory / "shop.pid").read_text() == f"{holder.pid}\n"
    assert RunFile("shop").pid is None
    with RunFile("shop").held():
        assert RunFile("shop").pid == os.getpid()
