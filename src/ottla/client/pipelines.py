"""Reports of pipelines: what each of them says after a batch, in a compacted topic that anybody can read.

The topic holds the last report of every query, under its id. So a tool sees every pipeline of a cluster without a
server of its own, and also the last word of one that has failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.admin.topics import NewTopic
from ottla.client.fetching import Fetcher
from ottla.client.metadata import Cluster
from ottla.client.offsets import OffsetSpec, list_offsets
from ottla.client.partitioning import RecordColumns
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

TOPIC: Final = "__ottla_pipelines"
PLACE: Final = TopicPartition(TOPIC, 0)
# Small segments, so that the cleaner gets at them: what is read is little more than the last reports.
TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(10 * 60_000),
    "min.cleanable.dirty.ratio": "0.1",
}


class PipelineState(StrEnum):
    RUNNING = "running"
    IDLE = "idle"  # nothing to read
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """A query after a batch, or at its end."""

    query_id: str
    run_id: str
    name: str
    state: PipelineState
    at_ms: int
    batch_id: int = -1
    rows: int = 0
    input_rows_per_s: float = 0.0
    processed_rows_per_s: float = 0.0
    duration_ms: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)  # by partition, `topic-number`
    watermark: str = ""
    freshness_ms: int | None = None  # between the newest event and the batch that read it
    state_rows: int = 0
    state_bytes: int = 0
    error: str = ""

    @property
    def lag_offsets(self) -> int:
        return sum(self.lag.values())

    def words(self) -> list[str]:
        """What a person wants to know at a glance."""
        words = [self.name, self.state.value]
        if self.batch_id >= 0:
            words += [
                f"batch {self.batch_id:,}",
                f"{self.rows:,} rows",
                f"{self.processed_rows_per_s:,.0f} rows/s",
                f"{self.duration_ms:,} ms",
                f"lag {self.lag_offsets:,}",
            ]
        if self.state_rows:
            words.append(f"state {self.state_rows:,} rows")
        return words

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> PipelineReport:
        """ValueError for anything else. Fields that are not known, of a later version, are left out."""
        try:
            loaded: dict[str, Any] = json.loads(text)
            known = {each.name for each in fields(cls)}
            given = {name: value for name, value in loaded.items() if name in known}
            return cls(**{**given, "state": PipelineState(given["state"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the report of a pipeline: {text[:100]!r}") from error


async def ensure_topic(cluster: Cluster) -> None:
    if TOPIC in (await cluster.refresh([TOPIC])).topics:
        return
    outcome = (await ClusterAdmin(cluster).create_topics([NewTopic(TOPIC, 1, config=TOPIC_CONFIG)]))[TOPIC]
    if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome


async def write_report(producer: ClusterProducer, report: PipelineReport) -> None:
    record = RecordColumns([report.to_json()], report.at_ms, keys=[report.query_id.encode()])
    await producer.produce(TOPIC, record, PLACE.partition)


async def read_reports(cluster: Cluster, deadline: Deadline) -> list[PipelineReport]:
    """The last report of every pipeline, by name; none where no pipeline has ever reported."""
    if TOPIC not in (await cluster.find_topics([TOPIC], deadline=deadline)).topics:
        return []
    starts = await list_offsets(cluster, {PLACE: int(OffsetSpec.EARLIEST)}, deadline=deadline)
    ends = await list_offsets(cluster, {PLACE: int(OffsetSpec.LATEST)}, deadline=deadline)
    found: dict[bytes, PipelineReport | None] = {}
    ranges = {PLACE: starts[PLACE].offset}, {PLACE: ends[PLACE].offset}
    async with Fetcher(cluster, *ranges) as fetcher:
        while not fetcher.is_done:
            for fetched in await deadline.within(fetcher.next(), f"reading {PLACE}"):
                columns = fetched.columns()
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is not None:
                        found[bytes(key)] = None if value is None else PipelineReport.from_json(bytes(value))
    reports = [report for report in found.values() if report is not None]
    return sorted(reports, key=lambda report: (report.name, report.query_id))
