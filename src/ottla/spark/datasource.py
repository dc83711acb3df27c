"""`format("ottla")`: where Spark finds the readers and the writers.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

Spark creates one of these for every call, in processes of its own and on the executors. Modules that are not always
needed are imported where they are used, because the start of a worker is part of every first batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla import compiled
from ottla.errors import ConfigError

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


class OttlaDataSource(DataSource):
    """Topics as tables: the options, columns and checkpoints of Spark's own Kafka source and sink."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # What a worker logs nobody reads; this reaches whoever sent the zip file.
        if compiled.zip_file() is not None and (complaint := compiled.complaint()) is not None:
            raise ConfigError(complaint)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from ottla.spark import options, schema

        # Whether the query is a stream is not known here; what differs for one is checked when it is read.
        return schema.spark_schema(options.columns_of(dict(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark import compat, source

        options = self._source_options(is_streaming=False)
        # What such a reader plans stays with the DataFrame, and other queries of that get it too: hence the option.
        takes_filters = options.push_filters and compat.is_pushing_filters()
        return source.FilteringReader(options) if takes_filters else source.BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from ottla.spark import source
        from ottla.spark.option_reader import OptionError

        try:
            return source.StreamReader(self._source_options(is_streaming=True))
        except OptionError as error:
            return source.RejectedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark import compat, sink

        compat.freeze_planner()
        return sink.BatchSink(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from ottla.spark import compat, sink

        compat.freeze_planner()
        return sink.StreamSink(dict(self.options), schema, overwrite)

    def _source_options(self, *, is_streaming: bool) -> SourceOptions:
        from ottla.spark import options

        parsed = options.parse(dict(self.options), is_streaming=is_streaming)
        if parsed.client.security is not None:
            parsed.client.security.check_files()
        return parsed
