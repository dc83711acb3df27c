"""Reading a range of a partition on an executor: Arrow batches straight from what brokers send.

The records of an answer are decoded by the compiled core into the buffers of Arrow columns, many batches of a producer
into one batch for Spark; none becomes a Python object. The request for what comes next is under way meanwhile. What is
held is one answer in hand, one on its way and one batch in the making.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ottla.client.blocking import Blocking
from ottla.client.fetching import FetchedBatch, Fetcher, FetchOptions, OffsetOutOfRangeError
from ottla.client.retrying import TimedOutError
from ottla.ids import TopicPartition
from ottla.records import arrow
from ottla.records.codec import ColumnsDecoder
from ottla.spark.connections import client_options
from ottla.spark.lookup import Lookup, is_gone
from ottla.spark.losses import bear
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.schema import HEADERS, TICKS_PER_MS, TIMESTAMP, arrow_schema
from ottla.spark.workers import client_for

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # of keys, values and headers in an Arrow batch, about
# A new leader may know less for a moment than the one that told where the log ends. Beyond that, records are lost.
SHORT_LOG_PATIENCE_S: Final = 10.0
SIZES_KEPT_MAX: Final = 4096
# How large the records of a partition were when this process last read it: the next task asks for as much as it needs.
_sizes: dict[TopicPartition, float] = {}


def read_range(part: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of about `rowsPerBatch`."""
    rows = _Rows(part.partition, options.columns)
    for fetched in _fetched(part, options):
        rows.add(fetched)
        if rows.count >= options.rows_per_batch or rows.size_bytes >= BATCH_BYTES_MAX:
            yield rows.finish()
    if rows.count:
        yield rows.finish()


def _fetched(part: OffsetRange, options: SourceOptions) -> Iterator[FetchedBatch]:
    settings = options.client
    fetch_options = FetchOptions(
        isolation=settings.isolation,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        partition_max_bytes=settings.partition_max_bytes,
    )
    partition, end = part.partition, part.end_offset
    start: int | None = part.start_offset
    with client_for(options.bootstrap_servers, client_options(settings)) as client:
        while start is not None and start < end:
            fetcher = Fetcher(client.cluster, {partition: start}, {partition: end}, fetch_options, _sizes)
            try:
                yield from _to_the_end(fetcher, client, part, options)
                start = end
            except TimedOutError as error:
                if not is_gone(error):
                    raise
                bear([f"{error}, and {start} to {end - 1} were to be read"], options.fail_on_data_loss)
                return
            except OffsetOutOfRangeError as error:
                start = _start_after(error, fetcher.positions[partition], part, options)
            finally:
                _remember(partition, fetcher.bytes_per_offset[partition])
                client.wait(fetcher.close())


def _to_the_end(
    fetcher: Fetcher, client: Blocking, part: OffsetRange, options: SourceOptions
) -> Iterator[FetchedBatch]:
    """Everything up to the end of the range; less where the log ends before it and that is to be borne."""
    partition = part.partition
    position, since = fetcher.positions[partition], time.monotonic()
    while not fetcher.is_done:
        yield from client.wait(fetcher.next())
        if fetcher.positions[partition] != position:
            position, since = fetcher.positions[partition], time.monotonic()
        elif time.monotonic() - since > SHORT_LOG_PATIENCE_S:
            log_end = Lookup(client, options).latest([partition])[partition]
            if log_end < part.end_offset:
                loss = f"{partition} ends at {log_end}, and {position} to {part.end_offset - 1} were to be read"
                bear([loss], options.fail_on_data_loss)
                return
            since = time.monotonic()


def _start_after(error: OffsetOutOfRangeError, position: int, part: OffsetRange, options: SourceOptions) -> int | None:
    """Where to go on after records were found to be gone; None where nothing of the range is left."""
    bear([f"{error}, and {position} to {part.end_offset - 1} were to be read"], options.fail_on_data_loss)
    return error.log_start_offset if position < error.log_start_offset else None


def _remember(partition: TopicPartition, bytes_per_offset: float) -> None:
    if len(_sizes) >= SIZES_KEPT_MAX:
        _sizes.clear()
    _sizes[partition] = bytes_per_offset


class _Rows:
    """An Arrow batch of one partition in the making."""

    def __init__(self, partition: TopicPartition, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._partition = partition
        self._decoder = ColumnsDecoder(
            keys="key" in columns,
            values="value" in columns,
            headers="headers" in columns,
            ticks_per_ms=TICKS_PER_MS,
        )
        self._types: list[tuple[int, int]] = []  # rows up to which a timestamp type holds, and the type

    @property
    def count(self) -> int:
        return self._decoder.row_count

    @property
    def size_bytes(self) -> int:
        return self._decoder.byte_count

    def add(self, fetched: FetchedBatch) -> None:
        fetched.add_to(self._decoder)
        timestamp_type = int(fetched.header.is_log_append_time)
        if self._types and self._types[-1][1] == timestamp_type:
            self._types.pop()
        self._types.append((self.count, timestamp_type))

    def finish(self) -> pa.RecordBatch:
        count = self.count
        arrays = arrow.arrays_of(self._decoder.finish(), TIMESTAMP)
        for name in self._schema.names:
            match name:
                case "topic":
                    arrays[name] = pa.repeat(pa.scalar(self._partition.topic, pa.string()), count)
                case "partition":
                    arrays[name] = pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count)
                case "timestampType":
                    arrays[name] = self._timestamp_types()
                case "headers":
                    arrays[name] = _null_where_empty(arrays[name])
        self._types.clear()
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _timestamp_types(self) -> pa.Array:
        start = 0
        runs = []
        for end, timestamp_type in self._types:
            runs.append(pa.repeat(pa.scalar(timestamp_type, pa.int32()), end - start))
            start = end
        return runs[0] if len(runs) == 1 else pa.concat_arrays(runs)


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Headers as Spark's own source has them: null for a record without any."""
    if not len(headers.values):
        return pa.nulls(len(headers), HEADERS)
    import pyarrow.compute as pc  # slow to import, and seldom needed

    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, HEADERS, mask=is_empty)
