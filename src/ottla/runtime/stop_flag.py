"""What a signal handler may set: a flag.

Python runs a handler between two steps of the main thread, wherever that is. Where it is inside `Event.wait`, it holds
the event's lock, and `Event.set` in the handler waits for that lock for ever. So nothing here has a lock.
"""

from __future__ import annotations

import time
from typing import Final

LOOK_S: Final = 0.1


class StopFlag:
    """Somebody asked for a stop. Set from a handler or a thread, once and for good."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Whether it was set before the time was up, or at most `LOOK_S` later."""
        deadline = time.monotonic() + timeout_s
        while not self._is_set:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            time.sleep(min(remaining_s, LOOK_S))
        return True
