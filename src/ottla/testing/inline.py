"""Work that a broker leaves to threads and processes, done in place: simulations need its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def run_inline(work: Callable[[], None]) -> None:
    """For the writes of an embedded metadata store."""
    work()


class InlineOffload:
    """Everything in place, one after the other."""

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return work()

    async def computed(self, work: Callable[[], Result]) -> Result:
        return work()

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        return work(*arguments)

    async def finish(self) -> None:
        return

    def close(self) -> None:
        return
