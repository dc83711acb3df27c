"""A coroutine is begun outside of a task, and goes on in one only where it has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.runtime.stepping import all_of, resumed
from ottla.runtime.turns import TURN_S, Turns
from ottla.testing.steps import at_once


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_coroutine_that_waits_goes_on_from_where_it_came_to_and_its_result_comes_back() -> None:
    async def play() -> None:
        seen: list[str] = []
        arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            seen.append("begun")
            first = await arrived
            await asyncio.sleep(0)
            seen.append(first)
            return "result"

        coroutine = work()
        rest = asyncio.create_task(resumed(coroutine, coroutine.send(None)))
        assert seen == ["begun"]
        await asyncio.sleep(0)
        arrived.set_result("came")
        assert await rest == "result"
        assert seen == ["begun", "came"]

    run(play)


def test_what_it_waits_for_may_be_there_before_anybody_goes_on() -> None:
    async def play() -> None:
        arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            return await arrived

        coroutine = work()
        rest = resumed(coroutine, coroutine.send(None))
        arrived.set_result("early")
        assert await rest == "early"

    run(play)


def test_a_failure_reaches_the_coroutine_that_waits() -> None:
    async def play() -> None:
        arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            try:
                return await arrived
            except OSError as error:
                return f"heard of {error}"

        coroutine = work()
        rest = resumed(coroutine, coroutine.send(None))
        arrived.set_exception(OSError("the disk"))
        assert await rest == "heard of the disk"

    run(play)


@pytest.mark.parametrize("is_cancelled_at_once", [True, False])
def test_a_coroutine_that_is_cancelled_cleans_up_and_may_wait_for_that(is_cancelled_at_once: bool) -> None:
    async def play() -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned up")

        coroutine = work()
        rest = asyncio.create_task(resumed(coroutine, coroutine.send(None)))
        await asyncio.sleep(0)
        if not is_cancelled_at_once:
            await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest
        assert seen == ["cleaned up"]

    run(play)


def test_all_are_begun_in_order_and_those_that_wait_do_so_together() -> None:
    async def play() -> None:
        events: list[str] = []
        release = asyncio.Event()

        async def work(number: int) -> int:
            events.append(f"begin {number}")
            if number % 2:
                await release.wait()
            return number

        noted: list[int] = []
        waiting = asyncio.create_task(all_of((work(number) for number in range(6)), Turns(), noted.append))
        await asyncio.sleep(0)
        assert events == [f"begin {number}" for number in range(6)]
        assert noted == [0, 2, 4], "who has to wait is not there at once"
        release.set()
        assert await waiting == list(range(6))

    run(play)


def test_all_that_are_there_at_once_need_no_loop() -> None:
    async def work(number: int) -> int:
        return number

    assert at_once(all_of((work(number) for number in range(3)), Turns())) == [0, 1, 2]


def test_others_have_their_turn_between_two_of_many() -> None:
    async def play() -> None:
        looks = iter(range(10_000))
        turns = Turns(lambda: next(looks) * TURN_S)
        turn_count = 0

        async def other() -> None:
            nonlocal turn_count
            while True:
                turn_count += 1
                await asyncio.sleep(0)

        async def work(number: int) -> int:
            return number

        neighbour = asyncio.create_task(other())
        assert await all_of((work(number) for number in range(50)), turns) == list(range(50))
        assert turn_count > 20
        neighbour.cancel()

    run(play)


@pytest.mark.parametrize("fails_at_once", [True, False])
def test_where_one_fails_the_others_are_given_up(fails_at_once: bool) -> None:
    async def play() -> None:
        given_up: list[int] = []

        async def work(number: int) -> None:
            if number == 2:
                if not fails_at_once:
                    await asyncio.sleep(0)
                raise ValueError("the third")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                given_up.append(number)

        with pytest.raises(ValueError, match="the third"):
            await all_of((work(number) for number in range(4)), Turns())
        await asyncio.sleep(0)
        assert sorted(given_up) == ([0, 1] if fails_at_once else [0, 1, 3])

    run(play)
