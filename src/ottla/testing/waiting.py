"""Waiting for what another thread or process is about to do: looked at again and again, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 60.0  # of a machine that is busy with other things as well
PAUSE_S = 0.01


def wait_until(condition: Callable[[], object], *, timeout_s: float = WAIT_S) -> None:
    """Returns once the condition holds; fails where it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {timeout_s:g} s"
        time.sleep(PAUSE_S)
