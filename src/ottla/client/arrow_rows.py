"""Fetched batches as Arrow columns, those of Spark's Kafka source: none of their records becomes a Python object.

Needs the extra `arrow`; nothing that works without it imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ottla.client.fetching import FetchedBatch
from ottla.ids import TopicPartition
from ottla.records import arrow
from ottla.records.codec import ColumnsDecoder

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TICKS_PER_MS: Final = 1000
HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def arrow_schema(columns: Iterable[str] = tuple(ARROW_TYPES)) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[name]) for name in columns])


class _Run(NamedTuple):
    """Rows up to `end` are of one partition and one type of timestamp."""

    end: int
    partition: TopicPartition
    timestamp_type: int


class ArrowRows:
    """An Arrow batch in the making."""

    def __init__(self, columns: Iterable[str] = tuple(ARROW_TYPES)) -> None:
        self._schema = arrow_schema(columns)
        names = self._schema.names
        self._decoder = ColumnsDecoder(
            keys="key" in names, values="value" in names, headers="headers" in names, ticks_per_ms=TICKS_PER_MS
        )
        self._runs: list[_Run] = []

    @property
    def count(self) -> int:
        return self._decoder.row_count

    @property
    def size_bytes(self) -> int:
        return self._decoder.byte_count

    def add(self, fetched: FetchedBatch) -> None:
        fetched.add_to(self._decoder)
        run = _Run(self.count, fetched.partition, int(fetched.header.is_log_append_time))
        if self._runs and self._runs[-1][1:] == run[1:]:
            self._runs.pop()
        self._runs.append(run)

    def finish(self) -> pa.RecordBatch:
        """The rows so far; the next ones begin a new batch."""
        arrays = arrow.arrays_of(self._decoder.finish(), TIMESTAMP)
        for name in self._schema.names:
            match name:
                case "topic":
                    arrays[name] = self._repeated(name, lambda run: run.partition.topic)
                case "partition":
                    arrays[name] = self._repeated(name, lambda run: run.partition.partition)
                case "timestampType":
                    arrays[name] = self._repeated(name, lambda run: run.timestamp_type)
                case "headers":
                    arrays[name] = _null_where_empty(arrays[name])
        self._runs.clear()
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _repeated(self, name: str, value: Callable[[_Run], Any]) -> pa.Array:
        kind = ARROW_TYPES[name]
        start = 0
        runs = []
        for run in self._runs:
            runs.append(pa.repeat(pa.scalar(value(run), kind), run.end - start))
            start = run.end
        if len(runs) == 1:
            return runs[0]
        return pa.concat_arrays(runs) if runs else pa.array([], kind)


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Headers as Spark's own source has them: null for a record without any."""
    if not len(headers.values):
        return pa.nulls(len(headers), HEADERS)
    import pyarrow.compute as pc  # slow to import, and seldom needed

    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, HEADERS, mask=is_empty)
