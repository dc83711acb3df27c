"""A loop that calls the system beside a thread that computes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.runtime.lock_sharing import SWITCH_INTERVAL_S, share_lock_often

CALLS = 20
TRIES = 10  # the best of them: a loaded machine makes each call wait for a core, too


@pytest.fixture(autouse=True)
def interval_restored() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval_s)


def shortest_turn_s() -> float:
    """How long a few calls of the system take beside a thread that computes."""
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(number for number in range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return min(_turn_s() for _ in range(TRIES))
    finally:
        ended.set()
        thread.join()


def _turn_s() -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        os.stat("/")
    return time.perf_counter() - started


def test_that_a_turn_of_many_calls_is_short_beside_a_thread_that_computes() -> None:
    share_lock_often()
    assert shortest_turn_s() < CALLS * SWITCH_INTERVAL_S * 4  # the default interval: ten times as long as ours
