"""The one way to wait: signals wake everybody who waits, once, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from ottla.runtime.signal import Signal, Watch, wait_any
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


def test_a_watch_tells_which_of_many_signals_fired_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        signals = [Signal() for _ in range(100)]
        watch = Watch()
        for place, signal in enumerate(signals):
            watch.add(place, signal, signal.count)
        waiting = asyncio.ensure_future(watch.wait(5.0))
        await asyncio.sleep(0)
        signals[7].fire()
        signals[3].fire()
        signals[7].fire()
        assert await waiting == [7, 3]
        assert await watch.wait(5.0) == [], "each is told once, and time passes without"
        watch.close()
        assert not any(signal.waiter_count for signal in signals)

    run(scenario())


def test_what_fired_between_looking_and_watching_is_not_missed() -> None:
    async def scenario() -> None:
        signal, watch = Signal(), Watch()
        seen_count = signal.count
        signal.fire()
        watch.add(0, signal, seen_count)
        assert await watch.wait(0.0) == [0]
        signal.fire()
        assert await watch.wait(0.0) == [0], "and what fires while nobody waits is told by the next wait"
        watch.close()

    run(scenario())
