"""The one way to wait: signals wake everybody who waits, once, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from ottla.runtime.signal import Signal, wait_any
from ottla.testing.loop import run


def test_a_signal_wakes_all_who_wait_and_costs_nothing_without() -> None:
    async def scenario() -> None:
        signal = Signal()
        signal.fire()
        waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        assert signal.waiter_count == 3
        signal.fire()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert signal.waiter_count == 0

    run(scenario())


def test_time_that_is_up_is_told_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        signal, other = Signal(), Signal()
        started = asyncio.get_running_loop().time()
        assert not await wait_any([signal, other], 5.0)
        assert asyncio.get_running_loop().time() - started == 5.0
        assert signal.waiter_count == other.waiter_count == 0

    run(scenario())


def test_any_of_several_signals_wakes_and_the_others_forget() -> None:
    async def scenario() -> None:
        signals = [Signal() for _ in range(3)]
        waiting = asyncio.ensure_future(wait_any(signals, None))
        await asyncio.sleep(0)
        signals[1].fire()
        signals[2].fire()
        assert await waiting
        assert [signal.waiter_count for signal in signals] == [0, 0, 0]

    run(scenario())


def test_a_waiter_that_is_cancelled_is_forgotten() -> None:
    async def scenario() -> None:
        signal = Signal()
        waiting = asyncio.ensure_future(signal.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert signal.waiter_count == 0
        signal.fire()

    run(scenario())


def test_no_time_at_all_gives_up_at_once() -> None:
    async def scenario() -> None:
        assert not await Signal().wait(0)
        assert not await Signal().wait(-3)

    run(scenario())
