"""An archive of Java's loaded classes, which a starting Spark maps into memory in place of loading them from its jars.

Java 17 makes one when a program ends (`-XX:ArchiveClassesAtExit`). So it is made once, by a small Spark program of its
own that uses what streams use, for each version of Java and installation of Spark, and kept in the user's cache
directory. That takes the time of two or three starts and 200 MB of disk, so it is done on request:

    python -m ottla.spark.class_archive

Making it is bounded in time, done by one process at a time, and no reason for anything to fail: without an archive, or
with one that does not fit after all, Spark starts as it always did, only slower. Those that are not used go away.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.runtime.cache import cache_directory
from ottla.spark import compat
from ottla.spark.installation import find_java
from ottla.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MAKING_TIMEOUT_S: Final = 300
OUT_OF_TIME: Final = f"it was not created within {MAKING_TIMEOUT_S} s"
FAILED_SUFFIX: Final = ".failed"  # of the file that says why there is none
ENDING_TIMEOUT_S: Final = 60
# After a failure the next attempt waits this long: a start-up must not pay for it each time.
RETRY_AFTER_S: Final = 24 * 3600
ARCHIVES_MAX: Final = 3  # about 200 MB each; those that were not used for the longest time go
UNUSED_MAX_S: Final = 30 * 24 * 3600  # after which one goes anyway
# An archive that does not fit is left aside without a word.
QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options(archive: Path) -> str:
    return f"-XX:SharedArchiveFile={archive} {QUIET}"


def find() -> Path | None:
    """The archive for the Java and the Spark that are installed here, if somebody has made it."""
    try:
        archive = _place()
        if _is_used(archive):
            return archive
        log.info("Spark would start faster with an archive of its classes: python -m ottla.spark.class_archive")
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("Spark starts without a class archive: %s", error)
    return None


def find_or_make() -> Path | None:
    """The archive for the Java and the Spark that are installed here; None where there cannot be one."""
    try:
        (cache_directory() / "spark").mkdir(parents=True, exist_ok=True)
        archive = _place()
        return archive if _is_used(archive) else _make(archive)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("Spark starts without a class archive: %s", error)
        return None


def _place() -> Path:
    return cache_directory() / "spark" / f"{_key()}.jsa"


def _is_used(archive: Path) -> bool:
    """Whether it is there; that it was asked for is kept as its time, which says which ones may go."""
    try:
        os.utime(archive)
    except FileNotFoundError:
        return False
    _remove_old(archive.parent)
    return True


def _key() -> str:
    """What an archive depends on: the version of Java, that of Spark, and where both stand."""
    import pyspark

    java = find_java()
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    places = hashlib.sha256(f"{java.program.resolve()}\0{home}".encode()).hexdigest()[:12]
    return f"java-{java.version}-spark-{pyspark.__version__}-{places}"


def _make(archive: Path) -> Path | None:
    failure = archive.with_suffix(FAILED_SUFFIX)
    if failure.exists() and time.time() - failure.stat().st_mtime < RETRY_AFTER_S:
        log.info("no archive of Spark's classes: creating one failed before, see %s", failure)
        return None
    with _only_one(archive.with_suffix(".lock")) as is_mine:
        if not is_mine:
            log.info("no archive of Spark's classes: another process is creating it")
            return None
        log.warning("creating an archive of Spark's classes, once; later starts will be faster: %s", archive)
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch) / "made.jsa"
            complaint = _run(made)
            if made.exists():
                made.rename(archive)
            else:
                failure.write_text(complaint)
                log.warning("Spark starts without a class archive, see %s", failure)
                return None
    _remove_old(archive.parent)
    return archive


def _run(made: Path) -> str:
    """Runs the program below; returns what it said, for the case that there is no archive afterwards."""
    command = [sys.executable, "-m", "ottla.spark.class_archive", str(made)]
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=MAKING_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME
    return done.stdout


@contextmanager
def _only_one(path: Path) -> Iterator[bool]:
    """Whether this process got the lock; it does not wait for it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _remove_old(directory: Path) -> None:
    """Removes what was not used for long. A Java that runs on one keeps it until it ends."""
    ages = {path: time.time() - path.stat().st_mtime for path in directory.glob("*.jsa")}
    for place, archive in enumerate(sorted(ages, key=ages.__getitem__)):
        if place >= ARCHIVES_MAX or ages[archive] > UNUSED_MAX_S:
            archive.unlink(missing_ok=True)


# -- the program that makes it -----------------------------------------------------------------------------------------


def _use_spark(target: Path) -> None:
    """A short life with what streams do: parse, window, join, keep state, write a table and call Python."""
    from pyspark.sql import SparkSession, functions

    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    scratch = target.parent
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={target} -XX:TieredStopAtLevel=1 {QUIET}")
        .getOrCreate()
    )
    java = compat.java_process(spark)
    spark.range(10).write.parquet(str(scratch / "input"))
    stream = spark.readStream.schema("id long").parquet(str(scratch / "input"))
    parsed = stream.select(functions.from_json(functions.lit('{"a": 1}'), "a int").alias("json"), "id").withColumn(
        "at", functions.timestamp_seconds("id")
    )
    late = parsed.withWatermark("at", "1 second")
    counts = late.groupBy(functions.window("at", "5 seconds")).count()
    joined = late.alias("left").join(late.alias("right"), functions.expr("left.id = right.id AND left.at = right.at"))
    for name, query in {"counts": counts, "joined": joined.select("left.id")}.items():
        query.writeStream.format("parquet").option("path", str(scratch / name)).option(
            "checkpointLocation", str(scratch / f"{name}-checkpoint")
        ).trigger(availableNow=True).start().awaitTermination(MAKING_TIMEOUT_S)
    _read_from_python(spark)
    spark.stop()
    # Java ends when its input does, and makes the archive then.
    assert java.stdin is not None
    java.stdin.close()
    java.wait(ENDING_TIMEOUT_S)


def _read_from_python(spark: SparkSession) -> None:
    """A source in Python that yields Arrow batches, as ours does."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"id": [1]})

    class Source(DataSource):
        def schema(self) -> str:
            return "id long"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    spark.read.format("Source").load().collect()


def main() -> int:
    """Without an argument: makes the archive of this installation. With a path: the program that does it."""
    if len(sys.argv) > 1:
        _use_spark(Path(sys.argv[1]))
        return 0
    logging.basicConfig(format="%(message)s")
    archive = find_or_make()
    print(archive or "there is no archive; Spark starts without it")
    return 0 if archive else 1


if __name__ == "__main__":
    sys.exit(main())
