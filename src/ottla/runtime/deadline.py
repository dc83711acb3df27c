"""A deadline that is set for every request and reached by hardly any.

A timer of the loop for each of them would be made and cancelled for nothing. Here one timer stands for all: it looks,
when it fires, whether the deadline has moved meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """At most one moment at a time, by the loop's clock; `on_reached` is called once that is over."""

    __slots__ = ("_at", "_loop", "_on_reached", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_reached: Callable[[], object]) -> None:
        self._loop = loop
        self._on_reached = on_reached
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        self._at = at
        if self._timer is None or self._timer.when() > at:
            self._start()

    def clear(self) -> None:
        """There is none for now. A timer that runs finds nothing to do."""
        self._at = None

    def close(self) -> None:
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        assert self._at is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._at, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._loop.time() < self._at:
            self._start()
            return
        self._at = None
        self._on_reached()
