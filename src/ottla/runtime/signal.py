"""The one way to wait: a signal that says «look again».

A waiter checks its condition, waits for any of the signals that could change it, and checks again. A signal carries no
value and may fire for nothing, so nobody can rely on what it saw before the wait. Firing without waiters costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Signal:
    """Something changed. Owned by whoever changes it."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[bool], None] = {}  # in order, so that a simulated run can be replayed

    def fire(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(True)

    @property
    def waiter_count(self) -> int:
        return len(self._waiters)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the signal fired before the time was up."""
        return await wait_any((self,), timeout_s)


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
