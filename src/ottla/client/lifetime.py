"""Whether a client may be used: it is open, and this is the process that made it.

A call asks by looking at one attribute, which costs nothing on the way of every record. Closing sets it, and so does a
fork, in the child: connections, threads and requests in flight belong to the parent.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine
from typing import Any

from ottla.client.errors import ClosedError, ForkedError, UsageError

_open: weakref.WeakSet[Lifetime] = weakref.WeakSet()


class Lifetime:
    """Of one client. `refusal` is what every call raises from now on, or None."""

    __slots__ = ("__weakref__", "kind", "refusal")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.refusal: UsageError | None = None
        _open.add(self)

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    @property
    def is_closed(self) -> bool:
        return self.refusal is not None

    def close(self) -> bool:
        """Whether it was open until now."""
        if isinstance(self.refusal, ForkedError):
            raise self.refusal
        if self.refusal is not None:
            return False
        self.refusal = ClosedError(f"the {self.kind} is closed")
        _open.discard(self)
        return True


def _refuse_in_child() -> None:
    for each in list(_open):
        each.refusal = ForkedError(
            f"the {each.kind} was made by the process that forked this one; make a new one after the fork"
        )


os.register_at_fork(after_in_child=_refuse_in_child)


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Waits for what must not be done by half, also where the caller is cancelled, which is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
