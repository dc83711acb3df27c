"""Segment files as rows, without a broker: read by Spark's workers, a file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.client.arrow_rows import ArrowRows
from ottla.client.fetching import FetchedBatch
from ottla.errors import ConfigError, OttlaError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.batch import ScanEnd
from ottla.spark.options import COLUMNS, HEADERS_COLUMN
from ottla.spark.schema import spark_schema
from ottla.storage.directory_names import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "ottla-segments"
EVERY_COLUMN: Final = (*COLUMNS, HEADERS_COLUMN)
ROWS_PER_BATCH: Final = 65_536
BYTES_PER_BATCH: Final = 32 * 1024 * 1024


class DamagedSegmentError(OttlaError):
    """A file that is not a whole segment."""


def segment_rows(spark: SparkSession, directory: str) -> DataFrame:
    """The records of all partitions below a log directory, or of one partition's directory.

    Control records are left out; records of aborted transactions are not. Every worker must see the directory.
    """
    find_segments(Path(directory))  # what is wrong with it is said before Spark asks
    spark.dataSource.register(SegmentsDataSource)
    return spark.read.format(FORMAT).load(directory)


class SegmentsDataSource(DataSource):
    """A log directory as a table, a task for each file."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(EVERY_COLUMN)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _SegmentsReader(self.options["path"])


class _SegmentFile(InputPartition):
    def __init__(self, path: str, partition: TopicPartition) -> None:
        super().__init__(path)
        self.path = path
        self.partition = partition


class _SegmentsReader(DataSourceReader):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def partitions(self) -> Sequence[InputPartition]:
        return [_SegmentFile(str(path), partition) for path, partition in find_segments(Path(self._directory))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _SegmentFile)
        return read_segment(Path(partition.path), partition.partition)


def find_segments(directory: Path) -> list[tuple[Path, TopicPartition]]:
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}")
    found = []
    for path in sorted([*directory.glob("*.log"), *directory.glob("*/*.log")]):
        partition = partition_of(path.resolve().parent.name)
        if partition is not None and path.stem.isdecimal():
            found.append((path, partition))
    if not found:
        raise ConfigError(f"{directory} has no segments: give a log directory, or the directory of a partition")
    return found


def read_segment(path: Path, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
    """The records of one file; a DamagedSegmentError for bytes that are no sound batch, wherever they are."""
    data = memoryview(path.read_bytes())
    scanned = batch.scan(data)
    if scanned.ended is not ScanEnd.END:
        raise DamagedSegmentError(
            f"{path}: byte {scanned.end_position} begins no sound batch; `ottla dump-log --verify` shows more"
        )
    rows = ArrowRows(EVERY_COLUMN)
    for header, position in zip(scanned.headers, scanned.positions, strict=True):
        if header.is_control:
            continue
        rows.add(FetchedBatch(partition, header, data, position, header.base_offset, header.end_offset))
        if rows.count >= ROWS_PER_BATCH or rows.size_bytes >= BYTES_PER_BATCH:
            yield rows.finish()
    if rows.count:
        yield rows.finish()
