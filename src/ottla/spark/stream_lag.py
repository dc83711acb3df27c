"""How far a stream is behind, from the progress that Spark reports after each batch. Pure.

    behind = ottla.spark.lag(query.lastProgress)
    behind.max_offsets, behind.partitions

The numbers are those that Spark's own Kafka source has in the metrics of its progress (`maxOffsetsBehindLatest` and its
kin). Spark gives a source in Python no way to report metrics; the offsets that they follow from are in every progress.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.ids import TopicPartition
from ottla.spark.offsets import LATEST, Offsets, offsets_from_json


@dataclass(frozen=True, slots=True)
class Lag:
    """The offsets between what a batch has read and what its partitions had when it was planned."""

    partitions: Mapping[TopicPartition, int]

    @property
    def total_offsets(self) -> int:
        return sum(self.partitions.values())

    @property
    def max_offsets(self) -> int:
        return max(self.partitions.values(), default=0)

    @property
    def min_offsets(self) -> int:
        return min(self.partitions.values(), default=0)

    @property
    def avg_offsets(self) -> float:
        return self.total_offsets / len(self.partitions) if self.partitions else 0.0

    def metrics(self) -> dict[str, str]:
        """Under the names, and as the text, that Spark's own source has."""
        return {
            "minOffsetsBehindLatest": str(self.min_offsets),
            "maxOffsetsBehindLatest": str(self.max_offsets),
            "avgOffsetsBehindLatest": str(self.avg_offsets),
        }


def lag(progress: Any) -> Lag:
    """The lag of a progress (`StreamingQuery.lastProgress`, or one that a listener is given), of all topics in it.

    A source whose offsets are not those of topics has no part in it; a query without a batch so far is not behind.
    """
    behind: dict[TopicPartition, int] = {}
    for source in _field(progress, "sources") or ():
        ends, latest = (_offsets(_field(source, name)) for name in ("endOffset", "latestOffset"))
        for partition, newest in latest.items():
            read = ends.get(partition, 0)
            behind[partition] = 0 if read == LATEST else max(0, newest - read)
    return Lag(behind)


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _offsets(given: Any) -> Offsets:
    """Spark hands offsets out as text or as what that text says; those of other sources are of other shapes."""
    try:
        loaded = json.loads(given) if isinstance(given, str) else given
        return offsets_from_json(loaded) if isinstance(loaded, Mapping) else {}
    except ValueError:
        return {}
