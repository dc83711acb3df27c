"""The bytes that records in flight may take: a bounded pool, with those who wait served in the order they came.

It counts and holds no bytes itself: a batch reserves its size when it is begun and gives it back when it is done, so
that batches that are tried again keep what they have. Whoever asks while others wait has to wait behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Waiter:
    """Somebody who waits for room: `granted` is called once it is there, and has been taken."""

    __slots__ = ("granted", "is_cancelled", "size_bytes")

    def __init__(self, size_bytes: int, granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.granted = granted
        self.is_cancelled = False


class MemoryPool:
    __slots__ = ("_waiters", "available_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.available_bytes = limit_bytes
        self._waiters: deque[Waiter] = deque()

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    @property
    def waiting_count(self) -> int:
        return len(self._waiters)

    def try_take(self, size_bytes: int) -> bool:
        """Takes room where there is some and nobody was there before."""
        if self._waiters or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, granted: Callable[[], None]) -> Waiter:
        """Gets in line. `granted` may be called at once."""
        assert size_bytes <= self.limit_bytes, "what never fits is refused before it waits"
        waiter = Waiter(size_bytes, granted)
        self._waiters.append(waiter)
        self._serve()
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Leaves the line; those behind may fit now."""
        waiter.is_cancelled = True
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve()

    def give_back(self, size_bytes: int) -> None:
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.limit_bytes, "more was given back than was taken"
        self._serve()

    def _serve(self) -> None:
        while self._waiters and self._waiters[0].size_bytes <= self.available_bytes:
            waiter = self._waiters.popleft()
            self.available_bytes -= waiter.size_bytes
            waiter.granted()
