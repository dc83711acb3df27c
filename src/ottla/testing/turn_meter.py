"""How long each turn of an event loop takes, in time of the processor: what a neighbour would have to wait for.

    with TurnMeter() as meter, Broker() as broker:
        something_large(broker)
    assert meter.longest_s < 0.05, meter

It counts the time that the loop's own thread computes, so a loaded machine changes little of it: that of waiting for
the disk is not in it, which is found by `testing.loop_disk` instead. asyncio's own loop only, not uvloop's.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio import events
from types import TracebackType
from typing import Any, NamedTuple, Self

from ottla.runtime.garbage import collect_rarely

LONGEST_KEPT = 10  # turns


class TurnTaken(NamedTuple):
    """One callback of the loop."""

    cpu_s: float
    what: str


class TurnMeter:
    """Meters all loops but those of the caller's thread, from the beginning of a `with` to its end."""

    def __init__(self) -> None:
        self.longest: list[TurnTaken] = []
        self._thread = threading.get_ident()
        self._run: Any = None
        self._thresholds = gc.get_threshold()

    @property
    def longest_s(self) -> float:
        return max((turn.cpu_s for turn in self.longest), default=0.0)

    def reset(self) -> None:
        """Forgets what was seen until now."""
        self.longest = []

    def __enter__(self) -> Self:
        # As in a broker's own process: of what the tests before left behind nothing is looked at.
        self._thresholds = gc.get_threshold()
        collect_rarely()
        run = self._run = events.Handle._run
        meter = self

        def metered(handle: asyncio.Handle) -> None:
            if threading.get_ident() == meter._thread:
                run(handle)
                return
            started = time.thread_time()
            run(handle)
            meter._note(time.thread_time() - started, handle)

        events.Handle._run = metered  # type: ignore[method-assign,assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _note(self, cpu_s: float, handle: asyncio.Handle) -> None:
        longest = self.longest
        if len(longest) < LONGEST_KEPT or cpu_s > longest[-1].cpu_s:
            longest.append(TurnTaken(cpu_s, _what(handle)))
            longest.sort(reverse=True)
            del longest[LONGEST_KEPT:]

    def __str__(self) -> str:
        return "\n".join(f"{turn.cpu_s * 1000:.1f} ms: {turn.what}" for turn in self.longest)


def _what(handle: asyncio.Handle) -> str:
    """What a callback was, in words; of a task's step, the task."""
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()}: {task.get_coro()}"
    return repr(callback)
