"""Reading ranges of partitions: Arrow batches straight from what brokers send.

The records of an answer are decoded by the compiled core into the buffers of Arrow columns, many batches of a producer
into one batch for Spark; none becomes a Python object. The request for what comes next is in flight meanwhile. What is
held is one answer in hand, one on its way and one batch in the making.

Ranges that are small together take a short way: one request to each broker brings them all. Whatever is not as it
should be there, too many bytes, records that are gone or a broker that is silent, is left to the long way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from ottla.client.arrow_rows import ArrowRows
from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.client.fetching import BYTES_PER_OFFSET, FetchedBatch, Fetcher, FetchOptions, OffsetOutOfRangeError
from ottla.client.metadata import Cluster
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.spark.connections import client_of
from ottla.spark.lookup import Lookup, is_gone
from ottla.spark.losses import report_losses
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions

_log = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # of keys, values and headers in an Arrow batch, about
# A new leader may know less for a moment than the one that reported where the log ends. Beyond that, records are lost.
SHORT_LOG_PATIENCE_S: Final = 10.0
SMALL_BYTES_MAX: Final = 4 * 1024 * 1024  # of what goes the short way
SMALL_PATIENCE_S: Final = 5.0
SIZES_KEPT_MAX: Final = 4096
# How large the records of a partition were when this process last read it: the next task asks for as much as it needs.
_sizes: dict[TopicPartition, float] = {}


def read_parts(parts: Sequence[OffsetRange], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of all ranges of a task; several of them are small together."""
    if len(parts) > 1 and (batches := SmallRead(parts, options).batches()) is not None:
        return iter(batches)
    return chain.from_iterable(read_range(part, options) for part in parts)


def read_range(part: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of about `rowsPerBatch`."""
    rows = ArrowRows(options.columns)
    for fetched in _fetched(part, options):
        rows.add(fetched)
        if rows.count >= options.rows_per_batch or rows.size_bytes >= BATCH_BYTES_MAX:
            yield rows.finish()
    if rows.count:
        yield rows.finish()


def _fetch_options(options: SourceOptions) -> FetchOptions:
    settings = options.client
    return FetchOptions(
        isolation=settings.isolation,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        partition_max_bytes=settings.partition_max_bytes,
    )


def _fetched(part: OffsetRange, options: SourceOptions) -> Iterator[FetchedBatch]:
    partition, end = part.partition, part.end_offset
    start: int | None = part.start_offset
    patience = Patience(options.client.read_patience_ms / 1000, part.start_offset)
    with client_of(options) as client:
        while start is not None and start < end:
            fetcher = Fetcher(client.cluster, {partition: start}, {partition: end}, _fetch_options(options), _sizes)
            try:
                yield from _to_the_end(fetcher, client, part, options)
                start = end
            except TimedOutError as error:
                if is_gone(error):
                    report_losses([f"{error}, and {start} to {end - 1} were requested"], options.fail_on_data_loss)
                    return
                start = fetcher.positions[partition]
                if patience.is_over(start):
                    raise
                _log.warning("the task waits for its broker: %s", error)
            except OffsetOutOfRangeError as error:
                start = _start_after(error, fetcher.positions[partition], part, options)
            finally:
                _remember(partition, fetcher.bytes_per_offset[partition])
                client.wait(fetcher.close())


class Patience:
    """For how long no record may come."""

    def __init__(self, patience_s: float, position: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._position, self._since = position, clock()

    def is_over(self, position: int) -> bool:
        if position != self._position:
            self._position, self._since = position, self._clock()
        return self._clock() - self._since >= self._patience_s


def _to_the_end(
    fetcher: Fetcher, client: Blocking, part: OffsetRange, options: SourceOptions
) -> Iterator[FetchedBatch]:
    """Everything up to the end of the range; less where the log ends before it and that is allowed."""
    partition = part.partition
    position, since = fetcher.positions[partition], time.monotonic()
    while not fetcher.is_done:
        yield from client.wait(fetcher.next())
        if fetcher.positions[partition] != position:
            position, since = fetcher.positions[partition], time.monotonic()
        elif time.monotonic() - since > SHORT_LOG_PATIENCE_S:
            log_end = Lookup(client, options).latest([partition])[partition]
            if log_end < part.end_offset:
                loss = f"{partition} ends at {log_end}, and {position} to {part.end_offset - 1} were requested"
                report_losses([loss], options.fail_on_data_loss)
                return
            since = time.monotonic()


def _start_after(error: OffsetOutOfRangeError, position: int, part: OffsetRange, options: SourceOptions) -> int | None:
    """Where to go on after records were found to be gone; None where nothing of the range is left."""
    report_losses([f"{error}, and {position} to {part.end_offset - 1} were requested"], options.fail_on_data_loss)
    return error.log_start_offset if position < error.log_start_offset else None


def _remember(partition: TopicPartition, bytes_per_offset: float) -> None:
    if len(_sizes) >= SIZES_KEPT_MAX:
        _sizes.clear()
    _sizes[partition] = bytes_per_offset


class SmallRead:
    """The records of a few small ranges, one of each partition, on their way since this was made."""

    def __init__(self, parts: Sequence[OffsetRange], options: SourceOptions) -> None:
        self.parts = tuple(parts)
        self._options = options
        with client_of(options) as client:
            self._arriving = client.start(_fetch_small(client.cluster, self.parts, options))

    def batches(self) -> list[pa.RecordBatch] | None:
        """Waits for the records. None: they are to be read the long way."""
        rows = {part.partition: ArrowRows(self._options.columns) for part in self.parts}
        try:
            if (fetched := self._arriving.result()) is None:
                return None
            for each in fetched:
                rows[each.partition].add(each)
        except (OttlaError, TimeoutError) as error:
            _log.info("a small batch could not be read at once; reading one partition after the other: %s", error)
            return None
        # Records that were compressed may have become many.
        if sum(each.size_bytes for each in rows.values()) > SMALL_BYTES_MAX:
            return None
        return [each.finish() for each in rows.values() if each.count]


async def _fetch_small(
    cluster: Cluster, parts: Sequence[OffsetRange], options: SourceOptions
) -> list[FetchedBatch] | None:
    """All batches of the ranges; None where they are not small."""
    if sum(part.size * _sizes.get(part.partition, BYTES_PER_OFFSET) for part in parts) > SMALL_BYTES_MAX:
        return None
    start = {part.partition: part.start_offset for part in parts}
    end = {part.partition: part.end_offset for part in parts}
    found: list[FetchedBatch] = []
    async with (
        asyncio.timeout(SMALL_PATIENCE_S),
        Fetcher(cluster, start, end, _fetch_options(options), _sizes) as fetcher,
    ):
        while not fetcher.is_done:
            found += await fetcher.next()
            for partition, bytes_per_offset in fetcher.bytes_per_offset.items():
                _remember(partition, bytes_per_offset)
            if sum(each.header.size_bytes for each in found) > SMALL_BYTES_MAX:
                return None
    return found
