"""Failures of disks, from where they happen to the task that acts on them.

An append or a read that fails records the failure and answers with an error. One task does the rest, in a turn of its
own: the directory goes offline with all its partitions, the controller is informed, and a broker without any directory
stops.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import StorageError
from ottla.ids import TopicPartition
from ottla.runtime.signal import Signal
from ottla.storage.log import Log


class DiskFailures:
    """Failures that have not been acted on yet."""

    def __init__(self) -> None:
        self.recorded = Signal()
        self._failures: list[tuple[Log, StorageError]] = []
        self._lost: list[TopicPartition] = []

    def record(self, log: Log, error: StorageError) -> None:
        """The disk under a log failed."""
        self._failures.append((log, error))
        self.recorded.fire()

    def record_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions went offline with their directory."""
        self._lost += partitions
        self.recorded.fire()

    def take_failures(self) -> list[tuple[Log, StorageError]]:
        failures, self._failures = self._failures, []
        return failures

    def take_lost_partitions(self) -> list[TopicPartition]:
        lost, self._lost = self._lost, []
        return lost

    async def wait(self) -> None:
        """Returns once there is something to act on."""
        while not self._failures and not self._lost:
            await self.recorded.wait()
