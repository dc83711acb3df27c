"""Delta tables through `deltalake`: created, evolved, committed to, compacted. The only module that imports it.

Runs on the driver. A commit carries the application transaction (query, batch), which is how a batch is found again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from ottla.client.serializers.extras import extra
from ottla.errors import ConfigError
from ottla.runtime.clock import SystemClock
from ottla.spark.arrow_types import arrow_type

if TYPE_CHECKING:
    from ottla.spark.tables.files import WrittenFile

TARGET_BYTES: Final = 128 << 20
KEPT_HOURS: Final = 7 * 24
DELETED: Final = "_deleted"

StorageOptions = Mapping[str, str]


def _delta() -> Any:
    return extra("deltalake", "tables")


@dataclass(frozen=True, slots=True)
class BatchId:
    """A micro-batch of a query: what a commit is marked with."""

    query: str
    number: int


class Table:
    """A Delta table at a path, as it was when it was opened or last written."""

    def __init__(self, path: str, storage_options: StorageOptions | None = None) -> None:
        self.path = path
        self._storage_options = dict(storage_options or {})
        self._table: Any = self._open()

    def _open(self) -> Any:
        delta = _delta()
        if not delta.DeltaTable.is_deltatable(self.path, self._storage_options or None):
            return None
        return delta.DeltaTable(self.path, storage_options=self._storage_options or None)

    @property
    def exists(self) -> bool:
        return self._table is not None

    def has(self, batch: BatchId) -> bool:
        """Whether a batch, or a later one of its query, is in the table."""
        if self._table is None:
            return False
        version = self._table.transaction_version(batch.query)
        return version is not None and version >= batch.number

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._table.schema().to_json()))

    @property
    def partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def file_uris(self, version: int | None = None) -> list[str]:
        if version is None:
            return list(self._table.file_uris())
        table = _delta().DeltaTable(self.path, version=version, storage_options=self._storage_options or None)
        return list(table.file_uris())

    # -- schema --------------------------------------------------------------------------------------------------------

    def prepare(self, columns: StructType, partition_by: Sequence[str]) -> StructType:
        """Creates the table, or adds the columns that are new; a ConfigError where types or partitions differ."""
        if missing := [name for name in partition_by if name not in columns.names]:
            raise ConfigError(f"{self.path} is to be partitioned by {', '.join(missing)}, which the rows do not have")
        nullable = StructType([StructField(each.name, each.dataType, True) for each in columns.fields])
        if self._table is None:
            _delta().DeltaTable.create(
                self.path,
                _arrow_schema(nullable),
                mode="ignore",  # somebody else may have been first: then it is theirs that is compared
                partition_by=list(partition_by) or None,
                storage_options=self._storage_options or None,
            )
            self._table = self._open()
        if self.partition_columns != list(partition_by):
            raise ConfigError(
                f"{self.path} is partitioned by {self.partition_columns or 'nothing'}, not by {list(partition_by)}"
            )
        if new := new_columns(self.schema, nullable, self.path):
            fields = _delta().Schema.from_json(StructType(new).json()).fields
            self._table.alter.add_columns(fields)
            self._table.update_incremental()
        return self.schema

    # -- commits -------------------------------------------------------------------------------------------------------

    def append(self, files: Sequence[WrittenFile], batch: BatchId) -> None:
        """Makes files that were written part of the table."""
        action = extra("deltalake.transaction", "tables").AddAction
        now_ms = SystemClock().now_ms()
        self._table.create_write_transaction(
            [
                action(
                    path=each.path,
                    size=each.size_bytes,
                    partition_values=each.partition,
                    modification_time=now_ms,
                    data_change=True,
                    stats=json.dumps({"numRecords": each.row_count}),
                )
                for each in files
            ],
            "append",
            self._table.schema(),
            self.partition_columns,
            commit_properties=_marked(batch),
        )

    def merge(self, rows: pa.Table, keys: Sequence[str], batch: BatchId) -> None:
        """Inserts, updates and, where `_deleted` is true, deletes rows by their keys."""
        same = " AND ".join(f"target.`{key}` = source.`{key}`" for key in keys)
        merger = self._table.merge(
            rows, same, source_alias="source", target_alias="target", commit_properties=_marked(batch)
        )
        kept = f"source.`{DELETED}` = false"
        merger = merger.when_matched_delete(f"source.`{DELETED}` = true")
        merger = merger.when_matched_update_all(kept, except_cols=[DELETED])
        merger.when_not_matched_insert_all(kept, except_cols=[DELETED]).execute()

    def compact(self, target_bytes: int = TARGET_BYTES) -> dict[str, Any]:
        found: dict[str, Any] = self._table.optimize.compact(target_size=target_bytes)
        return found

    def vacuum(self, kept_hours: int, *, enforces: bool) -> list[str]:
        return list(self._table.vacuum(kept_hours, dry_run=False, enforce_retention_duration=enforces))


def new_columns(own: StructType, given: StructType, path: str) -> list[StructField]:
    """Columns that a table lacks. Its types are never changed."""
    known = {each.name: each.dataType for each in own.fields}
    new = []
    for each in given.fields:
        if each.name not in known:
            new.append(each)
        elif known[each.name].simpleString() != each.dataType.simpleString():
            raise ConfigError(
                f"{path} has a column {each.name} of {known[each.name].simpleString()}, and the rows have one of "
                f"{each.dataType.simpleString()}: cast it, rename it, or write to another table"
            )
    return new


def _marked(batch: BatchId) -> Any:
    delta = _delta()
    return delta.CommitProperties(app_transactions=[delta.Transaction(batch.query, batch.number)])


def _arrow_schema(columns: StructType) -> pa.Schema:
    return pa.schema(list(arrow_type(columns)))


def compact(
    path: str, *, target_bytes: int = TARGET_BYTES, storage_options: StorageOptions | None = None
) -> dict[str, Any]:
    """Rewrites small files as larger ones; readers see the same rows. Streams may write meanwhile."""
    return _existing(path, storage_options).compact(target_bytes)


def vacuum(
    path: str, *, kept_hours: int = KEPT_HOURS, storage_options: StorageOptions | None = None, force: bool = False
) -> list[str]:
    """Deletes files that the table has not used for this long, and those that failed tasks left behind.

    Less than a week needs `force`: a task that is still writing would lose its files.
    """
    return _existing(path, storage_options).vacuum(kept_hours, enforces=not force)


def _existing(path: str, storage_options: StorageOptions | None) -> Table:
    table = Table(path, storage_options)
    if not table.exists:
        raise ConfigError(f"there is no Delta table at {path}")
    return table
