"""What is measured of a broker's inside follows the broker: a benchmark that no longer runs is found here."""

from __future__ import annotations

from pathlib import Path

from ottla.disk import RealDisk
from storage import clean_start, dispatch_cost, produce_cost


def test_a_request_is_taken_through_the_dispatcher(tmp_path: Path) -> None:
    assert dispatch_cost(str(tmp_path), count=40).keys() == {"first_us", "repeated_us"}


def test_a_request_is_taken_without_the_dispatcher(tmp_path: Path) -> None:
    assert produce_cost(str(tmp_path), RealDisk(), count=10) >= 0


def test_a_log_is_started(tmp_path: Path) -> None:
    assert clean_start(str(tmp_path), segments=2) > 0
