"""What one compaction is to do and what it did: plain values that can be sent between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.storage.index import AbortedTransaction

DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024


class LastOfProducer(NamedTuple):
    """The batch that must stay of a producer: the one that ends at `last_offset`, or else its last marker."""

    last_offset: int | None
    epoch: int


class SegmentRange(NamedTuple):
    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """All that a compaction has to know, as values."""

    directory: str
    segments: tuple[SegmentRange, ...]
    log_start_offset: int
    first_dirty_offset: int
    end_offset: int  # the first offset that must not be looked at
    truncation_count: int  # the log's when the job was planned
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()  # those that ended behind these segments
    last_of_producers: Mapping[int, LastOfProducer] = field(default_factory=dict)
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    bytes_per_second_max: float = float("inf")


class CleanedGroup(NamedTuple):
    """These old segments became these new ones, perhaps none."""

    old: tuple[SegmentRange, ...]
    new: tuple[SegmentRange, ...]


@dataclass(slots=True)
class CleaningResult:
    """What a job did. `end_offset` is where the log is dirty from now on."""

    end_offset: int
    truncation_count: int
    groups: list[CleanedGroup] = field(default_factory=list)
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
