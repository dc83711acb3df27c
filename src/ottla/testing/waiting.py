"""Waiting for another thread or process: a condition is checked repeatedly, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 120  # of a machine that is busy with other things as well; whatever works is over long before
PAUSE_S = 0.01


def wait_until(condition: Callable[[], object], *, timeout_s: float = WAIT_S) -> None:
    """Returns once the condition is true; fails if it is not within the time limit."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {timeout_s:g} s"
        time.sleep(PAUSE_S)
