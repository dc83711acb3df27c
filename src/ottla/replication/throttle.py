"""How many bytes may pass in a second. Pure: the time comes from outside.

What passed is a debt that the rate pays off; while there is any, nothing more may pass. So a piece of whatever size
passes whole, and the average holds. Unused time is not saved up.
"""

from __future__ import annotations

DELAY_S_MIN = 0.001  # less is not worth waiting for; it stays a debt


class Throttle:
    """The debt of one kind of traffic. The rate is given each time, because settings change."""

    __slots__ = ("_debt_bytes", "_paid_at")

    def __init__(self) -> None:
        self._debt_bytes = 0.0
        self._paid_at = 0.0

    def record(self, size_bytes: int, now: float) -> None:
        """Records that bytes have passed at `now`, in seconds of a monotonic clock."""
        if self._debt_bytes <= 0:
            self._debt_bytes, self._paid_at = 0.0, now
        self._debt_bytes += size_bytes

    def delay_s(self, bytes_per_s: float, now: float) -> float:
        """How long nothing more may pass, at this rate; 0 where something may."""
        if self._debt_bytes <= 0:
            return 0.0
        self._debt_bytes -= max(0.0, now - self._paid_at) * bytes_per_s
        self._paid_at = now
        delay_s = self._debt_bytes / max(bytes_per_s, 1)
        return delay_s if delay_s >= DELAY_S_MIN else 0.0
