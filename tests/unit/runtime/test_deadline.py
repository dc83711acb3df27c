"""A deadline that moves all the time costs a timer now and then, and is reached once, at its last moment."""

from __future__ import annotations

import asyncio

from ottla.runtime.deadline import Deadline
from ottla.testing.loop import run


class Watched:
    """A deadline, and when it was reached."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reached: list[float] = []
        self.deadline = Deadline(self._loop, lambda: self.reached.append(self.now))

    @property
    def now(self) -> float:
        return self._loop.time()


def test_a_deadline_that_is_put_off_is_reached_at_its_last_moment_and_once() -> None:
    async def scenario() -> None:
        watched = Watched()
        for moment in (5.0, 7.0, 6.0, 9.0):
            watched.deadline.set(watched.now + moment)
        await asyncio.sleep(8.9)
        assert watched.reached == []
        await asyncio.sleep(10)
        assert watched.reached == [9.0]

    run(scenario())


def test_one_that_comes_nearer_is_reached_then() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.deadline.set(9.0)
        watched.deadline.set(2.0)
        await asyncio.sleep(20)
        assert watched.reached == [2.0]

    run(scenario())


def test_one_that_is_cleared_or_closed_is_never_reached_and_can_be_set_again() -> None:
    async def scenario() -> None:
        watched = Watched()
        watched.deadline.set(5.0)
        watched.deadline.clear()
        await asyncio.sleep(10)
        watched.deadline.set(15.0)
        watched.deadline.close()
        await asyncio.sleep(10)
        assert watched.reached == []
        watched.deadline.set(25.0)
        await asyncio.sleep(10)
        assert watched.reached == [25.0]

    run(scenario())


def test_one_that_has_passed_is_reached_in_the_next_turn_and_never_at_once() -> None:
    async def scenario() -> None:
        watched = Watched()
        await asyncio.sleep(3)
        watched.deadline.set(1.0)
        assert watched.reached == []
        await asyncio.sleep(0.001)
        assert watched.reached == [3.0]

    run(scenario())
