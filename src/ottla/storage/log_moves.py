"""Logs on their way from one directory of a broker to another: copies, and how one takes the place of its log.

A copy is a log under a name of its own (`…-future`) until it has everything; then it gets the partition's name, and the
log that it was made of is deleted. At no moment is there none with all that was ever durable: see `SwapPlan`. What a
crash leaves is settled at the next start.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

from ottla.disk import Disk
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition
from ottla.storage.directory_names import DELETE_SUFFIX, STRAY_SUFFIX, future_name, set_aside_name
from ottla.storage.log import Log
from ottla.storage.log_directory import LogDirectory, LogPlan, Rename, RenamePlan, SwapPlan

logger = logging.getLogger(__name__)


class OwnedLogs(Protocol):
    """What is asked of `Logs`, which knows whose log is where."""

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None: ...

    def forget(self, directory: LogDirectory, partition: TopicPartition) -> Log: ...

    def read_owner(self, log: Log) -> UUID | None: ...

    def remove_at(self, due_ms: int, directory: LogDirectory, path: str) -> None: ...


def common_end(source: Log, copy: Log) -> int:
    """Up to where `copy` holds what `source` does: behind it, the source was cut after it had been copied."""
    end_offset = min(copy.end_offset, source.end_offset)
    for epoch, start_offset in reversed(copy.epochs.entries):
        if start_offset < end_offset:
            known, epoch_end = source.epochs.end_of(epoch, source.end_offset)
            if known == epoch:
                return min(end_offset, epoch_end)
            end_offset = start_offset  # nothing of that epoch is in the source
    return end_offset


class LogMoves:
    """The moves between the directories of a broker. The copies are the directories'."""

    def __init__(self, disk: Disk, directories: list[LogDirectory], logs: OwnedLogs, rng: random.Random) -> None:
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._rng = rng
        # Where logs are to be made that are not here yet, as somebody asked for.
        self.preferred: dict[TopicPartition, LogDirectory] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        """The partitions whose logs are being moved."""
        return iter([partition for directory in self._directories for partition in directory.future_logs])

    def target_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The directory that a log is being moved to."""
        return next((directory for directory in self._directories if partition in directory.future_logs), None)

    # -- at the start --------------------------------------------------------------------------------------------------

    def found(
        self, directory: LogDirectory, partition: TopicPartition, path: str, open_copy: Callable[[], Log]
    ) -> None:
        """The copy of a log that was being moved when the broker stopped; one that cannot be read is made again."""
        if partition in directory.future_logs:
            self._logs.remove_at(0, directory, path)
            return
        try:
            directory.future_logs[partition] = open_copy()
        except CorruptFileError as error:
            logger.warning("%s; this copy is dropped", error)
            self._logs.remove_at(0, directory, path)

    def settle(self) -> None:
        """What a crash cut off: which of two logs counts, and which copies are of use."""
        online = [directory for directory in self._directories if directory.is_online]
        for partition in {name for directory in online for name in directory.logs}:
            holders = [directory for directory in online if partition in directory.logs]
            if len(holders) > 1 and len({self._logs.read_owner(one.logs[partition]) for one in holders}) == 1:
                self._keep_furthest(partition, holders)
            copies = [directory for directory in online if partition in directory.future_logs]
            for directory in copies:
                if directory is not copies[0] or partition in directory.logs:
                    copy = directory.future_logs.pop(partition)
                    copy.abandon()
                    self._logs.remove_at(0, directory, copy.directory)

    def _keep_furthest(self, partition: TopicPartition, holders: list[LogDirectory]) -> None:
        """The copy has its name already, the log of which it was made still has its own: the one that went on counts.

        As among replicas: the one with the latest epoch, of those the longest.
        """
        kept = max(holders, key=lambda one: (one.logs[partition].epochs.latest, one.logs[partition].end_offset))
        for directory in holders:
            if directory is not kept:
                path = directory.file(set_aside_name(partition, self._rng, STRAY_SUFFIX))
                logger.warning(
                    "%s is in two log directories; the one in %s is used, the other is kept as %s",
                    partition,
                    kept.path,
                    path,
                )
                renames = [Rename(self._logs.forget(directory, partition), path)]
                RenamePlan(directory, renames, directory.checkpoint()).run()

    # -- moving --------------------------------------------------------------------------------------------------------

    def begin(self, source: Log, directory: LogDirectory, topic_id: UUID, now_ms: int) -> LogPlan:
        """How the copy of a log in another directory is begun; `adopt` takes what was made."""
        name = future_name(source.name, self._rng)
        return LogPlan(
            directory, source.name, source.config, topic_id, now_ms, self._rng, name, source.log_start_offset
        )

    def adopt(self, plan: LogPlan, copy: Log) -> bool:
        """Takes a copy that was begun; one whose directory went offline meanwhile is let go."""
        if not plan.directory.is_online:
            copy.abandon()
            return False
        plan.directory.future_logs[plan.partition] = copy
        return True

    def cancel(self, partition: TopicPartition) -> None:
        """A log that is being moved is not to be any more; `Logs.begin_delete` takes the files of the copy away."""
        directory = self.target_of(partition)
        if directory is not None:
            copy = directory.future_logs.pop(partition)
            copy.is_closed = True
            directory.detached.append(copy)

    def swap(self, partition: TopicPartition, now_ms: int) -> SwapPlan:
        """Puts the copy of a log, which is whole, in its place. From here on it is the partition's log.

        The plan makes that durable, for a thread that may wait for the disk.
        """
        source, target = self._logs.directory_of(partition), self.target_of(partition)
        assert source is not None, f"{partition} is not here"
        assert target is not None, f"{partition} is not being moved"
        copy, old = target.future_logs[partition], source.logs[partition]
        path = target.file(str(partition))
        self._disk.rename(copy.directory, path)  # if that fails, nothing has changed
        copy.hold.take()
        copy.moved_to(path)
        _take_over(copy, old)
        del target.future_logs[partition]
        clean_offset = source.clean_offsets.get(partition)
        deleted_path = source.file(set_aside_name(partition, self._rng, DELETE_SUFFIX))
        due_ms = now_ms + old.config.file_delete_delay_ms
        deletion = RenamePlan(
            source, [Rename(self._logs.forget(source, partition), deleted_path, due_ms)], source.checkpoint()
        )
        target.logs[partition] = copy
        if clean_offset is not None:
            target.clean_offsets[partition] = clean_offset
        return SwapPlan(target, copy, copy.begin_flush(), target.checkpoint(), deletion)


def _take_over(copy: Log, source: Log) -> None:
    """What is known in memory only goes on as it is: verifications of producers, an epoch without a record."""
    assert copy.end_offset == source.end_offset, "a copy takes over once it is whole"
    copy.config = source.config
    copy.producers = source.producers
    copy.epochs.take_over(source.epochs.entries)
    copy.log_start_offset = max(copy.log_start_offset, source.log_start_offset)
