"""The sink of a stream into a Delta table: for `foreachBatch`.

    decoded.writeStream.foreachBatch(DeltaSink("./tables/orders")).option("checkpointLocation", ...).start()

Each batch is one commit, marked with the query and the batch's number. A driver that dies after the commit and before
Spark has noted that the batch is done runs it again; the mark is there, and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs lack it
from pyspark.sql.types import StringType, StructType

from ottla.client.serializers.extras import extra
from ottla.errors import ConfigError
from ottla.spark.arrow_types import arrow_type
from ottla.spark.tables.changes import (
    DECODED,
    KEY_DECODED,
    ORDER,
    Envelope,
    appended,
    changed,
    latest,
    without_keys,
)
from ottla.spark.tables.delta import DELETED, BatchId, StorageOptions, Table
from ottla.spark.tables.files import WriteFiles, WrittenFile, check_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode = Literal["append", "upsert"]

ERROR: Final = "error"
KEY_ERROR: Final = "key_error"
# Where Spark keeps the id of the query that runs a batch.
QUERY_ID: Final = "sql.streaming.queryId"


class DeltaSink:
    """Writes the rows of `decode`, or any others, to the table at `path`."""

    def __init__(
        self,
        path: str,
        *,
        mode: Mode = "append",
        keys: Sequence[str] = (),
        partition_by: Sequence[str] | Mapping[str, str] = (),
        envelope: Envelope = "none",
        query: str | None = None,
        compact_every: int = 0,
        storage_options: StorageOptions | None = None,
    ) -> None:
        """mode: append every row, or upsert by `keys`: the last change of each key counts, and tombstones delete.

        partition_by: columns, or names with Spark's expressions: `{"date": "date(_timestamp)"}`.
        envelope: `debezium` for its change events.
        query: what commits are marked with; by default the id of the query, which is that of its checkpoint.
        compact_every: compacts the table's files after so many batches; 0 leaves that to `compact`.
        """
        extra("deltalake", "tables")
        if mode not in ("append", "upsert"):
            raise ConfigError(f"mode is append or upsert, not {mode!r}")
        if (mode == "upsert") != bool(keys):
            raise ConfigError("upsert needs keys, and append has none")
        self.path = path.rstrip("/")
        self._mode = mode
        self._keys = tuple(keys)
        self._derived = dict(partition_by) if isinstance(partition_by, Mapping) else {}
        self._partition_by = tuple(partition_by)
        self._envelope: Envelope = envelope
        self._query = query
        self._compact_every = compact_every
        self._storage_options = dict(storage_options or {})

    @property
    def dead_letters(self) -> str:
        """The path of the table of rows that could not be decoded."""
        return f"{self.path}~dlq"

    def __call__(self, rows: DataFrame, number: int) -> None:
        """One micro-batch. Rows with an `error` go to the table beside this one."""
        batch = BatchId(self._query or _query_of(rows), number)
        is_read_twice = ERROR in rows.columns or self._mode == "upsert"
        if is_read_twice:
            rows = rows.persist()
        try:
            good, bad = self._split(rows)
            if bad is not None:
                self._append(self.dead_letters, bad, batch, ())
            if self._mode == "append":
                self._append(self.path, appended(good, self._envelope), batch, self._partition_by)
            else:
                self._upsert(good, batch)
        finally:
            if is_read_twice:
                rows.unpersist()
        self._maybe_compact(number)

    # -- append --------------------------------------------------------------------------------------------------------

    def _append(self, path: str, rows: DataFrame, batch: BatchId, partition_by: tuple[str, ...]) -> None:
        table = Table(path, self._storage_options)
        if table.has(batch):
            return
        if partition_by:
            rows = self._with_derived(rows)
        check_partitions(rows.schema, partition_by)
        if table.exists:  # a table with another schema: said before anything is written
            table.prepare(rows.schema, partition_by)
        files = _written(rows, path, partition_by)
        if files:
            table.prepare(rows.schema, partition_by)
            table.append(files, batch)

    def _with_derived(self, rows: DataFrame) -> DataFrame:
        for name, expression in self._derived.items():
            rows = rows.withColumn(name, F.expr(expression))
        return rows

    # -- upsert --------------------------------------------------------------------------------------------------------

    def _upsert(self, rows: DataFrame, batch: BatchId) -> None:
        table = Table(self.path, self._storage_options)
        if table.has(batch):
            return
        changes = self._with_derived(latest(rows, self._keys))
        columns = StructType([each for each in changes.schema.fields if each.name != DELETED])
        check_partitions(columns, self._partition_by)
        found = changes.toArrow()
        if not found.num_rows:
            return
        table.prepare(columns, self._partition_by)
        source = pa.schema(list(arrow_type(changes.schema)))
        table.merge(found.cast(source), self._keys, batch)

    # -- what cannot be decoded ----------------------------------------------------------------------------------------

    def _split(self, rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Rows for the table, and those for the one of dead letters."""
        errors = [name for name in (ERROR, KEY_ERROR) if name in rows.columns]
        bad: DataFrame | None = None
        good = rows
        if errors:
            reason = F.coalesce(*[F.col(name) for name in errors])
            bad = rows.where(reason.isNotNull()).withColumn(ERROR, reason)
            bad = bad.drop(DECODED, KEY_DECODED, KEY_ERROR)
            good = rows.where(reason.isNull()).drop(*errors)
        if self._mode == "upsert":
            changes = changed(good, self._keys, self._envelope)
            lacks_key = without_keys(self._keys)
            if bad is None and changes.where(lacks_key).limit(1).count():
                raise ConfigError(f"rows without the key columns {', '.join(self._keys)}: decode the key as well")
            if bad is not None:
                bad = bad.unionByName(_keyless(good, changes.where(lacks_key), self._keys), allowMissingColumns=True)
            good = changes.where(~lacks_key)
        return good, bad

    def _maybe_compact(self, number: int) -> None:
        if self._compact_every and (number + 1) % self._compact_every == 0:
            table = Table(self.path, self._storage_options)
            if table.exists:
                table.compact()


def _keyless(rows: DataFrame, changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Records whose change lacks a key, as they came."""
    reason = F.lit(f"the record has no {', '.join(keys)}: neither its value nor its decoded key")
    places = changes.select(F.col("_partition").alias("partition"), F.col(ORDER).alias("offset"))
    return rows.join(places, ["partition", "offset"], "left_semi").drop(DECODED, KEY_DECODED).withColumn(ERROR, reason)


def _written(rows: DataFrame, path: str, partition_by: tuple[str, ...]) -> list[WrittenFile]:
    """The rows as files, written by Spark's workers. Only those of tasks that ended well come back."""
    run = arrow_udf(WriteFiles(path, rows.schema, partition_by).run, StringType())
    written = rows.select(run.asNondeterministic()(F.struct("*")).alias("files")).where("files IS NOT NULL").collect()
    return [file for row in written for file in WrittenFile.of_text(row.files)]


def _query_of(rows: DataFrame) -> str:
    try:
        found = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except AttributeError:  # Spark Connect, where the driver is elsewhere
        found = None
    if found is None:
        raise ConfigError("rows that are not of a streaming query need `query`, a name that commits are marked with")
    return str(found)
