"""Long work gives way: within its budget it is a plain call, beyond it others have their turn in between."""

from __future__ import annotations

import asyncio
from itertools import count

from ottla.runtime.turns import FREED_AT_ONCE, TURN_S, Steps, Turns, done_at_once, in_turns
from ottla.testing.steps import at_once

STEPS_PER_TURN = 5


def counting_turns() -> Turns:
    """A timer that moves at each look, so that a turn is a few steps on any machine."""
    looks = count()
    return Turns(lambda: next(looks) * TURN_S / STEPS_PER_TURN)


def counted(total: int) -> Steps[int]:
    done = 0
    for _ in range(total):
        done += 1
        yield
    return done


def test_work_within_the_budget_is_done_at_once() -> None:
    assert at_once(counting_turns().finish(counted(STEPS_PER_TURN - 2))) == STEPS_PER_TURN - 2


def test_longer_work_lets_others_have_their_turn() -> None:
    async def scenario() -> None:
        turns = counting_turns()
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        neighbour = asyncio.create_task(other())
        assert await turns.finish(counted(10 * STEPS_PER_TURN)) == 10 * STEPS_PER_TURN
        assert others >= 10
        neighbour.cancel()

    asyncio.run(scenario())


def test_many_long_works_together_hold_the_loop_for_one_piece_at_a_time() -> None:
    async def scenario() -> None:
        turns = counting_turns()
        pieces_in_this_turn = pieces_max = 0

        def work() -> Steps[None]:
            nonlocal pieces_in_this_turn
            for step in range(10 * STEPS_PER_TURN):
                pieces_in_this_turn += step % STEPS_PER_TURN == 0
                yield

        async def other() -> None:
            nonlocal pieces_in_this_turn, pieces_max
            while True:
                pieces_max = max(pieces_max, pieces_in_this_turn)
                pieces_in_this_turn = 0
                await asyncio.sleep(0)

        begun = [asyncio.create_task(turns.finish(work())) for _ in range(20)]
        await asyncio.sleep(0)
        pieces_in_this_turn = 0
        neighbour = asyncio.create_task(other())
        await asyncio.gather(*begun)
        assert pieces_max <= 2
        neighbour.cancel()

    asyncio.run(scenario())


def test_every_turn_gets_on_even_where_its_time_is_over_at_once() -> None:
    looks = count()

    async def scenario() -> None:
        turns = Turns(lambda: next(looks) * 10 * TURN_S)
        assert await asyncio.wait_for(turns.finish(counted(50)), 60) == 50
        assert [item async for item in turns.over(range(50))] == list(range(50))

    asyncio.run(scenario())


def test_who_hangs_up_leaves_the_line_to_the_others() -> None:
    async def scenario() -> None:
        turns = counting_turns()
        first, second = (asyncio.create_task(turns.finish(counted(100))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 100

    asyncio.run(scenario())


def test_items_are_walked_in_turns() -> None:
    async def scenario() -> None:
        seen = [item async for item in counting_turns().over(range(100))]
        assert seen == list(range(100))

    asyncio.run(scenario())


def test_a_handler_in_turns_answers_a_small_request_at_once() -> None:
    class Broker:
        turns = counting_turns()

    @in_turns
    def handle(broker: Broker, request: int, context: None) -> Steps[int]:
        return (yield from counted(request))

    assert at_once(handle(Broker(), 2, None)) == 2


def test_work_that_is_short_is_done_without_a_loop() -> None:
    assert done_at_once(counted(3)) == 3


def test_very_many_objects_are_let_go_of_a_few_in_each_turn_the_first_of_them_first() -> None:
    class Thing:
        def __init__(self, number: int) -> None:
            self._number = number

        def __del__(self) -> None:
            freed.append(self._number)

    freed: list[int] = []
    count_in_all = 5 * STEPS_PER_TURN * FREED_AT_ONCE

    async def scenario() -> None:
        things = [Thing(number) for number in range(count_in_all)]
        counting_turns().let_go(things)
        assert not freed, "who lets go of them has the rest of its turn"
        freed_before = 0
        while things:
            await asyncio.sleep(0)
            assert len(freed) - freed_before <= STEPS_PER_TURN * FREED_AT_ONCE
            freed_before = len(freed)

    asyncio.run(scenario())
    assert len(freed) == count_in_all
    assert sorted(freed[:FREED_AT_ONCE]) == list(range(FREED_AT_ONCE))
