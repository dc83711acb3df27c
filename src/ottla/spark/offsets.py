"""Offsets of partitions: their JSON in checkpoints, the ranges of a batch, splits for tasks, limits per trigger. Pure.

A checkpoint holds the offsets of a stream as Spark's Kafka source writes them, `{"topic":{"0":n}}`, so one checkpoint
serves both. Spark tells offsets apart by their JSON text: topics and partitions always come in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from math import ceil, floor
from typing import Final

from ottla.ids import TopicPartition

# In place of an offset: where the log starts, where it ends now. The numbers are Kafka's and Spark's.
EARLIEST: Final = -2
LATEST: Final = -1
OFFSET_MAX: Final = 2**63 - 1

Offsets = Mapping[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]


def offsets_to_json(offsets: Offsets) -> JsonOffsets:
    """What goes into a checkpoint, in the one order."""
    nested: JsonOffsets = {}
    for topic, number in sorted(offsets):
        nested.setdefault(topic, {})[str(number)] = offsets[TopicPartition(topic, number)]
    return nested


def offsets_from_json(nested: Mapping[str, object]) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint or of an option; ValueError for anything of another shape."""
    offsets: dict[TopicPartition, int] = {}
    for topic, of_topic in nested.items():
        if not isinstance(of_topic, Mapping):
            raise ValueError(f"{topic} has {of_topic!r} instead of its partitions")
        for number, offset in of_topic.items():
            if not str(number).isdecimal() or type(offset) is not int or abs(offset) > OFFSET_MAX:
                raise ValueError(f"{topic} has {number!r}: {offset!r}, which is not a partition with its offset")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


# -- ranges ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """`[start_offset, end_offset)` of a partition."""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges between two offsets of a stream, and what shows that records between them are gone."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...] = ()


def plan(start: Offsets, end: Offsets) -> Plan:
    """What lies between `start` and `end`. It follows from these two alone: a batch that is run again is the same.

    A partition that only `end` has is new and read from its beginning. LATEST in `start` stands for "where the stream
    begins": that batch reads nothing of it, and its end is where the next one starts.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for partition in sorted(end):
        first, last = start.get(partition, 0), end[partition]
        if first in (LATEST, last):
            continue
        if last < first:
            losses.append(f"{partition} went back from offset {first} to {last}; it may have been recreated")
        else:
            ranges.append(OffsetRange(partition, first, last))
    gone = sorted(start.keys() - end)
    losses += [f"{partition} no longer exists; it was read up to {start[partition]}" for partition in gone]
    return Plan(tuple(ranges), tuple(losses))


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges cut for tasks: none larger than `max_records`, at least `min_partitions` where there is enough to cut.

    Large ranges are cut first, so that the parts become of like size.
    """
    whole = [each for each in ranges if each.size > 0]
    counts = [1 if max_records is None else ceil(each.size / max_records) for each in whole]
    # The range whose parts are the largest is cut once more, until there are enough; a single offset is not cut.
    largest = [(-each.size / count, index) for index, (each, count) in enumerate(zip(whole, counts, strict=True))]
    heapify(largest)
    for _ in range(sum(counts), min_partitions or 0):
        size, index = largest[0] if largest else (0.0, 0)
        if size >= -1:
            break
        counts[index] += 1
        heapreplace(largest, (-whole[index].size / counts[index], index))
    return [part for each, count in zip(whole, counts, strict=True) for part in _cut(each, count)]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.start_offset + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.partition, first, last) for first, last in pairwise(edges)]


def gathered(parts: Iterable[OffsetRange], together_max: int) -> list[tuple[OffsetRange, ...]]:
    """The parts for tasks: neighbours that have at most `together_max` offsets in all are read by one.

    Starting a task takes longer than reading a few hundred records, and most batches of a stream are small.
    """
    tasks: list[list[OffsetRange]] = []
    room = 0
    for part in parts:
        if part.size > room or not tasks:
            tasks.append([])
            room = together_max
        tasks[-1].append(part)
        room -= part.size
    return [tuple(task) for task in tasks]


# -- limits ------------------------------------------------------------------------------------------------------------


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets are new; a partition that `start` does not have counts from 0."""
    return sum(each.size for each in plan(start, end).ranges)


def limited(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """An end at most about `limit` offsets after `start`, shared out by what each partition has. Each gets some."""
    ranges = {each.partition: each for each in plan(start, end).ranges}
    total = sum(each.size for each in ranges.values())
    if total <= limit:
        return dict(end)
    ends = dict(end)
    for partition, each in ranges.items():
        share = limit * (each.size / total)
        # Rounded up only where a partition would get nothing at all and never move.
        step = ceil(share) if share < 1 else floor(share)
        ends[partition] = min(each.end_offset, each.start_offset + step)
    return ends
