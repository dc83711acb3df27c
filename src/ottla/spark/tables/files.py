"""Rows of a task as Parquet files in the directory of a table: what an executor does.

Files are invisible until the driver commits them. Those of tasks that failed stay behind until the table is vacuumed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet
from pyspark.sql import types as spark

from ottla.errors import ConfigError
from ottla.spark.arrow_types import arrow_type

# What a task collects before it writes: a file of each partition value of it.
COLLECTED_BYTES_MAX: Final = 128 << 20
NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
PARTITION_TYPES: Final = (
    spark.StringType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.BooleanType,
    spark.DateType,
)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str  # in the directory of the table; its log escapes it
    size_bytes: int
    row_count: int
    partition: Mapping[str, str | None]

    @staticmethod
    def of_text(text: str) -> list[WrittenFile]:
        """The files that a task tells the driver of."""
        return [WrittenFile(**each) for each in json.loads(text)]


def check_partitions(columns: spark.StructType, partition_by: tuple[str, ...]) -> None:
    for name in partition_by:
        if name in columns.names and not isinstance(columns[name].dataType, PARTITION_TYPES):
            kind = columns[name].dataType.simpleString()
            raise ConfigError(f"a table cannot be partitioned by {name}, which is of {kind}: derive a date or a text")


@dataclass(frozen=True)
class WriteFiles:
    """Writes the batches of a task. Spark calls `run` in a Python worker."""

    path: str
    columns: spark.StructType
    partition_by: tuple[str, ...]

    def run(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Takes rows as structs and returns a text for each: null, or the files that were written up to it.

        Always one batch behind, so that the last one can tell of the files that its end completes.
        """
        schema = pa.schema(list(arrow_type(self.columns)))
        collected: list[pa.Array] = []
        size = waiting = 0
        for batch in batches:
            if waiting:
                is_full = size >= COLLECTED_BYTES_MAX
                yield _texts(waiting, self._written(collected, schema) if is_full else [])
                if is_full:
                    collected, size = [], 0
            collected.append(batch)
            size += batch.nbytes
            waiting = len(batch)
        if waiting:
            yield _texts(waiting, self._written(collected, schema))

    def _written(self, batches: list[pa.Array], schema: pa.Schema) -> list[WrittenFile]:
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(each) for each in batches]).cast(schema)
        return [self._write(rows, partition) for partition, rows in parts_of(table, self.partition_by)]

    def _write(self, rows: pa.Table, partition: dict[str, str | None]) -> WrittenFile:
        directories = [f"{name}={_directory(value)}" for name, value in partition.items()]
        name = "/".join([*directories, f"part-{uuid.uuid4()}.snappy.parquet"])
        system, root = filesystem_of(self.path)
        target = f"{root}/{name}"
        system.create_dir(target.rpartition("/")[0], recursive=True)
        with system.open_output_stream(target) as stream:
            pyarrow.parquet.write_table(rows, stream, compression="snappy", coerce_timestamps="us")
        size: int = system.get_file_info(target).size
        return WrittenFile(name, size, rows.num_rows, partition)


def _texts(count: int, files: list[WrittenFile]) -> pa.Array:
    text = json.dumps([asdict(each) for each in files]) if files else None
    return pa.array([text, *[None] * (count - 1)], pa.string())


def filesystem_of(path: str) -> tuple[Any, str]:
    if "://" in path:
        system, root = pyarrow.fs.FileSystem.from_uri(path)
        return system, root.rstrip("/")
    return pyarrow.fs.LocalFileSystem(), path.rstrip("/")


def parts_of(table: pa.Table, partition_by: tuple[str, ...]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each value of the partition columns, without those columns."""
    if not partition_by:
        yield {}, table
        return
    for values in table.group_by(list(partition_by)).aggregate([]).to_pylist():
        chosen = None
        for name, value in values.items():
            column = table.column(name)
            same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
            chosen = same if chosen is None else pc.and_(chosen, same)
        yield (
            {name: _text(values[name]) for name in partition_by},
            table.filter(chosen).drop_columns(list(partition_by)),
        )


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _directory(value: str | None) -> str:
    """A value as the name of a directory, in Hive's manner."""
    return quote(value, safe="") if value else NULL_DIRECTORY
