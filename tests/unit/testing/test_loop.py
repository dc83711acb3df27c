"""The loop of a simulated world: time jumps, order repeats, and what can never end says so."""

import asyncio
from contextvars import ContextVar
from random import Random

import pytest

from ottla.testing.loop import DeadlockError, LivelockError, SimulatedLoop, run


def test_a_year_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert run(main()) == 365 * 86_400


def test_timers_fire_in_the_order_of_their_times_and_the_clock_shows_them() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        def fire(name: str) -> None:
            seen.append((name, loop.time()))

        for name, delay in [("c", 3.0), ("a", 1.0), ("b", 2.5)]:
            loop.call_later(delay, fire, name)
        await asyncio.sleep(10)
        return seen

    assert run(main()) == [("a", 1.0), ("b", 2.5), ("c", 3.0)]


def test_timeouts_locks_events_and_task_groups_are_asyncios_own() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        event, lock = asyncio.Event(), asyncio.Lock()

        async def waiter() -> None:
            await event.wait()
            async with lock:
                seen.append("waiter")

        async def setter() -> None:
            async with lock:
                event.set()
                await asyncio.sleep(5)
                seen.append("setter")

        async with asyncio.TaskGroup() as group:
            group.create_task(waiter())
            group.create_task(setter())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(31)
        assert asyncio.get_running_loop().time() == 95
        return seen

    assert run(main()) == ["setter", "waiter"]


def test_work_for_an_executor_is_done_in_place_and_its_errors_come_back() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, sum, [1, 2, 3]) == 6
        assert await asyncio.to_thread(len, "four") == 4
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    run(main())


def test_a_wait_that_nobody_can_end_is_an_error_that_names_the_tasks() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(asyncio.Event().wait(), name="the-one-that-waits")
        await waiting

    with pytest.raises(DeadlockError, match="the-one-that-waits"):
        run(main())


def test_a_circle_of_callbacks_in_which_time_stands_still_is_an_error() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="time does not move"):
        run(main())


def test_callbacks_run_in_the_order_in_which_they_came_whatever_is_drawn() -> None:
    async def main() -> list[int]:
        seen: list[int] = []

        async def note(number: int) -> None:
            for _ in range(3):
                seen.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(note(number) for number in range(10)))
        return seen

    assert run(main(), rng=Random(1)) == [*range(10)] * 3


def test_the_timers_of_one_owner_can_be_cancelled_and_others_stay() -> None:
    owner: ContextVar[str] = ContextVar("owner", default="nobody")

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        seen: list[str] = []
        for name in ("a", "b"):
            token = owner.set(name)
            loop.call_later(1, seen.append, name)
            owner.reset(token)
        loop.cancel_timers(lambda context: context.get(owner) == "a")
        await asyncio.sleep(2)
        return seen

    assert run(main()) == ["b"]


def test_a_file_of_the_real_world_cannot_be_watched() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="0 is not an open socket of the simulated network"):
            asyncio.get_running_loop().add_reader(0, print)

    run(main())
