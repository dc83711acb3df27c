"""Looks at the broker from inside, at each step: what may only grow has grown, and nothing went that had to stay."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.partition import Partition
from ottla.testing.ledger import Bounds, PartitionKey

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak

STEP_S: Final = 0.2


class Seen(NamedTuple):
    """What within one life of a broker does not fall."""

    log_start: int
    high_watermark: int
    end: int
    epoch: int
    recovery_point: int


class Watch:
    """Remembers what it saw of each partition."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._seen: dict[PartitionKey, Seen] = {}
        self._epochs: dict[PartitionKey, int] = {}  # over all lives
        self._losses = -1

    async def run(self) -> None:
        while self._soak.is_on:
            await asyncio.sleep(STEP_S)
            if self._soak.process.is_running:
                self.look()

    def _partitions(self) -> Iterator[tuple[PartitionKey, Partition]]:
        """Those that are online; a topic that somebody has asked to delete is not judged any more."""
        for partition in self._soak.process.broker.replicas:
            yield PartitionKey(partition.topic_id, partition.name.partition, partition.name.topic), partition

    def bounds(self) -> dict[PartitionKey, Bounds]:
        return {
            key: Bounds(partition.log.log_start_offset, partition.log.end_offset)
            for key, partition in self._partitions()
        }

    def recovery_points(self) -> dict[PartitionKey, int]:
        return {key: partition.log.recovery_point for key, partition in self._partitions()}

    def began(self) -> None:
        """The broker has just started."""
        self._seen.clear()
        self._soak.ledger.restarted(self.bounds())
        self._check_directories()
        self.look()

    def _check_directories(self) -> None:
        for directory in self._soak.process.broker.logs.directories:
            is_excused = directory.path in self._soak.sick_directories
            assert directory.is_online or is_excused, f"{directory.path} is offline: {directory.failure}"

    def look(self) -> None:
        for key, partition in self._partitions():
            log, leader = partition.log, partition.leader
            now = Seen(log.log_start_offset, leader.high_watermark, log.end_offset, leader.epoch, log.recovery_point)
            assert now.log_start <= now.high_watermark <= now.end, f"{key}: {now}"
            assert now.recovery_point <= now.end, f"{key}: {now}"
            before = self._seen.get(key, now)
            assert all(map(int.__ge__, now, before)), f"{key} went from {before} to {now}"
            assert leader.epoch >= self._epochs.get(key, 0), f"{key}: epoch {self._epochs[key]} came before {now}"
            starts = [entry.start_offset for entry in log.epochs.entries]
            assert starts == sorted(set(starts)), f"{key}: the epochs {log.epochs.entries} do not rise"
            self._seen[key], self._epochs[key] = now, leader.epoch
            has_shrunk = self._losses != self._soak.ledger.losses
            size = float("inf") if has_shrunk else log.size_bytes
            self._soak.ledger.starts_at(key, now.log_start, self._soak.latest_ms(), size_bytes=size)
        self._losses = self._soak.ledger.losses
