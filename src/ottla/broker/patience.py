"""How long a request about several topics waits for them: all together, and not longer than it says.

Changes of topics wait for other brokers, some of which may be away. One after the other they would take the time of the
request as often as it names topics, and most would begin only when nobody waits for the answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

CHANGED_AT_ONCE_MAX = 100  # topics of one request; each of them asks the store now and then

Result = TypeVar("Result")


class Patience:
    """The time of one request, from now on."""

    def __init__(self, timeout_ms: int) -> None:
        self._time = asyncio.get_running_loop().time
        self._deadline = self._time() + timeout_ms / 1000
        self._places = asyncio.Semaphore(CHANGED_AT_ONCE_MAX)

    async def run(self, change: Callable[[float], Coroutine[Any, Any, Result]]) -> Result:
        """One change, which is given the seconds that are left; it has its turn as soon as there is a place."""
        async with self._places:
            return await change(max(0.0, self._deadline - self._time()))
