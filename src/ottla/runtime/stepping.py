"""Coroutines that are begun at once, outside of a task: most of what a broker is asked is answered in the first step.

`coroutine.send(None)` runs a coroutine up to where it first waits. Where it is done by then, its result comes with
StopIteration, and a task, which costs a turn of the loop, is not needed. Where it is not, `resumed` goes on from there
in whatever task awaits it. The first step has no current task, so `asyncio.timeout` and `TaskGroup` refuse to work in
it; whoever needs them awaits a task of his own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar, cast

from ottla.runtime.turns import Turns

Result = TypeVar("Result")


class _Rest:
    """What is left of a coroutine that was stepped once and waits for something."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Result], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._awaited  # now the task's to wait for
        while True:
            try:
                yield awaited
            except BaseException as error:  # cancelled, for example: it is raised in the coroutine
                try:
                    awaited = self._coroutine.throw(error)
                except StopIteration as done:
                    return done.value
            else:
                return (yield from self._coroutine.__await__())


async def resumed(coroutine: Coroutine[Any, Any, Result], awaited: Any) -> Result:
    """Goes on with a coroutine whose first step came to wait for `awaited`."""
    return cast(Result, await _Rest(coroutine, awaited))


class Timed:
    """Goes on with a coroutine, and sums up how long its steps take: what it waits for is not counted."""

    __slots__ = ("_coroutine", "spent_ns")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.spent_ns = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        while True:
            started = time.perf_counter_ns()
            try:
                awaited = step(given)
            except StopIteration as done:
                return done.value
            finally:
                self.spent_ns += time.perf_counter_ns() - started
            try:
                given, step = (yield awaited), self._coroutine.send
            except BaseException as error:  # cancelled, say: it is for the coroutine to hear
                given, step = error, self._coroutine.throw


async def all_of(
    coroutines: Iterable[Coroutine[Any, Any, Result]], turns: Turns, note: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """The results of all, in order: each is begun before the next is made, and those that wait do so together.

    Others have their turn in between. `note` is called with each result that is there at once, before the next is
    begun.
    """
    results: list[Any] = []
    waiting: dict[int, asyncio.Task[Result]] = {}
    pace = turns.pace()
    try:
        for coroutine in coroutines:
            if results and pace.is_spent:
                try:
                    await pace.yield_turn()
                except BaseException:
                    coroutine.close()  # made, and not begun
                    raise
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                note(done.value)
                results.append(done.value)
            else:
                waiting[len(results)] = asyncio.create_task(resumed(coroutine, awaited))
                results.append(None)
        if waiting:
            for place, result in zip(waiting, await asyncio.gather(*waiting.values()), strict=True):
                results[place] = result
    finally:
        for task in waiting.values():
            task.cancel()  # where one of them failed, or nobody wants to know any longer
    return results
