"""Whole jobs: a topic into a table, a table into a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.decode.columns import decode, encode
from ottla.spark.decode.formats import Format
from ottla.spark.tables.changes import Envelope, appended
from ottla.spark.tables.delta import StorageOptions, Table
from ottla.spark.tables.sink import ERROR, DeltaSink, Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Options = Mapping[str, str]


def topic_to_table(
    spark: SparkSession,
    topic: str,
    path: str,
    options: Options,
    *,
    checkpoint: str,
    how: Format | None = None,
    key_how: Format | None = None,
    mode: Mode = "append",
    keys: Sequence[str] = (),
    partition_by: Sequence[str] | Mapping[str, str] = (),
    envelope: Envelope = "none",
    compact_every: int = 0,
    trigger: Mapping[str, Any] | None = None,
    storage_options: StorageOptions | None = None,
) -> StreamingQuery:
    """Starts a query that writes a topic to a Delta table, from its beginning unless `options` say otherwise.

    options: those of the source, `kafka.bootstrap.servers` at least.
    how, key_how: how values and keys are decoded; without one the table has the columns of a record.
    trigger: Spark's, `{"availableNow": True}` for what is there now.
    """
    sink = DeltaSink(
        path,
        mode=mode,
        keys=keys,
        partition_by=partition_by,
        envelope=envelope,
        compact_every=compact_every,
        storage_options=storage_options,
    )
    rows = _decoded(spark, topic, options, how, key_how)
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def topic_to_parquet(
    spark: SparkSession,
    topic: str,
    path: str,
    options: Options,
    *,
    checkpoint: str,
    how: Format,
    partition_by: Sequence[str] = (),
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """The same as plain Parquet files, by Spark's own sink, which is exactly once for readers that are Spark.

    What cannot be decoded fails the query: a directory of files has no place beside it.
    """
    source = _source(spark, topic, options)
    rows = appended(decode(source, how, mode="failfast").drop(ERROR), "none")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", path)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    return (writer.trigger(**trigger) if trigger else writer).start()


def _source(spark: SparkSession, topic: str, options: Options) -> DataFrame:
    given = {"startingOffsets": "earliest", "includeHeaders": "true", **options, "subscribe": topic}
    return spark.readStream.format("ottla").options(**given).load()


def _decoded(
    spark: SparkSession, topic: str, options: Options, how: Format | None, key_how: Format | None
) -> DataFrame:
    rows = _source(spark, topic, options)
    if how is not None:
        rows = decode(rows, how)
    if key_how is not None:
        rows = decode(rows, key_how, column="key", into="key_decoded", error="key_error")
    return rows


def read_table(
    spark: SparkSession, path: str, *, version: int | None = None, storage_options: StorageOptions | None = None
) -> DataFrame:
    """A Delta table as a DataFrame, read by Spark's own Parquet reader: no jar is needed."""
    table = Table(path, storage_options)
    if not table.exists:
        raise ConfigError(f"there is no Delta table at {path}")
    return _read(spark, path, table, table.file_uris(version))


def _read(spark: SparkSession, path: str, table: Table, files: Sequence[str]) -> DataFrame:
    if not files:
        return spark.createDataFrame([], table.schema)
    rows = spark.read.schema(table.schema).option("basePath", path).parquet(*files)
    return rows.select(*[f"`{name}`" for name in table.schema.names])


def table_to_topic(
    spark: SparkSession,
    path: str,
    topic: str,
    options: Options,
    *,
    how: Format,
    key: str | None = None,
    since_version: int | None = None,
    storage_options: StorageOptions | None = None,
) -> int:
    """Writes the rows of a Delta table to a topic and returns the table's version, for the next time.

    key: an expression of Spark's for the records' keys, such as `cast(number as string)`.
    since_version: only rows of files that were added after this version. A compaction rewrites files, and what it
        rewrote counts as added: write from a table that is compacted without this.
    """
    table = Table(path, storage_options)
    if not table.exists:
        raise ConfigError(f"there is no Delta table at {path}")
    files = set(table.file_uris())
    if since_version is not None:
        files -= set(table.file_uris(since_version))
    rows = _read(spark, path, table, sorted(files))
    packed = rows.selectExpr("struct(*) AS row", *([f"{key} AS key"] if key else []))
    records = encode(packed, how, column="row")
    records.write.format("ottla").mode("append").options(**options).option("topic", topic).save()
    return table.version
