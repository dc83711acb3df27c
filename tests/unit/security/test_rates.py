"""Rates over windows and token buckets, by the numbers of Kafka's formulas."""

from __future__ import annotations

from ottla.security.rates import Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)


def test_a_rate_below_its_limit_waits_for_nothing() -> None:
    rate = Rate()
    assert rate.delay_ms(100, 0, WINDOWS) == 0
    rate.record(1000, 5, WINDOWS)
    assert rate.delay_ms(100, 5, WINDOWS) == 0, "1000 in the ten seconds that are always averaged over"


def test_the_delay_brings_the_average_back_to_the_limit() -> None:
    rate = Rate()
    rate.record(3000, 0, WINDOWS)
    delay_ms = rate.delay_ms(100, 0, WINDOWS)
    assert delay_ms == 20_000, "300 per second over 10 s: twice the limit too much"
    rate = Rate()
    rate.record(1500, 0, WINDOWS)
    assert rate.delay_ms(100, 0, WINDOWS) == 5000
    assert rate.delay_ms(100, 500, WINDOWS) == round((1500 / 10.5 - 100) / 100 * 10_500) == 4500
    assert rate.delay_ms(100, 5000, WINDOWS) == 5000, "full windows count as passed only where they have"


def test_old_windows_are_forgotten() -> None:
    rate = Rate()
    rate.record(5000, 0, WINDOWS)
    rate.record(100, 1000, WINDOWS)
    assert rate.delay_ms(100, 10_900, WINDOWS) > 0
    assert rate.delay_ms(100, 11_000, WINDOWS) == 0


def test_what_did_not_pass_is_taken_back() -> None:
    rate = Rate()
    rate.record(2000, 0, WINDOWS)
    assert rate.delay_ms(100, 0, WINDOWS) > 0
    rate.record(-2000, 10, WINDOWS)
    assert rate.delay_ms(100, 10, WINDOWS) == 0


def test_the_number_of_windows_kept_is_bounded() -> None:
    rate = Rate()
    for now_ms in range(0, 1_000_000, 10):
        rate.record(1, now_ms, WINDOWS)
    assert len(rate._samples) <= WINDOWS.count


def test_a_bucket_begins_full_may_be_overdrawn_and_fills_again() -> None:
    bucket = TokenBucket()
    bucket.spend(110, 10, 0, WINDOWS)
    assert bucket.delay_ms(10, 0, WINDOWS) == 0, "eleven windows of ten"
    bucket.spend(50, 10, 0, WINDOWS)
    assert bucket.delay_ms(10, 0, WINDOWS) == 5000
    assert bucket.delay_ms(10, 4000, WINDOWS) == 1000
    assert bucket.delay_ms(10, 5000, WINDOWS) == 0
    bucket.spend(1, 10, 1_000_000, WINDOWS)
    bucket.spend(110, 10, 1_000_000, WINDOWS)
    assert bucket.delay_ms(10, 1_000_000, WINDOWS) == 100, "no more is saved up than the windows give"
