import pytest

from ottla.config import LogConfig
from ottla.storage.retention import SegmentAge, expired_count

NOW = 1_700_000_000_000
HOUR = 3_600_000


def count(
    segments: list[SegmentAge],
    config: LogConfig,
    *,
    log_start_offset: int = 0,
    high_watermark: int = 30,
    end_offset: int = 30,
) -> int:
    return expired_count(
        segments,
        config,
        now_ms=NOW,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        end_offset=end_offset,
    )


def three(*ages_ms: int, size_bytes: int = 100) -> list[SegmentAge]:
    """Segments from offset 0, 10 and 20 whose newest records are this old."""
    return [SegmentAge(10 * number, size_bytes, NOW - age) for number, age in enumerate(ages_ms)]


OLD_GOES = LogConfig(retention_ms=HOUR)


def test_by_default_a_week_is_kept() -> None:
    week = 7 * 24 * HOUR
    assert count(three(week + 1, week, 0), LogConfig()) == 1


@pytest.mark.parametrize(("age_ms", "expected"), [(HOUR, 0), (HOUR + 1, 1)])
def test_a_segment_goes_once_its_newest_record_is_older_than_the_limit(age_ms: int, expected: int) -> None:
    assert count(three(age_ms, 0, 0), OLD_GOES) == expected


def test_retention_stops_at_the_first_segment_that_stays() -> None:
    assert count(three(2 * HOUR, 0, 2 * HOUR), OLD_GOES) == 1


def test_even_the_active_segment_goes_when_all_is_too_old() -> None:
    assert count(three(2 * HOUR, 2 * HOUR, 2 * HOUR), OLD_GOES) == 3


def test_an_empty_active_segment_stays_because_the_log_goes_on_there() -> None:
    segments = [*three(2 * HOUR, 2 * HOUR), SegmentAge(20, 0, NOW - 2 * HOUR)]
    assert count(segments, OLD_GOES, high_watermark=20, end_offset=20) == 2


def test_no_time_limit_keeps_everything() -> None:
    assert count(three(10**12, 10**12, 10**12), LogConfig(retention_ms=-1)) == 0


def test_a_time_limit_of_nothing_takes_everything_that_is_not_of_this_moment() -> None:
    assert count(three(1, 1, 0), LogConfig(retention_ms=0)) == 2


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(301, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (0, 3), (-1, 0)],
)
def test_the_oldest_segments_go_as_long_as_what_is_left_is_large_enough(retention_bytes: int, expected: int) -> None:
    assert count(three(0, 0, 0), LogConfig(retention_bytes=retention_bytes)) == expected


@pytest.mark.parametrize(("log_start_offset", "expected"), [(9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_segments_wholly_below_the_log_start_go_but_never_the_active_one(log_start_offset: int, expected: int) -> None:
    assert count(three(0, 0, 0), LogConfig(retention_ms=-1), log_start_offset=log_start_offset) == expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_nothing_at_or_past_the_high_watermark_goes(high_watermark: int, expected: int) -> None:
    assert count(three(2 * HOUR, 2 * HOUR, 2 * HOUR), OLD_GOES, high_watermark=high_watermark) == expected


def test_a_compacted_topic_loses_segments_neither_by_age_nor_by_size_but_by_its_start() -> None:
    config = LogConfig(cleanup_policy=("compact",), retention_ms=HOUR, retention_bytes=0)
    assert count(three(2 * HOUR, 2 * HOUR, 2 * HOUR), config) == 0
    assert count(three(2 * HOUR, 2 * HOUR, 2 * HOUR), config, log_start_offset=10) == 1


def test_a_topic_with_both_policies_loses_segments_by_age() -> None:
    config = LogConfig(cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    assert count(three(2 * HOUR, 0, 0), config) == 1
