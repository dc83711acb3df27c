"""What the filters of a query say about where its records lie. Pure.

Spark pushes filters on columns that stand alone, joined by AND. Those on topic, partition and offset are answered in
full by reading less. One on the timestamp gives a first offset, but times may go back in a log: Spark applies it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla.spark.offsets import OffsetRange

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that may pass: None stands for all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def ranges(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What is left of these ranges."""
        return [
            OffsetRange(each.partition, start, end)
            for each in ranges
            if self.topics is None or each.partition.topic in self.topics
            if self.partitions is None or each.partition.partition in self.partitions
            if (start := max(each.start_offset, self.start_offset))
            < (end := each.end_offset if self.end_offset is None else min(each.end_offset, self.end_offset))
        ]


EVERYTHING = Selection()


def narrowed(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """What passes these filters too, and the filters that somebody else must apply."""
    left: list[Filter] = []
    for each in filters:
        smaller = _narrowed_by(selection, each)
        if smaller is None or smaller.since_ms != selection.since_ms:
            left.append(each)
        selection = smaller or selection
    return selection, left


def _narrowed_by(selection: Selection, each: Filter) -> Selection | None:
    """None for a filter that says nothing about places."""
    match each:
        case IsNotNull((column,)) if column in NEVER_NULL:
            return selection
        case EqualTo((column,), value):
            return _among(selection, column, (value,)) or _between(selection, column, value, 0, 1)
        case In((column,), values):
            return _among(selection, column, values)
        case GreaterThanOrEqual((column,), value):
            return _between(selection, column, value, 0, None)
        case GreaterThan((column,), value):
            return _between(selection, column, value, 1, None)
        case LessThan((column,), value):
            return _between(selection, column, value, None, 0)
        case LessThanOrEqual((column,), value):
            return _between(selection, column, value, None, 1)
    return None


def _among(selection: Selection, column: str, values: Iterable[object]) -> Selection | None:
    if column == "topic":
        topics = frozenset(value for value in values if isinstance(value, str))
        return replace(selection, topics=topics if selection.topics is None else selection.topics & topics)
    if column == "partition":
        numbers = frozenset(value for value in values if isinstance(value, int))
        return replace(
            selection, partitions=numbers if selection.partitions is None else selection.partitions & numbers
        )
    return None


def _between(selection: Selection, column: str, value: object, first: int | None, end: int | None) -> Selection | None:
    """`first` and `end` are added to the value: from there on, up to there; None leaves a side open."""
    if column == "offset" and isinstance(value, int):
        start_offset, end_offset = selection.start_offset, selection.end_offset
        if first is not None:
            start_offset = max(start_offset, value + first)
        if end is not None:
            end_offset = value + end if end_offset is None else min(end_offset, value + end)
        return replace(selection, start_offset=start_offset, end_offset=end_offset)
    # A time without a zone would be one of the session, which is not known here.
    if column == "timestamp" and first is not None and isinstance(value, datetime) and value.tzinfo is not None:
        since_ms = int(value.timestamp() * 1000) - 1  # rounded down for certain; Spark looks at each record again
        return replace(selection, since_ms=max(since_ms, selection.since_ms or 0, 0))
    return None
