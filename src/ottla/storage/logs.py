"""All logs of a broker, in one or several directories.

Owns the directories: their locks, their checkpoints, their clean-shutdown marks, which partitions they hold and whether
they still work. A directory that fails takes only its own logs offline. Upkeep (retention, unlinking, checkpoints) is
offered as plain calls; when they are made is the business of the layer above.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

from ottla.config import LogConfig
from ottla.disk import Disk, make_durable_directory, remove_tree
from ottla.errors import CorruptFileError, LockHeldError, OutOfDescriptorsError, StorageError
from ottla.ids import TopicPartition
from ottla.storage import checkpoints
from ottla.storage.clean_mark import LastStop, last_stop, remove_clean_mark, write_clean_mark
from ottla.storage.cleaning_job import CleaningResult
from ottla.storage.directory_checkpoints import Checkpointed
from ottla.storage.directory_names import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    future_partition_of,
    is_deleted,
    partition_of,
    set_aside_name,
)
from ottla.storage.log import Log
from ottla.storage.log_directory import CheckpointPlan, LogDirectory, LogPlan, Rename, RenamePlan
from ottla.storage.log_moves import LogMoves
from ottla.storage.recovery import RecoveryReport, open_log

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"


class Logs:
    """The logs of one broker, by topic and partition."""

    def __init__(
        self,
        disk: Disk,
        paths: list[str],
        config_of: Callable[[str], LogConfig],
        *,
        rng: random.Random | None = None,
    ) -> None:
        assert paths, "a broker has at least one log directory"
        self._disk = disk
        self._config_of = config_of
        self._rng = random.Random() if rng is None else rng
        self.directories = [LogDirectory(disk, path) for path in paths]
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self.unreadable: dict[TopicPartition, CorruptFileError] = {}  # logs that could not be opened, and why
        self._to_remove: list[tuple[int, LogDirectory, str]] = []
        self._owners: dict[TopicPartition, UUID] = {}  # as far as they are known
        self.moves = LogMoves(disk, self.directories, self, self._rng)

    # -- life ----------------------------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> None:
        """Locks the directories and opens what is in them; see `lock` and `load`."""
        self.lock()
        self.load(now_ms)

    def lock(self) -> None:
        """Takes the directories for this process; LockHeldError where another has one of them."""
        for directory in self.directories:
            try:
                make_durable_directory(self._disk, directory.path)
                directory.lock = self._disk.lock(directory.file(LOCK_FILE))
            except LockHeldError:
                self.close_locks()
                raise
            except StorageError as error:
                self.fail(directory, error)

    def load(self, now_ms: int) -> None:
        """Opens the logs in the directories. Each that fails goes offline by itself; an error where none works."""
        for directory in self.directories:
            try:
                if directory.is_online:
                    self._open_directory(directory, now_ms)
            except OutOfDescriptorsError:
                self.close_locks()
                raise  # the disk is as good as before: whoever starts us must give us more
            except StorageError as error:
                self.fail(directory, error)
        self.moves.settle()
        failure = self.failure
        if failure is not None:
            self.close_locks()
            raise failure

    @property
    def failure(self) -> StorageError | None:
        """Why no directory works, once none does."""
        failures = [directory.failure for directory in self.directories if directory.failure is not None]
        if len(failures) < len(self.directories):
            return None
        return StorageError(
            self.directories[0].path, f"all log directories have failed: {'; '.join(map(str, failures))}"
        )

    def _open_directory(self, directory: LogDirectory, now_ms: int) -> None:
        stop = last_stop(self._disk, directory.path)
        said = directory.checkpoints.read(by_checksums=stop is not LastStop.BY_ANOTHER)
        directory.clean_offsets = dict(said.clean_offsets)
        directory.high_watermarks = said.high_watermarks
        remove_clean_mark(self._disk, directory.path)
        for name in self._disk.list_directory(directory.path):
            path = directory.file(name)
            if not self._disk.is_directory(path):
                continue
            if is_deleted(name):
                self.remove_at(0, directory, path)
                continue
            moving = future_partition_of(name)
            if moving is not None:
                open_copy = partial(self._open_log, path, moving, stop, said, now_ms, RecoveryReport())
                self.moves.found(directory, moving, path, open_copy)
                continue
            partition = partition_of(name)
            if partition is None and (name.startswith(".") or name.endswith(STRAY_SUFFIX)):
                continue  # not ours to know: the metadata store's, the file system's, or what was set aside
            if partition is None:
                logger.warning("%s: not the directory of a partition; ignored", path)
                continue
            try:
                self.reports[partition] = report = RecoveryReport()
                directory.logs[partition] = self._open_log(directory.file(name), partition, stop, said, now_ms, report)
            except CorruptFileError as error:
                logger.error("%s; this partition is not served", error)
                self.unreadable[partition] = error
                directory.checkpoints.leave_alone(partition, said)
        # What the checkpoints said of partitions that are gone must not reach later ones of the same name.
        directory.checkpoint().run()

    def _open_log(
        self,
        path: str,
        partition: TopicPartition,
        stop: LastStop,
        said: Checkpointed,
        now_ms: int,
        report: RecoveryReport,
    ) -> Log:
        points = said.recovery_points
        return open_log(
            self._disk,
            path,
            partition,
            self._config_of(partition.topic),
            now_ms=now_ms,
            is_clean=stop is LastStop.CLEAN,
            recovery_point=None if points is None else points.get(partition, 0),
            log_start_offset=said.log_start_offsets.get(partition, 0),
            clean_offset=said.clean_offsets.get(partition, 0),
            rng=self._rng,
            report=report,
        )

    def close(self) -> None:
        """Closes every log and lets go of the directories."""
        self.close_logs()
        self.close_locks()

    def close_logs(self) -> None:
        """Closes every log in order and leaves the mark of a clean shutdown in each directory that still works.

        Not in one with a log that could not be opened.
        """
        for directory in self.directories:
            if not directory.is_online:
                continue
            try:
                for log in (*directory.logs.values(), *directory.future_logs.values()):
                    log.close()
                directory.checkpoint().run()
                if any(self._disk.is_directory(directory.file(str(partition))) for partition in self.unreadable):
                    continue  # nobody has checked it since whatever happened to it: the next start has to
                write_clean_mark(self._disk, directory.path)
            except OutOfDescriptorsError as error:
                logger.warning(
                    "%s; %s is not marked as cleanly closed: the next start checks it", error, directory.path
                )
            except StorageError as error:
                self.fail(directory, error)

    def close_locks(self) -> None:
        """Lets another process have the directories: the last thing of all that is done in them."""
        for directory in self.directories:
            if directory.lock is not None:
                directory.lock.close()
                directory.lock = None

    def fail(self, directory: LogDirectory, error: StorageError) -> list[TopicPartition]:
        """Takes a directory offline after an error of its disk and returns the partitions that went with it."""
        logger.error("%s; the log directory %s is offline", error, directory.path)
        # A copy, for it is kept as long as the broker lives: the frames that the error passed through hold files open.
        directory.failure = StorageError(error.path, str(error).removeprefix(f"{error.path}: "))
        lost = list(directory.logs)
        for log in (*directory.logs.values(), *directory.future_logs.values()):
            log.abandon()
        directory.logs.clear()
        directory.future_logs.clear()
        for partition in lost:
            self._owners.pop(partition, None)
        return lost

    # -- finding -------------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        for directory in self.directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if partition in directory.logs), None)

    def __iter__(self) -> Iterator[Log]:
        for directory in self.directories:
            yield from directory.logs.values()

    def __len__(self) -> int:
        return sum(len(directory.logs) for directory in self.directories)

    # -- making and deleting -------------------------------------------------------------------------------------------

    def create(self, partition: TopicPartition, *, now_ms: int, topic_id: UUID | None = None) -> Log:
        """The log of a partition, as its settings are now; a new one in the working directory that has the fewest."""
        existing = self.get(partition)
        if existing is not None:
            # It was opened or made a while ago. Changes since then reach the logs that are in use.
            existing.config = self._config_of(partition.topic)
            return existing
        if partition in self.unreadable:
            raise self.unreadable[partition]
        (plan,) = self.begin_create([partition], now_ms=now_ms, topic_id=topic_id)
        log = plan.make()
        self.adopt(plan, log)
        return log

    def begin_create(
        self, partitions: Iterable[TopicPartition], *, now_ms: int, topic_id: UUID | None = None
    ) -> list[LogPlan]:
        """Where the logs of new partitions of a topic are to be made; `adopt` takes what was made."""
        counts = {directory.path: len(directory.logs) for directory in self.directories}
        online = [directory for directory in self.directories if directory.is_online]
        if not online:
            raise StorageError(self.directories[0].path, "no log directory is online")
        plans = []
        for partition in partitions:
            preferred = self.moves.preferred.pop(partition, None)
            if preferred is not None and preferred.is_online:
                directory = preferred
            else:
                directory = min(online, key=lambda candidate: counts[candidate.path])
            counts[directory.path] += 1
            config = self._config_of(partition.topic)
            plans.append(LogPlan(directory, partition, config, topic_id, now_ms, self._rng))
        return plans

    def adopt(self, plan: LogPlan, log: Log) -> None:
        """Takes a log that was made; one whose directory went offline meanwhile is let go."""
        if not plan.directory.is_online:
            log.abandon()
            return
        plan.directory.logs[plan.partition] = log
        if plan.topic_id is not None:
            self._owners[plan.partition] = plan.topic_id

    def owner_of(self, partition: TopicPartition) -> UUID | None:
        """The id of the topic that a log belongs to; None where its directory does not say."""
        log = self.get(partition)
        if log is None:
            return None
        if partition not in self._owners:
            owner = self.read_owner(log)
            if owner is None:
                return None
            self._owners[partition] = owner
        return self._owners[partition]

    def read_owner(self, log: Log) -> UUID | None:
        """The id of a topic that is in the log's own directory."""
        try:
            return checkpoints.read_topic_id(self._disk, log.directory)
        except CorruptFileError as error:
            logger.warning("%s; the log is treated as one without a topic id", error)
            return None

    def claim(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Makes a log the one of the topic of that id, if it says nothing of its owner yet."""
        log = self.get(partition)
        assert log is not None, f"{partition} has no log here"
        owner = self.owner_of(partition)
        assert owner in (None, topic_id), f"{partition} belongs to {owner}: see `set_strays_aside`"
        if owner is None:
            checkpoints.write_topic_id(self._disk, log.directory, topic_id)
            self._owners[partition] = topic_id

    def set_strays_aside(self, partition: TopicPartition, topic_id: UUID, *, is_new: bool) -> None:
        """Renames what has the name of a topic's partition and is not its log; nothing of it is deleted.

        See `begin_set_strays_aside`.
        """
        for plan in self.begin_set_strays_aside(partition, topic_id, is_new=is_new):
            plan.run()

    def begin_set_strays_aside(
        self, partition: TopicPartition, topic_id: UUID, *, is_new: bool
    ) -> Iterator[RenamePlan]:
        """What has the name of a topic's partition and is not its log: forgotten here, renamed by the plans.

        That is left by a topic of the same name that was deleted, or could not be made, while a directory failed. A log
        that says nothing of its owner is ours, unless the topic `is_new` or a log beside it is.
        """
        holders = [directory for directory in self.directories if partition in directory.logs]
        if len(holders) == 1:
            owners = [self.owner_of(partition)]  # remembered: the common case costs no reading
        else:
            owners = [self.read_owner(one.logs[partition]) for one in holders]
        accepted = (topic_id,) if is_new or topic_id in owners else (topic_id, None)
        if not is_new and holders and not any(owner in accepted for owner in owners):
            # Perhaps it is the topic's log and only the file is wrong: an empty one in its place would cost all of it.
            raise CorruptFileError(
                os.path.join(holders[0].logs[partition].directory, checkpoints.PARTITION_METADATA),
                f"names the topic {owners[0]}, and {partition.topic} is {topic_id}; if these are its records, "
                "delete this file, else move the directory away; then start again",
            )
        for directory, owner in zip(holders, owners, strict=True):
            if owner not in accepted:
                path = directory.file(set_aside_name(partition, self._rng, STRAY_SUFFIX))
                logger.warning(
                    "%s belongs to %s, not to %s; it is kept as %s",
                    directory.logs[partition].directory,
                    "no topic" if owner is None else f"a topic with the id {owner}",
                    topic_id,
                    path,
                )
                renames = [Rename(self.forget(directory, partition), path)]
                yield RenamePlan(directory, renames, directory.checkpoint())

    def forget(self, directory: LogDirectory, partition: TopicPartition) -> Log:
        """A log that is no longer in a directory, for whoever takes its name away."""
        log = directory.logs.pop(partition)
        directory.clean_offsets.pop(partition, None)
        self._owners.pop(partition, None)
        log.is_closed = True  # its files are closed with the rest, by whoever renames it
        return log

    def delete(self, partition: TopicPartition, *, now_ms: int) -> None:
        """Takes a log away at once; its files follow after `file.delete.delay.ms`."""
        directory = self.directory_of(partition)
        if directory is not None:
            self.delete_in(directory, [partition], now_ms=now_ms)

    def delete_in(self, directory: LogDirectory, partitions: Iterable[TopicPartition], *, now_ms: int) -> None:
        """Takes logs of one directory away together, which costs as many syncs as one."""
        for partition in partitions:
            self.detach(directory, partition)
        deletion = self.begin_delete(directory, now_ms)
        deletion.run()
        self.end_delete(deletion)

    def detach(self, directory: LogDirectory, partition: TopicPartition) -> None:
        """A log that is to be deleted: nobody finds it from here on. `begin_delete` takes its files away."""
        directory.detached.append(self.forget(directory, partition))
        self.moves.cancel(partition)

    def begin_delete(self, directory: LogDirectory, now_ms: int) -> RenamePlan:
        """How the logs that were let go lose their names, for a thread that may wait for the disk."""
        detached, directory.detached = directory.detached, []
        renames = [
            Rename(
                log,
                directory.file(set_aside_name(log.name, self._rng, DELETE_SUFFIX)),
                now_ms + log.config.file_delete_delay_ms,
            )
            for log in detached
        ]
        # Gone from the checkpoints as well, or a topic of the same name would inherit its offsets after a crash.
        return RenamePlan(directory, renames, directory.checkpoint())

    def end_delete(self, deletion: RenamePlan) -> None:
        """The names are gone for good: the files follow when their time has come."""
        self._to_remove += [(rename.due_ms, deletion.directory, rename.target) for rename in deletion.renames]

    def finish_delete_later(self, deletion: RenamePlan) -> None:
        """There was no descriptor to make a deletion durable: it is one of those that `take_unfinished` hands out."""
        deletion.directory.unfinished.append(deletion)

    def take_unfinished(self) -> list[RenamePlan]:
        """The deletions that are to be run again."""
        plans = []
        for directory in self.directories:
            if directory.is_online:
                plans += directory.unfinished
            directory.unfinished = []
        return plans

    def truncate(self, partition: TopicPartition, offset: int, *, now_ms: int) -> None:
        """Cuts a log and makes its lower recovery point durable before anything is appended behind the cut.

        Otherwise a crash could take new, unsynced segments below the old recovery point for flushed ones.
        """
        directory = self.directory_of(partition)
        assert directory is not None, f"{partition} has no log here"
        log = directory.logs[partition]
        is_cut = offset < log.end_offset
        log.truncate_to(offset, now_ms=now_ms)
        if not is_cut:
            return
        directory.clean_offsets[partition] = min(offset, directory.clean_offsets.get(partition, 0))
        directory.checkpoint().run()

    def take_due_directories(self, now_ms: int) -> list[str]:
        """The directories of deleted logs whose time has come, for a thread that may wait for the disk."""
        due = [path for due_ms, directory, path in self._to_remove if due_ms <= now_ms and directory.is_online]
        self._to_remove = [entry for entry in self._to_remove if entry[0] > now_ms]
        return due

    def remove_at(self, due_ms: int, directory: LogDirectory, path: str) -> None:
        """A directory of a log that is none any more: `take_due_directories` hands it out when its time has come."""
        self._to_remove.append((due_ms, directory, path))

    def remove_later(self, path: str, now_ms: int) -> None:
        """Takes back the directory of a deleted log that could not be removed yet."""
        directory = next(directory for directory in self.directories if directory.path == os.path.dirname(path))
        self.remove_at(now_ms, directory, path)

    def remove_tree(self, path: str) -> None:
        """Removes the directory of a deleted log; touches no state, so a thread may do it."""
        remove_tree(self._disk, path)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def begin_checkpoint(self) -> list[CheckpointPlan]:
        """Recovery points, log start offsets and clean offsets of every directory, for a thread to make durable."""
        return [directory.checkpoint() for directory in self.directories if directory.is_online]

    def begin_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> list[CheckpointPlan]:
        plans = []
        for directory in self.directories:
            if directory.is_online:
                own = {name: high_watermarks[name] for name in directory.logs if name in high_watermarks}
                plans.append(directory.plan({checkpoints.HIGH_WATERMARKS: own}))
        return plans

    def checkpointed_high_watermarks(self) -> dict[TopicPartition, int]:
        """What the checkpoints said at the start."""
        found: dict[TopicPartition, int] = {}
        for directory in self.directories:
            if directory.is_online:
                found.update(directory.high_watermarks)
        return found

    # -- compaction ----------------------------------------------------------------------------------------------------

    def clean_offset(self, partition: TopicPartition) -> int:
        """Up to where a log was compacted."""
        directory = self.directory_of(partition)
        return 0 if directory is None else directory.clean_offsets.get(partition, 0)

    def end_cleaning(self, log: Log, result: CleaningResult) -> None:
        """The names of the compacted segments are durable: only now may the checkpoint say so."""
        directory = self.directory_of(log.name)
        was_cut = result.truncation_count != log.durability.truncation_count
        if directory is not None and directory.logs[log.name] is log and not was_cut:
            directory.clean_offsets[log.name] = result.end_offset
