"""What is in topics, partition by partition: how many records, which offsets are missing, what is there twice.

    for partition in audit_topics(spark, ["orders"], options):
        print(partition)

Two copies of a topic have the same `checksum` in each partition if they hold the same records, in whatever order and at
whatever offsets. The same numbers come from a running cluster and from the files of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.spark.jobs.clusters import Options, admin_of, existing_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of key, value, headers and time. Sums do not depend on the order, and a record that is there twice counts twice.
CONTENT_HASH: Final = "xxhash64(key, value, headers, timestamp)"
WORD: Final = 2**64


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """One partition. Offsets of control records and of aborted or compacted records are missing, too."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    missing_offsets: int
    repeated_offsets: int  # other than 0 only in files that are damaged
    duplicates: int  # records whose identity another one before has
    out_of_order: int  # records that are older than the one before
    checksum: str


def audit_topics(
    spark: SparkSession, topics: Sequence[str], options: Options, *, identity: str = "key, value"
) -> list[PartitionAudit]:
    """Of topics in a cluster, committed records only unless `options` have another isolation level.

    identity: expressions of Spark's that say which records are the same, such as `key` or `get_json_object(…)`.
    """
    if not topics:
        raise ConfigError("there are no topics to audit: name at least one")
    with admin_of(options) as admin:
        existing_topics(admin, topics)
    given = {"kafka.isolation.level": "read_committed", **options}
    source = spark.read.format("ottla").options(**given, subscribe=",".join(topics), includeHeaders="true")
    return audit_rows(source.load(), identity)


def audit_segments(spark: SparkSession, directory: str, *, identity: str = "key, value") -> list[PartitionAudit]:
    """Of the segment files below a log directory, or in that of a partition; a damaged file is an error."""
    from ottla.spark.jobs.segments import segment_rows  # it needs Spark to be loaded

    return audit_rows(segment_rows(spark, directory), identity)


def audit_rows(rows: DataFrame, identity: str) -> list[PartitionAudit]:
    """Of rows with the columns of a source, headers among them."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    numbered = rows.selectExpr(
        "topic",
        "partition",
        "offset",
        f"{CONTENT_HASH} AS content",
        f"xxhash64({identity}) AS identity",
        "timestamp < lag(timestamp) OVER (PARTITION BY topic, partition ORDER BY offset) AS is_late",
    )
    counted = numbered.groupBy("topic", "partition").agg(
        *(
            F.expr(text)
            for text in (
                "count(*) AS records",
                "min(offset) AS first_offset",
                "max(offset) AS last_offset",
                "count(DISTINCT offset) AS offsets",
                "count(DISTINCT identity) AS identities",
                "count_if(is_late) AS out_of_order",
                "sum(cast(content AS decimal(38, 0))) AS content",
            )
        )
    )
    return [
        PartitionAudit(
            topic=row.topic,
            partition=row.partition,
            records=row.records,
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            missing_offsets=row.last_offset - row.first_offset + 1 - row.offsets,
            repeated_offsets=row.records - row.offsets,
            duplicates=row.records - row.identities,
            out_of_order=row.out_of_order,
            checksum=f"{int(row.content) % WORD:016x}",
        )
        for row in counted.orderBy("topic", "partition").collect()
    ]
