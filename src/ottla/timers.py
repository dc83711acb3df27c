"""Deadlines by key: a heap with lazy deletion.

A heartbeat moves its member's deadline further away, thousands of times before one is reached. That must not touch the
heap: the table knows the deadline, and an entry of the heap that comes up too early is put back at the right place.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

# Cancelled entries leave the heap when their time comes, or all at once when they are most of it.
_STALE_ENTRIES_MIN = 1024


class Timers(Generic[Key]):
    """At most one deadline for each key."""

    __slots__ = ("_deadlines", "_entered", "_heap", "_order")

    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        # The earliest time at which the heap brings up a key; it may be earlier than its deadline, never later.
        self._entered: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def set(self, key: Key, deadline_ms: int) -> None:
        """The deadline of a key, in place of the one it had."""
        self._deadlines[key] = deadline_ms
        entered = self._entered.get(key)
        if entered is None or deadline_ms < entered:
            self._enter(key, deadline_ms)

    def cancel(self, key: Key) -> None:
        self._deadlines.pop(key, None)
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_ENTRIES_MIN:
            self._rebuild()

    @property
    def next_deadline_ms(self) -> int | None:
        """No deadline is before this one."""
        heap = self._heap
        while heap:
            at, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if deadline == at:
                return at
            heappop(heap)
            if self._entered.get(key) != at:
                continue
            del self._entered[key]
            if deadline is not None:
                self._enter(key, deadline)
        return None

    def pop_due(self, now_ms: int) -> Key | None:
        """A key whose deadline has come, the earliest first; it has none from here on."""
        deadline = self.next_deadline_ms
        if deadline is None or deadline > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._deadlines[key]
        self._entered.pop(key, None)
        return key

    def _enter(self, key: Key, at_ms: int) -> None:
        self._entered[key] = at_ms
        self._order += 1
        heappush(self._heap, (at_ms, self._order, key))

    def _rebuild(self) -> None:
        self._entered = dict(self._deadlines)
        self._heap = [(at_ms, order, key) for order, (key, at_ms) in enumerate(self._deadlines.items())]
        self._order = len(self._heap)
        heapify(self._heap)
