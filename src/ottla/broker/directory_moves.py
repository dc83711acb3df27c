"""Moves logs between the log directories of this broker while they are in use (AlterReplicaLogDirs).

A log is copied into the other directory, under a name of its own (`…-future`), batches as they are; once the copy has
all, it takes the log's place within a turn, so that nothing is appended in between. A log that is truncated takes its
copy along: what both have in common follows from their leader epochs, as between a leader and a follower. A broker that
stops goes on with the copies that it finds. Logs that are being moved are not compacted, or a copy could keep a record
whose tombstone it never saw.

One task copies a piece of each log in turn. Copies belong to it and to threads that it waits for; `_turn` keeps those
out who begin and end moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OutOfDescriptorsError, StorageError
from ottla.ids import TopicPartition
from ottla.replication.throttle import Throttle
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload
from ottla.runtime.signal import Signal
from ottla.runtime.tasks import Tasks
from ottla.storage.directory_names import has_future_name
from ottla.storage.log import Log
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_moves import common_end
from ottla.storage.log_slice import LogSlice
from ottla.storage.logs import Logs

logger = logging.getLogger(__name__)

COPIED_BYTES_MAX: Final = 1024 * 1024  # at once, in a thread, and within a turn before the copy takes over
RETRY_S: Final = 1.0


class DirectoryMoves:
    """The moves of one broker. Owns nothing but their pace: the copies are `Logs`', and so outlive a restart."""

    def __init__(
        self, logs: Logs, replicas: Replicas, clock: Clock, offload: Offload, config: Callable[[], BrokerConfig]
    ) -> None:
        self._logs = logs
        self._moves = logs.moves
        self._replicas = replicas
        self._clock = clock
        self._offload = offload
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._begun = Signal()
        self._throttle = Throttle()
        self._known: dict[TopicPartition, Log] = {}  # copies that belong to the topic that has the name now

    def start(self, tasks: Tasks) -> None:
        tasks.keep("moves between directories", self._run)

    # -- beginning and ending ------------------------------------------------------------------------------------------

    async def move(self, name: TopicPartition, path: str) -> None:
        """Moves a replica into the log directory `path`; returns once that has begun. ApiError says why it cannot be.

        To where it is already: a move in progress ends. One that is not here yet will be made there.
        """
        if not has_future_name(name):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {name.topic} is too long for its log to move"
            )
        directory = self._directory_at(path)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"this broker has no log directory {path}")
        async with self._turn:
            if not directory.is_online or self._replicas.is_offline(name):
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} or the directory {path} is offline")
            partition = self._here(name, directory)
            under_way = self._moves.target_of(name)
            if under_way is not None and under_way is not directory:
                await self._end(name)
                under_way = None
            if under_way is None and self._logs.directory_of(name) is not directory:
                await self._begin(partition, directory)

    def _directory_at(self, path: str) -> LogDirectory | None:
        return next((directory for directory in self._logs.directories if directory.path == path), None)

    def _here(self, name: TopicPartition, directory: LogDirectory) -> Partition:
        try:
            return self._replicas.find(*name)
        except ApiError as error:
            if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            self._moves.preferred[name] = directory
            raise ApiError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"{name} is not on this broker; if it comes, it will be made there"
            ) from error

    async def _begin(self, partition: Partition, directory: LogDirectory) -> None:
        plan = self._moves.begin(partition.log, directory, partition.topic_id, self._clock.now_ms())
        try:
            copy = await self._offload.in_thread(plan.make)
        except StorageError as error:
            self._replicas.take_offline(directory, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {directory.path} failed") from error
        if partition.is_gone or not self._moves.adopt(plan, copy):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name} or {directory.path} went offline")
        logger.info("%s: is being moved from %s to %s", partition.name, partition.log.directory, directory.path)
        self._begun.fire()

    async def _end(self, name: TopicPartition) -> None:
        """A move that nobody wants any more."""
        logger.info("%s: is no longer being moved", name)
        self._known.pop(name, None)
        self._moves.cancel(name)
        await self._replicas.finish(self._offload)

    # -- copying -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            has_got_on = False
            for name in self._moves:
                async with self._turn:
                    has_got_on = await self._advance(name) or has_got_on
                await self._wait_for_throttle()
            if not has_got_on:
                # Where there is a copy and no log of its own yet, the controller will say of what partition it is.
                await self._begun.wait(RETRY_S if list(self._moves) else None)

    async def _wait_for_throttle(self) -> None:
        """In short pieces: the setting may change meanwhile."""
        while delay_s := self._throttle.delay_s(self._rate, self._loop.time()):
            await asyncio.sleep(min(delay_s, RETRY_S))

    @property
    def _rate(self) -> int:
        """Bytes per second."""
        return self._config().replica_alter_log_dirs_io_max_bytes_per_second

    async def _advance(self, name: TopicPartition) -> bool:
        """Copies the next piece of a log, or puts the whole copy in its place; whether that got it on."""
        partition = self._replicas.get(name)
        directory = self._moves.target_of(name)
        if partition is None or partition.is_gone or directory is None:
            return False
        copy = directory.future_logs[name]
        if not await self._keep_if_of(partition, copy):
            return False
        source = partition.log
        try:
            found = self._next_piece(source, copy)
        except StorageError as error:
            logger.error("%s cannot be moved: %s", name, error)
            self._replicas.directory_failed(source, error)
            await self._end(name)
            return False
        try:
            return await self._take(partition, directory, copy, found)
        except OutOfDescriptorsError as error:
            logger.warning("%s; the move of %s continues later", error, name)
        except StorageError as error:
            if directory.future_logs.get(name) is copy:  # else it failed because its directory was taken away
                self._replicas.take_offline(directory, error)
        except ApiError as error:  # a damaged batch: the copy refuses it, and other logs are still to be moved
            logger.error("%s cannot be moved: %s", name, error)
            await self._end(name)
        return False

    async def _keep_if_of(self, partition: Partition, copy: Log) -> bool:
        """Ends the move of a copy that is of an earlier topic with this name; whether the copy is kept."""
        if self._known.get(partition.name) is copy:
            return True
        if self._logs.read_owner(copy) != partition.topic_id:
            await self._end(partition.name)
            return False
        self._known[partition.name] = copy
        return True

    def _next_piece(self, source: Log, copy: Log) -> LogSlice | None:
        """What is to be copied next; None where that is nothing, or where the copy has to be cut first."""
        if copy.end_offset < source.log_start_offset or common_end(source, copy) < copy.end_offset:
            return None
        return source.read(copy.end_offset, min(COPIED_BYTES_MAX, self._rate))

    async def _take(self, partition: Partition, directory: LogDirectory, copy: Log, found: LogSlice | None) -> bool:
        source = partition.log
        now_ms = self._clock.now_ms()
        end_offset = common_end(source, copy)
        if copy.end_offset < source.log_start_offset:
            await self._offload.in_thread(partial(copy.truncate_fully, source.log_start_offset, now_ms=now_ms))
        elif end_offset < copy.end_offset:
            logger.info("%s: the copy in %s is truncated to %d", partition.name, directory.path, end_offset)
            await self._offload.in_thread(partial(copy.truncate_to, end_offset, now_ms=now_ms))
        elif found is not None and found.upper_offset < source.end_offset:
            await self._offload.in_thread(partial(self._append, copy, found, now_ms))
        else:
            if found is not None:
                self._append(copy, found, now_ms)
            if copy.end_offset == source.end_offset:
                await self._swap(partition)
        return True

    async def _swap(self, partition: Partition) -> None:
        old = partition.log.directory
        plan = self._moves.swap(partition.name, self._clock.steady_ms())
        self._known.pop(partition.name, None)
        partition.moved_to(plan.copy)
        logger.info("%s: moved from %s to %s", partition.name, old, plan.copy.directory)
        try:
            await self._offload.in_thread(plan.run)
            plan.copy.end_flush(plan.flush, self._clock.now_ms())
            self._logs.end_delete(plan.deletion)
        except OutOfDescriptorsError as error:
            logger.warning("%s; the deletion of %s is continued later", error, old)
            self._logs.finish_delete_later(plan.deletion)
        except StorageError as error:
            self._replicas.take_offline(plan.deletion.directory if plan.is_durable else plan.directory, error)

    def _append(self, copy: Log, found: LogSlice, now_ms: int) -> None:
        """May run in a thread."""
        copy.append_as_follower(found.records.read(), now_ms=now_ms)
        self._throttle.record(found.records.size_bytes, self._loop.time())
