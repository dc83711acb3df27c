"""The one way to wait: a signal that says "look again".

A waiter checks its condition, waits for any of the signals that could change it, and checks again. A signal carries no
value and may fire for nothing, so nobody can rely on what it saw before the wait. Firing without waiters costs nothing.

Whoever waits for one of thousands uses a `Watch`: it is set up once, and says which of them fired, so that only those
are looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Watcher(Protocol):
    """Who looks again when a signal fires."""

    def note(self, place: int) -> None:
        """The signal that was watched as number `place` fired. What follows is done in another turn: whoever fires is
        in the middle of something."""


class Signal:
    """Something changed. Owned by whoever changes it."""

    __slots__ = ("_waiters", "_watchers", "count")

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[bool], None] = {}  # in order, so that a simulated run can be replayed
        self._watchers: dict[Watcher, int] = {}
        self.count = 0  # of how often it fired: who looks in several turns knows whether it missed something

    def fire(self) -> None:
        self.count += 1
        if self._watchers:
            for watcher, place in self._watchers.items():
                watcher.note(place)
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(True)

    @property
    def waiter_count(self) -> int:
        return len(self._waiters) + len(self._watchers)

    def watch(self, watcher: Watcher, place: int) -> None:
        """Notes every time that it fires, until `unwatch`."""
        self._watchers[watcher] = place

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the signal fired before the time was up."""
        return await wait_any((self,), timeout_s)


class Watch:
    """Signals that somebody waits for again and again, each by a number of its own choice."""

    __slots__ = ("_fired", "_signals", "_waiter")

    def __init__(self) -> None:
        self._signals: list[Signal] = []
        self._fired: dict[int, None] = {}
        self._waiter: asyncio.Future[bool] | None = None

    def add(self, place: int, signal: Signal, seen_count: int) -> None:
        """Watches a signal, once; `seen_count` is its count when the state behind it was last looked at."""
        signal.watch(self, place)
        self._signals.append(signal)
        if signal.count != seen_count:
            self._fired[place] = None

    async def wait(self, timeout_s: float) -> list[int]:
        """The numbers of those that fired since the last call, in order; none where the time is up before."""
        if not self._fired:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(max(0.0, timeout_s), _time_is_up, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        fired, self._fired = self._fired, {}
        return list(fired)

    def close(self) -> None:
        for signal in self._signals:
            signal.unwatch(self)

    def note(self, place: int) -> None:
        self._fired[place] = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)


async def wait_any(signals: Iterable[Signal], timeout_s: float | None) -> bool:
    """Waits until one of the signals fires (True) or the time is up (False). No time means no limit."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    signals = tuple(signals)
    for signal in signals:
        signal._waiters[waiter] = None
    timer = None if timeout_s is None else loop.call_later(max(0.0, timeout_s), _time_is_up, waiter)
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for signal in signals:
            signal._waiters.pop(waiter, None)


def _time_is_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
