"""One of `log.dirs`: the logs in it, whether it still works, and what is to be written or renamed there."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.config import LogConfig
from ottla.disk import Disk, File
from ottla.errors import StorageError
from ottla.ids import TopicPartition
from ottla.storage import checkpoints
from ottla.storage.directory_checkpoints import DirectoryCheckpoints, Offsets
from ottla.storage.flush import Flush
from ottla.storage.log import Log
from ottla.storage.recovery import open_log


class LogDirectory:
    """Owns the logs below one path. `failure` says why it is offline."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.disk = disk
        self.lock: File | None = None
        self.failure: StorageError | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}  # copies of logs that are being moved here from another
        self.checkpoints = DirectoryCheckpoints(disk, path)
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: Offsets = {}  # as they were known at the start
        self.detached: list[Log] = []  # deleted, with names that are still to be taken away
        self.unfinished: list[RenamePlan] = []  # deletions that lacked a descriptor

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def checkpoint(self) -> CheckpointPlan:
        """Where each log, and each copy, was flushed, starts and is clean, at this moment."""
        logs = {**self.logs, **self.future_logs}.items()
        return self.plan(
            {
                checkpoints.RECOVERY_POINTS: {partition: log.recovery_point for partition, log in logs},
                # Also where the first segment starts there (Kafka leaves those out): a crash may undo a deletion. Never
                # past what is flushed: a start behind the end of a log is then known to be wrong.
                checkpoints.LOG_START_OFFSETS: {
                    partition: start
                    for partition, log in logs
                    if (start := min(log.log_start_offset, log.recovery_point)) > 0
                },
                checkpoints.CLEANER_OFFSETS: {
                    partition: offset for partition, offset in self.clean_offsets.items() if partition in self.logs
                },
            }
        )

    def plan(self, offsets: Mapping[str, Offsets]) -> CheckpointPlan:
        return CheckpointPlan(self, *self.checkpoints.numbered(offsets))


class CheckpointPlan(NamedTuple):
    """Checkpoint files to be written, with the values of one moment. `run` may run in any thread.

    Of two plans for the same file the later one wins, whichever runs last: an old recovery point must not come back
    over one that a truncation has lowered.
    """

    directory: LogDirectory
    number: int
    offsets: Mapping[str, Offsets]

    def run(self) -> None:
        self.directory.checkpoints.write(self.number, self.offsets)


class Rename(NamedTuple):
    """A log that is no longer ours, the name that its directory gets, and of a deleted one when its files may go."""

    log: Log
    target: str
    due_ms: int = -1


@dataclass(frozen=True, slots=True)
class RenamePlan:
    """Logs of one directory that lose their names. `run` may run in any thread, and again where it failed."""

    directory: LogDirectory
    renames: list[Rename]
    checkpoint: CheckpointPlan
    renamed: set[str] = field(default_factory=set)  # targets

    def run(self) -> None:
        disk = self.directory.disk
        for log, target, _ in self.renames:
            if target not in self.renamed:  # else the old name may be another log's by now
                log.abandon()
                log.hold.give_up()
                disk.rename(log.directory, target)
                self.renamed.add(target)
        disk.sync_directory(self.directory.path)
        self.checkpoint.run()


@dataclass(slots=True)
class SwapPlan:
    """A copy has the name of the log that it was made of, and the log is deleted. `run` may run in any thread.

    The new name is durable before anything of the copy is flushed under it, and all of the copy before the log that it
    was made of loses its own name: whatever a crash leaves, one of the two is found with all that was ever durable.
    """

    directory: LogDirectory  # of the copy
    copy: Log  # its hold is taken until its name is durable
    flush: Flush
    checkpoint: CheckpointPlan
    deletion: RenamePlan
    is_durable: bool = False

    def run(self) -> None:
        try:
            self.directory.disk.sync_directory(self.directory.path)
        finally:
            self.copy.hold.release()
        self.checkpoint.run()
        self.flush.run()
        self.is_durable = True
        self.deletion.run()


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A log that is to be made. `make` may run in any thread: nobody knows of the log before it is adopted."""

    directory: LogDirectory
    partition: TopicPartition
    config: LogConfig
    topic_id: UUID | None
    now_ms: int
    rng: random.Random
    name: str = ""  # of its directory; empty: the partition's
    start_offset: int = 0

    def make(self) -> Log:
        disk, path = self.directory.disk, self.directory.file(self.name or str(self.partition))
        log = open_log(
            disk,
            path,
            self.partition,
            self.config,
            now_ms=self.now_ms,
            log_start_offset=self.start_offset,
            rng=self.rng,
        )
        if self.topic_id is not None:
            checkpoints.write_topic_id(disk, path, self.topic_id)
        return log
