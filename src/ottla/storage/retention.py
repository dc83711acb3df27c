"""Which segments retention takes: by age, by size, by the log's start. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config import LogConfig
from ottla.storage.segment import Segment


class SegmentAge(NamedTuple):
    base_offset: int
    size_bytes: int
    largest_timestamp: int  # of its records; of those that have none, when the last of them was written

    @classmethod
    def of(cls, segment: Segment) -> SegmentAge:
        timestamp = segment.max_timestamp.timestamp
        return cls(segment.base_offset, segment.size_bytes, timestamp if timestamp >= 0 else segment.modified_ms())


def expired_count(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    end_offset: int,
) -> int:
    """How many segments, from the oldest on, may go.

    Never one that reaches past the high watermark: a follower may still need it. Never the last one if it is empty:
    it is where the log goes on.
    """
    surplus = _surplus_bytes(segments, config)
    count = 0
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        segment_end = end_offset if is_last else segments[number + 1].base_offset
        if segment_end > high_watermark or (is_last and segment.size_bytes == 0):
            break
        is_below_start = not is_last and segment_end <= log_start_offset
        is_too_old = (
            config.deletes_old_segments
            and config.retention_ms >= 0
            and now_ms - segment.largest_timestamp > config.retention_ms
        )
        is_surplus = surplus >= segment.size_bytes
        if not (is_below_start or is_too_old or is_surplus):
            break
        surplus -= segment.size_bytes
        count += 1
    return count


def _surplus_bytes(segments: Sequence[SegmentAge], config: LogConfig) -> int:
    if not config.deletes_old_segments or config.retention_bytes < 0:
        return -1
    return sum(segment.size_bytes for segment in segments) - config.retention_bytes
