from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from ottla.runtime.stop_flag import StopFlag

ROUNDS = 2_000  # an event with a lock hangs within the first hundred


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_a_handler_sets_it_wherever_the_waiter_is():
    rng = random.Random(1)
    before = signal.getsignal(signal.SIGALRM)
    try:
        for _ in range(ROUNDS):
            flag = StopFlag()
            signal.signal(signal.SIGALRM, lambda *_, flag=flag: flag.set())
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 1e-4))
            while not flag.wait(1e-5):
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_wait_ends_when_its_time_is_up():
    flag = StopFlag()
    begin = time.monotonic()
    assert not flag.wait(0.02)
    assert time.monotonic() - begin >= 0.02
    assert not flag.is_set()


def test_a_thread_sets_it_too():
    flag = StopFlag()
    timer = threading.Timer(0.01, flag.set)
    timer.start()
    assert flag.wait(60)
    assert flag.is_set()
    timer.join()
