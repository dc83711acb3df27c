"""What we use of pyspark's private parts is there and has the shape that we rely on.

A failure here means that pyspark has changed: look at each use in `ottla.spark.compat`, run `make spark`, and then add
the release to `CHECKED_RELEASES`.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import ottla.spark
from ottla.spark import compat

pyspark = pytest.importorskip("pyspark")

from pyspark import SparkContext, daemon  # noqa: E402 (where it is installed)
from pyspark.sql.datasource import DataSourceStreamReader  # noqa: E402
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper  # noqa: E402
from pyspark.sql.streaming import python_streaming_source_runner  # noqa: E402

from ottla.spark.source import StreamReader  # noqa: E402


def test_the_installed_release_is_one_that_was_checked() -> None:
    assert compat.is_checked_release()
    assert compat.can_hand_over()


@pytest.mark.parametrize(
    ("version", "is_checked"), [("4.3.0", True), ("4.3.7", True), ("4.4.0", False), ("4.30", False)]
)
def test_releases_are_told_apart_by_their_first_two_numbers(version: str, is_checked: bool) -> None:
    assert compat.is_checked_release(version) == is_checked


def test_spark_asks_a_prefetching_reader_for_its_records_after_the_plan() -> None:
    assert list(inspect.signature(_SimpleStreamReaderWrapper.getCache).parameters) == ["self", "start", "end"]
    planning = inspect.getsource(python_streaming_source_runner.partitions_func)
    asked = planning.index("isinstance(reader, _SimpleStreamReaderWrapper)")
    assert planning.index("reader.partitions(start_offset, end_offset)") < asked < planning.index("reader.getCache(")


def test_a_reader_hands_its_records_over_once_and_is_what_it_was_before() -> None:
    reader = StreamReader.__new__(StreamReader)
    for records in (["first"], ["second"]):
        compat.hand_over(reader, records)
        assert isinstance(reader, _SimpleStreamReaderWrapper)
        assert isinstance(reader, StreamReader)
        assert list(reader.getCache({}, {}) or ()) == records
        assert type(reader) is StreamReader
    assert not issubclass(StreamReader, _SimpleStreamReaderWrapper)
    assert issubclass(_SimpleStreamReaderWrapper, DataSourceStreamReader)


def test_sparks_daemon_calls_the_worker_that_its_module_holds() -> None:
    assert list(inspect.signature(daemon.worker).parameters) == ["sock", "authenticated"]
    assert "worker(sock, authenticated)" in inspect.getsource(daemon.manager)


FREEZES = """
import gc, runpy, sys
from pyspark import daemon
from ottla.spark.datasource import OttlaDataSource
from pyspark.sql.types import BinaryType, StructField, StructType

def plan():
    source = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"})
    source.streamWriter(StructType([StructField("value", BinaryType())]), False)
    return gc.get_freeze_count()

assert plan() == 0, "a program of a user"
sys.modules["__main__"].__spec__ = daemon.__spec__
first = plan()
gc.unfreeze()
assert plan() == 0, "nothing was loaded since"
sys.modules["one.more"] = gc
print(first > 0, plan() > 0)
"""


def test_a_worker_that_plans_collects_no_garbage_among_what_it_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", FREEZES], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True"]
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as classes:
        factory = classes.read("org/apache/spark/api/python/PythonWorkerFactory$.class")
    assert compat.PLANNERS_DAEMON.encode() in factory


def test_filters_are_asked_for_in_a_process_of_their_own() -> None:
    assert find_spec(compat.PUSHDOWN_WORKER) is not None
    assert not compat.is_pushing_filters()


def test_the_gateway_says_whether_java_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compat.GATEWAY_VARIABLE, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert not compat.is_java_running()
    monkeypatch.setenv(compat.GATEWAY_VARIABLE, "1")
    assert compat.is_java_running()
    from pyspark import java_gateway

    assert compat.GATEWAY_VARIABLE in inspect.getsource(java_gateway)


def test_the_checkpoint_manager_is_a_class_of_spark() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as classes:
        assert compat.FILE_CHECKPOINT_MANAGER.replace(".", "/") + ".class" in classes.namelist()


def test_a_task_finds_its_query_and_batch_under_these_names() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as classes:
        executions = [
            name for name in classes.namelist() if "/StreamExecution" in name or "/MicroBatchExecution" in name
        ]
        text = b"".join(map(classes.read, executions))
    for name in (compat.QUERY_PROPERTY, compat.BATCH_PROPERTY):
        assert name.encode() in text
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as classes:
        assert compat.RUN_PROPERTY.encode() in classes.read("org/apache/spark/SparkContext$.class")


def test_with_another_release_nothing_private_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "is_checked_release", lambda: False)
    compat._prefetching_reader.cache_clear()
    try:
        assert not compat.can_hand_over()
        assert set(ottla.spark.settings()) == {
            "spark.ui.enabled",
            "spark.sql.redaction.options.regex",
            "spark.python.unix.domain.socket.enabled",
            "spark.sql.python.filterPushdown.enabled",
        }
    finally:
        compat._prefetching_reader.cache_clear()
