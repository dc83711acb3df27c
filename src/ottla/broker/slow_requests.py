"""Requests that took the broker long, in its log: one line each, and not more often than a reader can follow.

How long: until the answer is there, with the waits for disks, followers and other brokers. The waits that clients ask
for do not count: of those APIs, only the part before the first wait does.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.runtime.clock import Clock

logger = logging.getLogger(__name__)

SLOW_NS: Final = 1_000_000_000
PAUSE_MS: Final = 10_000  # between two lines: a disk that stalls makes every request slow
# Fetch waits for records, JoinGroup and SyncGroup for the other members, ShareFetch again for records.
WAITS_ARE_ASKED_FOR: Final = frozenset({1, 11, 14, 78})


class SlowRequests:
    """Writes the lines, and counts what it leaves out."""

    __slots__ = ("_clock", "_next_ms", "_omitted")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = 0
        self._omitted = 0

    def note(self, api_name: str, peer: object, client_id: str | None, spent_ns: int) -> None:
        now_ms = self._clock.steady_ms()
        if now_ms < self._next_ms:
            self._omitted += 1
            return
        logger.info(
            "slow request: %s of client %.100r took %.1f s (%s); %d more since the last such line",
            api_name,
            client_id,
            spent_ns / 1e9,
            peer,
            self._omitted,
        )
        self._next_ms = now_ms + PAUSE_MS
        self._omitted = 0
