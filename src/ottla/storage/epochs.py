"""The leader epochs of a log: which epoch wrote from which offset on (KIP-101).

Held in memory; written to `leader-epoch-checkpoint` before the recovery point moves past what it says, because
recovery learns the epochs of everything behind the recovery point from the batches themselves. An epoch in which no
record came yet is not written down: the next start of the broker has another one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from ottla.disk import Disk
from ottla.storage import checkpoints


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs and start offsets, both rising."""

    __slots__ = ("_disk", "_entries", "_on_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[EpochStart] = []
        self._on_disk: tuple[EpochStart, ...] = ()

    def load(self) -> None:
        self._entries = [EpochStart(*entry) for entry in checkpoints.read_epochs(self._disk, self.path)]
        self._on_disk = tuple(self._entries)

    def pending(self, log_end_offset: int) -> tuple[EpochStart, ...] | None:
        """What the checkpoint has to say and does not say yet; None where it is up to date."""
        entries = self.begun_before(log_end_offset)
        return None if entries == self._on_disk else entries

    def written(self, entries: tuple[EpochStart, ...]) -> None:
        """The checkpoint says `entries` now; the epochs may have gone on meanwhile."""
        self._on_disk = entries

    def begun_before(self, offset: int) -> tuple[EpochStart, ...]:
        return tuple(entry for entry in self._entries if entry.start_offset < offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The latest epoch, -1 where there is none."""
        return self._entries[-1].epoch if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` writes from `start_offset` on. What contradicts it was never committed and goes."""
        if epoch < 0:
            return
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that start there or later go."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: the epoch of its first record starts there, earlier ones go."""
        covered = bisect.bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if covered == 0:
            return
        first = EpochStart(self._entries[covered - 1].epoch, start_offset)
        if covered > 1 or first != self._entries[0]:
            self._entries[:covered] = [first]

    def take_over(self, entries: Iterable[EpochStart]) -> None:
        """Knows what another copy of the log knows."""
        self._entries = list(entries)

    def clear(self) -> None:
        self._entries = []

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 where it is not known."""
        covered = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[covered - 1].epoch if covered else -1

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch known that is not past `epoch`, where it ends): OffsetForLeaderEpoch's answer.

        (-1, -1) where the epoch is not known: undefined, or past the latest one.
        """
        if epoch == -1 or not self._entries or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[at].start_offset
        if at == 0:
            # Older than all that is known: it ended where the first known one begins.
            return epoch, end_offset
        return self._entries[at - 1].epoch, end_offset
