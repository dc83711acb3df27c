"""The readers: what Spark's driver asks of a batch or a stream, and where its executors begin to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.errors import OttlaError
from ottla.spark.connections import client_options
from ottla.spark.lookup import Lookup
from ottla.spark.offsets import JsonOffsets, OffsetRange, offsets_from_json, offsets_to_json, plan, split
from ottla.spark.options import SourceOptions
from ottla.spark.workers import client_for

if TYPE_CHECKING:
    import pyarrow as pa


class DataLossError(OttlaError):
    """Records that were to be read are no longer there, and the query is not to go on without them."""


class Split(InputPartition):
    """What one task reads."""

    def __init__(self, part: OffsetRange) -> None:
        super().__init__(part)
        self.part = part


class BatchReader(DataSourceReader):
    """Reads between two bounds once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with client_for(options.bootstrap_servers, client_options(options.client)) as client:
            lookup = Lookup(client, options)
            partitions = lookup.partitions()
            start = lookup.resolve(options.starting, partitions)
            end = lookup.made_concrete(lookup.resolve(options.ending, partitions))
        planned = plan(start, end)
        return [
            Split(part) for part in split(planned.ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.reading import read_range

        if not isinstance(partition, Split):  # Spark's stand-in where there is nothing to read
            return iter(())
        return read_range(partition.part, self.options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. One of these lives on the driver as long as its query; others plan and read on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 (Spark's name)
        with self._lookup() as lookup:
            return offsets_to_json(lookup.resolve(self.options.starting, lookup.partitions()))

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802 (Spark's name)
        with self._lookup() as lookup:
            return offsets_to_json(lookup.latest(lookup.partitions()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        pass

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        planned = plan(offsets_from_json(start), offsets_from_json(end))
        options = self.options
        return [
            Split(part) for part in split(planned.ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.reading import read_range

        assert isinstance(partition, Split)
        return read_range(partition.part, self.options)

    @contextmanager
    def _lookup(self) -> Iterator[Lookup]:
        with client_for(self.options.bootstrap_servers, client_options(self.options.client)) as client:
            yield Lookup(client, self.options)
