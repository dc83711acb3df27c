"""`format("ottla")` as a sink: the rows of a DataFrame into topics, in batches and streams, at least or exactly once.

Columns are those of Spark's own Kafka sink: `value`, and if there are any `key`, `headers`, `topic` and `partition`;
others are left alone. What is wrong with options and columns is found out here, on the driver. Spark makes a writer
several times for every batch of a stream, so this module loads nothing heavy: what writes rows is in `writing.py`,
which only executors load, and what commits them in `delivery`. Both writers travel there and hold values only.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from ottla.spark import sink_options
from ottla.spark.option_reader import OptionError
from ottla.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

HEADERS: Final = "array<struct<key:string,value:binary>>"


class ColumnError(OptionError):
    """A column that is missing, or whose type is none that a record can be made of."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has written. All of it is in its topics before Spark learns of it: nothing is left to commit."""

    record_count: int


class BatchSink(DataSourceArrowWriter):
    """Writes the rows of `DataFrame.write`."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic cannot be overwritten: write with mode("append")')
        self._options = _checked(options, schema)
        # This object travels to the executors and back to the commit: one name for all parts of this write.
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return _write(self._options, iterator)
        from ottla.spark.delivery import sink
        from ottla.spark.delivery.decision import Writer

        return sink.write_batch_task(self._options, Writer(f"batch-{self._name}", self._name), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(self._options, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of `DataFrame.writeStream`. In complete mode every one is the whole result again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = _checked(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.is_exactly_once:
            return _write(self._options, iterator)
        from ottla.spark.delivery import sink

        return sink.write_stream_task(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        _abort(self._options, messages)


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if options.is_exactly_once:
        from ottla.spark.delivery import sink

        sink.commit(options, messages)


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if options.is_exactly_once:
        from ottla.spark.delivery import sink

        sink.abort(options, messages)


def _write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    from ottla.spark import writing

    return Written(writing.write(options, batches))


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    parsed = sink_options.parse(options)
    check_columns(schema, has_topic=parsed.topic is not None, has_timestamps=parsed.keeps_timestamps)
    if parsed.security is not None:
        parsed.security.check_files()
    _report_once(parsed.ignored)
    return parsed


_told: set[str] = set()


def _report_once(names: tuple[str, ...]) -> None:
    new = [name for name in names if name not in _told]
    if new:
        _told.update(new)
        log.warning("options that the sink ignores: %s", ", ".join(new))


# -- columns -----------------------------------------------------------------------------------------------------------


def check_columns(schema: StructType, *, has_topic: bool, has_timestamps: bool = False) -> None:
    """A `ColumnError` that says what to change, unless records can be made of these columns."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ColumnError(
            f"there is no column `value`, only {', '.join(types) or 'none at all'}: the content of the records"
            " must be in one, for example by selectExpr('to_json(struct(*)) AS value')"
        )
    if not has_topic and "topic" not in types:
        raise ColumnError("no topic to write to: give the option topic, or a column `topic` with a name in every row")
    _check(types, "topic", StringType, "a string")
    _check(types, "key", (StringType, BinaryType), "a string or binary")
    _check(types, "value", (StringType, BinaryType), "a string or binary")
    _check(types, "partition", IntegerType, "an int")
    if has_timestamps and not isinstance(types.get("timestamp"), TimestampType):
        raise ColumnError("keepTimestamps needs a column `timestamp` of the type timestamp")
    if "headers" in types and not _are_headers(types["headers"]):
        raise ColumnError(f"the column `headers` is {HEADERS}, and not {types['headers'].simpleString()}")


def _check(
    types: Mapping[str, DataType], name: str, allowed: type[DataType] | tuple[type[DataType], ...], words: str
) -> None:
    if name in types and not isinstance(types[name], allowed):
        raise ColumnError(
            f"the column `{name}` is {words}, and not {types[name].simpleString()}: cast it, such as"
            f" {name}.cast('{'int' if name == 'partition' else 'string'}')"
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
