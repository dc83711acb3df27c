"""The readers: what Spark's driver asks of a batch or a stream, and where its executors begin to read.

A `StreamReader` lives on the driver, in a process of its own, as long as its query. Copies of it travel to the
executors, which need the options only. What a batch of a stream reads follows from its start and its end alone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.errors import TimedOutError
from ottla.spark import compat
from ottla.spark.connections import client_of
from ottla.spark.filters import EVERYTHING, Selection, narrowed
from ottla.spark.group_progress import GroupProgress, check_group_is_free
from ottla.spark.lookup import Lookup
from ottla.spark.losses import report_losses
from ottla.spark.offsets import (
    LATEST,
    JsonOffsets,
    OffsetRange,
    Offsets,
    count_between,
    gathered,
    limited,
    offsets_from_json,
    offsets_to_json,
    plan,
    split,
)
from ottla.spark.option_reader import OptionError
from ottla.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.reading import SmallRead

_log = logging.getLogger(__name__)

# The wait of a stream that has no records begins with this and doubles, up to `idleWaitMs`. Spark asks the sources
# of a query one after the other: a long wait at once would hold up the others of a query that is busy.
FIRST_WAIT_MS: Final = 10
TOGETHER_MAX: Final = 1000  # offsets of several partitions that one task reads


class Split(InputPartition):
    """What one task reads: a part of a partition, or several that are small."""

    def __init__(self, parts: tuple[OffsetRange, ...]) -> None:
        super().__init__(parts)
        self.parts = parts


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    from ottla.spark.reading import read_parts  # where records are read only: it brings Arrow

    if not isinstance(partition, Split):  # Spark's stand-in where there is nothing to read
        return iter(())
    return read_parts(partition.parts, options)


@contextmanager
def _lookup_for(options: SourceOptions, *, is_first_contact: bool = False) -> Iterator[Lookup]:
    with client_of(options, is_first_contact=is_first_contact) as client:
        yield Lookup(client, options)


def _report_ignored(options: SourceOptions) -> None:
    if options.ignored:
        _log.warning('format("ottla") ignores these unknown options: %s', ", ".join(options.ignored))


def _splits(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[Split]:
    parts = split(ranges, options.min_partitions, options.max_records_per_partition)
    # Whoever asks for a number of tasks, or limits them, gets what was asked for.
    return [Split(task) for task in gathered(parts, 0 if options.names_tasks else TOGETHER_MAX)]


class BatchReader(DataSourceReader):
    """Reads between two bounds once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.selection = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        _report_ignored(options)
        with _lookup_for(options, is_first_contact=True) as lookup:
            partitions = lookup.partitions()
            start = lookup.resolve(options.starting, partitions)
            end = self._reachable(lookup.made_concrete(lookup.resolve(options.ending, partitions)), lookup)
            self._check_order(start, end)
            ranges = self.selection.ranges(plan(start, end).ranges)
            if self.selection.since_ms is not None:
                ranges = lookup.since(self.selection.since_ms, ranges)
        return _splits(ranges, options)

    def _check_order(self, start: Offsets, end: Offsets) -> None:
        """A query that begins after its end has an option that is wrong; no rows would hide that."""
        for partition in sorted(start.keys() & end.keys()):
            if start[partition] > end[partition]:
                starting, ending = self.options.starting.option, self.options.ending.option
                raise OptionError(
                    f"{starting} of {partition} is offset {start[partition]}, and {ending} is offset {end[partition]}:"
                    " give a start that is not after the end, nor after the last record"
                )

    def _reachable(self, end: Offsets, lookup: Lookup) -> Offsets:
        """Offsets that somebody wrote by hand may lie beyond the end of the log."""
        if self.options.ending.offsets is None:
            return end
        last = lookup.latest(end)
        losses = [
            f"{partition} ends at {last[partition]}, and {self.options.ending.option} asks for {offset}"
            for partition, offset in end.items()
            if offset > last[partition]
        ]
        if losses:
            report_losses(losses, self.options.fail_on_data_loss)
        return {partition: min(offset, last[partition]) for partition, offset in end.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options)


class FilteringReader(BatchReader):
    """The same, with filters of the query that show what need not be read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Takes what it can; returns the filters that Spark has to apply all the same."""
        self.selection, left = narrowed(Selection(), filters)
        return left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self._clock = clock
        self._target: Offsets | None = None  # where a query with Trigger.AvailableNow ends
        self._seen: Offsets | None = None  # the ends of the logs when they were last asked for
        self._small_read: SmallRead | None = None  # the next batch, where it is small
        self._idle_rounds = 0
        self._progress: GroupProgress | None = None
        self._last_trigger = -math.inf  # what was left when the query stopped does not wait for more

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        return StreamReader, (self.options,)

    # -- on the driver -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 (Spark's name)
        """Where a new query starts. LATEST stays as it is: it becomes an offset at the end of the first batch.

        Spark writes the end of a batch down, and asks for the start of the first one again if that is interrupted. A
        number would be another one then, and what came in between would be lost.
        """
        with _lookup_for(self.options, is_first_contact=True) as lookup:
            lookup.check_group()
            return offsets_to_json(lookup.resolve(self.options.starting, lookup.partitions()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        with _lookup_for(self.options, is_first_contact=True) as lookup:
            self._target = lookup.latest(lookup.partitions())

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802 (Spark's name)
        """Where the next batch ends. With nothing to read it waits a while, so that Spark does not ask in a circle."""
        begin = offsets_from_json(start)
        if self._seen is None:
            _report_ignored(self.options)
        with self._reporting(begin):
            return self._next_end(start, begin, limit)

    def _next_end(self, start: JsonOffsets, begin: Offsets, limit: ReadLimit) -> JsonOffsets:
        if self._target is not None:
            self._seen = self._target
            return self._end_of_batch(begin, limit)
        with _lookup_for(self.options) as lookup:
            self._seen = lookup.latest_after(begin)
            if self._seen == begin:
                self._wait_for_records(lookup, begin)
                self._seen = lookup.latest_after(begin)
        if self._seen == begin:
            self._idle_rounds += 1
            return start
        if self._is_too_little(begin, self._seen, limit):
            time.sleep(self.options.idle_wait_ms / 1000)
            return start
        self._idle_rounds = 0
        self._last_trigger = self._clock()
        return self._end_of_batch(begin, limit)

    @contextmanager
    def _reporting(self, done: Offsets) -> Iterator[None]:
        """Commits what is done to the group, if there is one: Spark asks for more only once a batch is done."""
        if self.options.group is None:
            yield
            return
        with client_of(self.options) as client:
            if self._progress is None:
                check_group_is_free(client, self.options.group)
                self._progress = GroupProgress(self.options.group)
            committing = self._progress.begin(client, done)
            try:
                yield
            finally:
                self._progress.finish(committing)

    def _wait_for_records(self, lookup: Lookup, begin: Offsets) -> None:
        wait_ms = min(FIRST_WAIT_MS << min(self._idle_rounds, 16), self.options.idle_wait_ms)
        # Connections of its own: a broker that lets a request wait reads no other one meanwhile.
        try:
            with client_of(self.options, purpose="waiting") as client:
                lookup.wait_for_records(client, begin, wait_ms)
        except TimedOutError as error:
            _log.info("no connection to wait for records: %s", error)  # the next look at the ends waits for a broker

    def _is_too_little(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether a batch is to wait for more records, as minOffsetsPerTrigger and maxTriggerDelay have it."""
        least = self.options.min_offsets_per_trigger
        # Where the stream begins, or partitions went, there is nothing to wait for.
        if least is None or isinstance(limit, ReadAllAvailable) or LATEST in begin.values() or begin.keys() - end:
            return False
        if (self._clock() - self._last_trigger) * 1000 >= self.options.max_trigger_delay_ms:
            return False
        return count_between(begin, end) < least

    def _end_of_batch(self, begin: Offsets, limit: ReadLimit) -> JsonOffsets:
        assert self._seen is not None
        end = limited(begin, self._seen, limit.max_rows) if isinstance(limit, ReadMaxRows) else self._seen
        # Spark writes the offsets down before it plans the batch: time enough to bring a few records.
        self._small_read = self._begin_small_read(_splits(plan(begin, end).ranges, self.options))
        return offsets_to_json(end)

    def _begin_small_read(self, splits: Sequence[Split]) -> SmallRead | None:
        """Begins to read a batch that is so small that it travels with its plan; None where executors are to read."""
        if len(splits) != 1 or self.options.names_tasks or not compat.can_hand_over():
            return None
        parts = splits[0].parts
        if sum(part.size for part in parts) > self.options.small_batch_offsets:
            return None
        from ottla.spark.reading import SmallRead  # it brings Arrow

        return SmallRead(parts, self.options)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802 (Spark's name)
        return None if self._seen is None else offsets_to_json(self._seen)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        planned = plan(offsets_from_json(start), offsets_from_json(end))
        if planned.losses:
            report_losses(planned.losses, self.options.fail_on_data_loss)
        splits = _splits(planned.ranges, self.options)
        read, self._small_read = self._small_read, None
        # After a restart Spark plans the last batch again, without asking where it ends.
        if read is None or [read.parts] != [each.parts for each in splits]:
            read = self._begin_small_read(splits)
        if read is not None and (records := read.batches()) is not None:
            compat.hand_over(self, records)
        return splits

    def commit(self, end: JsonOffsets) -> None:
        """A batch has run: whatever it was, this query is not idle."""
        self._idle_rounds = 0

    # -- on executors --------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options)


class RejectedStreamReader(DataSourceStreamReader):
    """A stream with wrong options. Each call says what is wrong with them.

    Where a source cannot make its reader, pyspark's runner fails over a variable of its own and buries the reason.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _reject(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 (Spark's name)
        self._reject()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        self._reject()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802 (Spark's name)
        self._reject()

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        self._reject()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._reject()
