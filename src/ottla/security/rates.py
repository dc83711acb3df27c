"""How fast something happens, and how long to wait so that it becomes slower. Pure: the time comes from outside.

Both kinds are Kafka's, because operators choose limits by them: bytes, time and connections are averaged over the last
windows; changes of the cluster spend tokens, of which as many are saved up as the windows would give.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Windows:
    """Over how long a rate is averaged: `count` windows of `size_ms` each."""

    count: int = 11
    size_ms: int = 1000

    @property
    def full_s(self) -> float:
        """What is always averaged over, however little is known yet."""
        return (self.count - 1) * self.size_ms / SECOND_MS


class Rate:
    """What has passed in the last windows. The limit is an argument of each call, because it changes."""

    __slots__ = ("_samples", "used_ms")

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()  # of each window when it began, and what passed in it
        self.used_ms = 0

    def record(self, amount: float, now_ms: int, windows: Windows) -> None:
        """So much has passed; a negative amount takes back what was recorded and did not pass."""
        self.used_ms = now_ms
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= windows.size_ms:
            self._forget_old(now_ms, windows)
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount

    def delay_ms(self, limit: float, now_ms: int, windows: Windows) -> int:
        """How long nothing more may pass so that the average is back at the limit, per second; 0 where it is."""
        self._forget_old(now_ms, windows)
        if not self._samples:
            return 0
        span_ms = self._span_ms(now_ms, windows)
        rate = sum(amount for _, amount in self._samples) * SECOND_MS / span_ms
        return round((rate - limit) / limit * span_ms) if rate > limit else 0

    def _span_ms(self, now_ms: int, windows: Windows) -> float:
        """Since the oldest window began; with fewer windows than there should be, as if they had been empty."""
        elapsed_ms = now_ms - self._samples[0][0]
        missing = windows.count - 1 - int(elapsed_ms // windows.size_ms)
        return max(1.0, elapsed_ms + max(0, missing) * windows.size_ms)

    def _forget_old(self, now_ms: int, windows: Windows) -> None:
        oldest_ms = now_ms - windows.count * windows.size_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._samples.popleft()


class TokenBucket:
    """What may still be done at once: it fills at the limit's rate, up to what all windows give. May be overdrawn."""

    __slots__ = ("_filled_ms", "_tokens", "used_ms")

    def __init__(self) -> None:
        self._tokens: float | None = None  # not used yet: full
        self._filled_ms = 0
        self.used_ms = 0

    def spend(self, amount: float, limit: float, now_ms: int, windows: Windows) -> None:
        self._fill(limit, now_ms, windows)
        assert self._tokens is not None
        self._tokens -= amount
        self.used_ms = now_ms

    def delay_ms(self, limit: float, now_ms: int, windows: Windows) -> int:
        """How long until it is no longer overdrawn; 0 where it is not."""
        self._fill(limit, now_ms, windows)
        assert self._tokens is not None
        return round(-self._tokens / limit * SECOND_MS) if self._tokens < 0 else 0

    def _fill(self, limit: float, now_ms: int, windows: Windows) -> None:
        full = limit * windows.count * windows.size_ms / SECOND_MS
        if self._tokens is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + limit * (now_ms - self._filled_ms) / SECOND_MS)
        self._filled_ms = now_ms
