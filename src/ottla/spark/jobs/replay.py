"""A part of a topic once more, into another one: by time or by offsets, all of it or nothing.

    replay(spark, "orders", "orders-again", options, Range(since_ms=1_700_000_000_000))

The records are written in transactions that are decided together, so a replay that was interrupted has written nothing
and is simply started again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.spark.jobs.clusters import Options, admin_of, existing_topics
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.spark.sink_options import EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Range:
    """What to replay: records from a time on and before another, or offsets `[start, end)` by partition.

    Partitions that have neither a start nor an end are left out, where there are offsets.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    start_offsets: Mapping[int, int] | None = None
    end_offsets: Mapping[int, int] | None = None

    def check(self) -> None:
        """A ConfigError where it cannot be a range of any topic."""
        by_time = self.since_ms is not None or self.until_ms is not None
        by_offset = self.start_offsets is not None or self.end_offsets is not None
        if by_time and by_offset:
            raise ConfigError("a range is one of time or one of offsets, not both")
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ConfigError(f"the range ends at {self.until_ms}, which is not after its start, {self.since_ms}")
        starts, ends = self.start_offsets or {}, self.end_offsets or {}
        for partition in sorted(starts.keys() & ends.keys()):
            start, end = starts[partition], ends[partition]
            if start > end:
                raise ConfigError(
                    f"the range of partition {partition} ends at {end}, which is before its start, {start}"
                )

    def source_options(self, topic: str, partitions: int) -> dict[str, str]:
        """The same as options of a source; a ConfigError where the topic has no such range."""
        self.check()
        named = sorted({*(self.start_offsets or {}), *(self.end_offsets or {})})
        for partition in named:
            if not 0 <= partition < partitions:
                raise ConfigError(f"{topic} has no partition {partition}: it has {partitions}, counted from 0")
        options: dict[str, str] = {}
        if named:
            options["assign"] = json.dumps({topic: named})
        else:
            options["subscribe"] = topic
        if self.since_ms is not None:
            options |= {"startingTimestamp": str(self.since_ms), "startingOffsetsByTimestampStrategy": "latest"}
        if self.until_ms is not None:
            options["endingTimestamp"] = str(self.until_ms)
        for name, offsets, other in (
            ("startingOffsets", self.start_offsets, EARLIEST),
            ("endingOffsets", self.end_offsets, LATEST),
        ):
            if offsets is not None:
                options[name] = json.dumps({topic: {str(number): offsets.get(number, other) for number in named}})
        return options


def replay(
    spark: SparkSession,
    topic: str,
    into: str,
    options: Options,
    what: Range,
    *,
    target: Options | None = None,
    keep_timestamps: bool = True,
) -> None:
    """Writes the records of a range into the topic `into`, in the cluster of `target` if there is one.

    Into a topic with as many partitions each record keeps its own; into another one its key decides.
    """
    target = options if target is None else target
    with admin_of(options) as here, admin_of(target) as there:
        source = existing_topics(here, [topic])[topic]
        sink = existing_topics(there, [into])[into]
        if here.describe_cluster().cluster_id == there.describe_cluster().cluster_id and topic == into:
            raise ConfigError(f"{topic} would be replayed into itself: give another topic")
    count = len(source.partitions)
    given = {"kafka.isolation.level": "read_committed", **options, **what.source_options(topic, count)}
    rows = spark.read.format("ottla").options(**given, includeHeaders="true").load()
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if len(sink.partitions) == count else [])]
    writer = rows.select(*columns).write.format("ottla").mode("append").options(**target, topic=into)
    writer.options(delivery=EXACTLY_ONCE, keepTimestamps=str(keep_timestamps).lower()).save()
