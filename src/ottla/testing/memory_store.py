"""A store that forgets: for simulations, and for tests of what stands above it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.store.local import LocalStore
from ottla.store.tree import Changes, Tree


class MemoryStore(LocalStore):
    """Durable as long as the process lives. `delay` is awaited before each write: the time it takes, or its failure."""

    def __init__(self, delay: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(Tree())
        self._delay = delay

    async def _persist(self, changes: Changes) -> None:
        if self._delay is not None:
            await self._delay()
