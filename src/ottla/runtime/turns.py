"""A turn of the event loop has a budget: long work is done in pieces, and others have their turn in between.

Work that may be long and does not wait is a generator. Each `yield` in it is a place where others may have their turn,
and says by its place that what was read before it is looked at again after it, or cannot change. `Turns.finish` runs
such work: what is done within the budget is done without waiting. Work that waits as well is a coroutine, and looks at
its `Pace`.

    def answers(broker, request) -> Steps[Response]:
        answers = []
        for entry in request.entries:
            answers.append(...)
            if len(answers) % STEP == 0:
                yield
        return Response(answers)

All long work of a loop stands in one line: however many there are, one piece is done between two looks at the
sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from functools import partial, wraps
from typing import Any, Protocol, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Steps: TypeAlias = Generator[None, None, Result]

TURN_S = 0.005  # the longest that work holds the loop before it looks whether others wait
STEP = 16  # things of a few microseconds each that are done between two looks at the time
FREED_AT_ONCE = 256  # objects, of a quarter of a microsecond each


class Turns:
    """Whose turn it is on one loop. `timer` returns seconds; a simulation counts looks at it instead."""

    __slots__ = ("_line", "timer")

    def __init__(self, timer: Callable[[], float] = time.perf_counter) -> None:
        self.timer = timer
        self._line: deque[Callable[[], object]] = deque()

    async def finish(self, steps: Steps[Result]) -> Result:
        """What the work returns. What is done within a turn is done at once; then others have theirs in between."""
        timer = self.timer
        try:
            next(steps)  # what is done without a step, as most small requests are, need not be timed
            while True:
                ends = timer() + TURN_S
                while timer() < ends:
                    next(steps)
                await self.yield_turn()
                next(steps)  # however busy the machine is, each turn gets on
        except StopIteration as done:
            result: Result = done.value
        return result

    async def over(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """The items one after the other; others have their turn when the budget is spent.

        Nobody may change `items` meanwhile: hand over a copy, or what never changes.
        """
        pace = Pace(self)
        for item in items:
            yield item
            if pace.is_spent:
                await pace.yield_turn()

    def pace(self) -> Pace:
        """For a loop that is none over items."""
        return Pace(self)

    async def yield_turn(self) -> None:
        """Waits until the loop has looked at its sockets, and for those of the long works that came earlier."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on() -> None:
            if not place.done():  # whoever hung up is out of the line
                place.set_result(None)

        self.in_line(go_on)
        await place

    def in_line(self, piece: Callable[[], object]) -> None:
        """Does a piece of work of at most a turn when the long works that came earlier have had their turn."""
        self._line.append(piece)
        if len(self._line) == 1:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._next, loop)

    def let_go(self, things: list[Any]) -> None:
        """Drops very many objects, the last of the list last, in pieces: to free them all cannot be interrupted.

        Whoever calls this drops its own references to them by the end of its turn.
        """
        things.reverse()  # a list is shortened at its end
        self.in_line(partial(self._drop, things))

    def _drop(self, things: list[Any]) -> None:
        ends = self.timer() + TURN_S
        while things:
            del things[-FREED_AT_ONCE:]
            if self.timer() >= ends:
                break
        if things:
            self.in_line(partial(self._drop, things))

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lets the first in line go on; the one behind it has its turn one look at the sockets later."""
        piece = self._line.popleft()
        if self._line:
            loop.call_soon(self._next, loop)
        piece()


class Pace:
    """The budget of a coroutine that does much between its waits: `if pace.is_spent: await pace.yield_turn()`."""

    __slots__ = ("_ends", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._ends = turns.timer() + TURN_S

    @property
    def is_spent(self) -> bool:
        return self._turns.timer() >= self._ends

    async def yield_turn(self) -> None:
        await self._turns.yield_turn()
        self._ends = self._turns.timer() + TURN_S


def done_at_once(steps: Steps[Result]) -> Result:
    """What work returns that is known to be short."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: Result = done.value
    return result


class HasTurns(Protocol):
    @property
    def turns(self) -> Turns: ...


Owner = TypeVar("Owner", bound=HasTurns)
Request = TypeVar("Request")
Context = TypeVar("Context")


def in_turns(
    work: Callable[[Owner, Request, Context], Steps[Result]],
) -> Callable[[Owner, Request, Context], Coroutine[Any, Any, Result]]:
    """A handler whose answer is made in steps; it is called with the broker first, which has the turns."""

    @wraps(work)
    async def handle(owner: Owner, request: Request, context: Context) -> Result:
        return await owner.turns.finish(work(owner, request, context))

    return handle
