"""`format("ottla")`: where Spark finds the readers and the writers.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

Spark makes one of these for every question it has, in processes of its own and on the executors. Whatever is not needed
for all of them is imported where it is needed: the start of a worker is part of every first batch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from ottla.spark.options import SourceOptions

FORMAT = "ottla"
# Spark asks for filters in a process of this kind, if `spark.sql.python.filterPushdown.enabled` is on. It refuses a
# reader that takes filters anywhere else where that setting is off, and does not tell which of both is the case. What
# such a reader plans stays with the DataFrame, and other queries of that get it too: hence the option `pushFilters`.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class OttlaDataSource(DataSource):
    """Topics as tables: the options, columns and checkpoints of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from ottla.spark import options, schema

        # Whether the query is a stream is not known here; what differs for one is checked when it is read.
        return schema.spark_schema(options.columns_of(dict(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark import source

        options = self._source_options(is_streaming=False)
        takes_filters = options.push_filters and _is_pushing_filters()
        return source.FilteringReader(options) if takes_filters else source.BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from ottla.spark import source

        return source.StreamReader(self._source_options(is_streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark import sink

        return sink.BatchSink(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from ottla.spark import sink

        return sink.StreamSink(dict(self.options), schema, overwrite)

    def _source_options(self, *, is_streaming: bool) -> SourceOptions:
        from ottla.spark import options

        return options.parse(dict(self.options), is_streaming=is_streaming)


def _is_pushing_filters() -> bool:
    if _PUSHDOWN_WORKER in sys.modules:
        return True
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _PUSHDOWN_WORKER
