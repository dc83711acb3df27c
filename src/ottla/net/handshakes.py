"""Handshakes of TLS, a few in each turn of the loop: each may take a millisecond, and hundreds may be readable at once.

Whoever comes when the time of a turn is used up waits for a later one, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN_S = 0.002  # spent on handshakes before others are served


class HandshakeTurns:
    """The handshakes of all listeners of a server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timer: Callable[[], float]) -> None:
        self._loop = loop
        self._timer = timer
        self._waiting: deque[Callable[[], None]] = deque()
        self._spent_s = 0.0
        self._is_scheduled = False

    def take(self, step: Callable[[], None]) -> bool:
        """Takes a step of a handshake now; False where its turn has not come: then `wait`."""
        if self._spent_s >= TURN_S:
            return False
        started = self._timer()
        step()
        self._spent_s += self._timer() - started
        self._schedule()
        return True

    def wait(self, again: Callable[[], None]) -> None:
        """Calls it in a later turn."""
        self._waiting.append(again)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._spent_s = 0.0
        for _ in range(len(self._waiting)):
            if self._spent_s >= TURN_S:
                self._schedule()
                return
            self._waiting.popleft()()
