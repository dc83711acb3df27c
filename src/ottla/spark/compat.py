"""Everything that we use of pyspark and that pyspark keeps private, in one place.

Each piece was checked with the releases in `CHECKED_RELEASES`. With any other release no optional one is used: queries
then run as Spark alone would run them, only slower. `tests/unit/spark/test_compat.py` fails when pyspark changes one.

pyspark is imported where it is needed: what a session would set can be asked for without it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader

CHECKED_RELEASES: Final = frozenset({"4.3"})

# A Java class of Spark: it writes checkpoints through Hadoop's `FileSystem`, without the detour of `FileContext`.
FILE_CHECKPOINT_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# How the environment says that spark-submit has started a Java machine for this program already.
GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
# With it in the environment pyspark makes columns and expressions without Java, as it does for a server elsewhere.
CONNECT_VARIABLE: Final = "SPARK_CONNECT_MODE_ENABLED"
# What a client of a Connect server shows; Java and Python read it from the environment.
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
# The module of the process in which Spark asks for filters.
PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
# The module of the daemon whose workers plan reads and writes and commit batches, whatever a session says of daemons.
PLANNERS_DAEMON: Final = "pyspark.daemon"

# Properties of the jobs of a streaming query, which its tasks can ask for: query, run and batch.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
RUN_PROPERTY: Final = "spark.jobGroup.id"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


def is_checked_release(version: str | None = None) -> bool:
    """Whether the installed pyspark, or the one of that version, is of a release that this module was checked with."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    return ".".join(version.split(".")[:2]) in CHECKED_RELEASES


def is_java_running() -> bool:
    """Whether the Java machine of this process was started already, here or by spark-submit."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or GATEWAY_VARIABLE in os.environ


def java_process(spark: SparkSession) -> subprocess.Popen[bytes]:
    """The Java machine that this process has started for its session."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "this process started Java by itself"
    java: subprocess.Popen[bytes] = gateway.proc
    return java


def is_pushing_filters() -> bool:
    """Whether this is the process in which Spark asks for filters.

    There is one only if `spark.sql.python.filterPushdown.enabled` is on. Spark refuses a reader that takes filters
    anywhere else where that setting is off, and does not say which of both is the case.
    """
    return PUSHDOWN_WORKER in sys.modules or _main_module() == PUSHDOWN_WORKER


def _main_module() -> str | None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else spec.name


class _Planner:
    """What this process remembers from one call to the next, where it is a worker that plans."""

    module_count = 0


def freeze_planner() -> None:
    """Where this is a worker that plans, takes what was loaded since its last call out of the collections of garbage.

    Spark's daemon has its workers collect after every call. Each batch of a stream has two of them, one that makes the
    writer and one that commits: together that was 25 ms of CPU for walking over modules. Workers that run tasks have
    `worker_daemon` for the same.
    """
    if len(sys.modules) > _Planner.module_count and _main_module() == PLANNERS_DAEMON:
        _Planner.module_count = len(sys.modules)
        gc.freeze()


# -- records that travel with the plan of a batch ----------------------------------------------------------------------


def can_hand_over() -> bool:
    """Whether `hand_over` works with this pyspark."""
    return _prefetching_reader() is not None


def hand_over(reader: DataSourceStreamReader, records: list[pa.RecordBatch]) -> None:
    """Gives Spark the records of a batch together with the plan that `reader.partitions` is about to return.

    Spark keeps them as a block that tasks read without a Python worker. It asks only readers of a private class of its
    own for them, so the reader becomes one, until Spark has taken the records right after the plan.
    """
    reader.__class__ = _with_records(type(reader))
    reader._ottla_records = records  # type: ignore[attr-defined]


@cache
def _with_records(reader_class: type[DataSourceStreamReader]) -> type[DataSourceStreamReader]:
    prefetching: Any = _prefetching_reader()
    assert prefetching is not None, "can_hand_over was not asked"

    class WithRecords(reader_class, prefetching):  # type: ignore[misc,valid-type]
        def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802 (Spark's name)
            self.__class__ = reader_class  # type: ignore[assignment]
            records: list[pa.RecordBatch] = self.__dict__.pop("_ottla_records")
            return iter(records)

    return WithRecords


@cache
def _prefetching_reader() -> type | None:
    if not is_checked_release():
        return None
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    return _SimpleStreamReaderWrapper


# -- a client of the Connect server in this process --------------------------------------------------------------------


@contextmanager
def connected(server: SparkSession) -> Iterator[Any]:
    """A session of Spark Connect with the server that `server` runs as a plugin, on whatever port it has."""
    from pyspark import SparkContext
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    service = getattr(SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    before = os.environ.get(CONNECT_VARIABLE)
    os.environ[CONNECT_VARIABLE] = "1"  # functions and columns are then those of this session
    remote = RemoteSession.builder.remote(f"sc://localhost:{port}").create()
    try:
        yield remote
    finally:
        remote.client.close()
        if before is None:
            del os.environ[CONNECT_VARIABLE]
