"""How many bytes may pass in a second."""

import pytest

from ottla.replication.throttle import Throttle


def test_what_passed_is_waited_for_and_the_average_holds() -> None:
    throttle, now, passed = Throttle(), 50.0, 0
    while now < 60:
        while delay_s := throttle.delay_s(1000, now):
            now += delay_s
        throttle.record(300, now)
        passed += 300
    assert passed == pytest.approx(10_000, abs=600)


def test_another_rate_counts_from_now_on() -> None:
    throttle = Throttle()
    throttle.record(10_000, now=0)
    assert throttle.delay_s(1000, now=0) == 10
    assert throttle.delay_s(10_000, now=5) == 0


def test_time_in_which_nothing_passed_is_not_saved_up() -> None:
    throttle = Throttle()
    throttle.record(10, now=0)
    assert throttle.delay_s(10, now=100) == 0
    throttle.record(100, now=100)
    assert throttle.delay_s(10, now=100) == 10


def test_a_rate_of_nothing_lets_nothing_more_pass() -> None:
    throttle = Throttle()
    assert throttle.delay_s(0, now=0) == 0
    throttle.record(100, now=0)
    assert throttle.delay_s(0, now=1e6) > 0
