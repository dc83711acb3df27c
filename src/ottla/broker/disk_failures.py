"""Failures of disks, from where they are met to the task that acts on them.

Whoever meets one, in the middle of an append or a read, records it and answers with an error. What follows is done by
one task, in a turn of its own: a directory goes offline with all its partitions, the controller hears of it, and a
broker without any directory ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import StorageError
from ottla.ids import TopicPartition
from ottla.runtime.signal import Signal
from ottla.storage.log import Log


class DiskFailures:
    """What was met and is yet to be acted on."""

    def __init__(self) -> None:
        self.recorded = Signal()
        self._met: list[tuple[Log, StorageError]] = []
        self._lost: list[TopicPartition] = []

    def record(self, log: Log, error: StorageError) -> None:
        """The disk under a log failed."""
        self._met.append((log, error))
        self.recorded.fire()

    def record_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions went offline with their directory."""
        self._lost += partitions
        self.recorded.fire()

    def take_met(self) -> list[tuple[Log, StorageError]]:
        met, self._met = self._met, []
        return met

    def take_lost(self) -> list[TopicPartition]:
        lost, self._lost = self._lost, []
        return lost

    async def wait(self) -> None:
        """Returns once there is something to act on."""
        while not self._met and not self._lost:
            await self.recorded.wait()
