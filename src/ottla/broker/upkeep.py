"""What a broker does in the background: retention, flushing, checkpoints, unlinking. Compaction has its own file.

Each is many short pieces of work on the loop, with turns for others between them. What syncs, renames or unlinks goes
to a thread. A partition that was looked at before a wait may be gone after it. A disk that fails takes its directory
offline.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.config.broker import BrokerConfig
from ottla.errors import OutOfDescriptorsError, StorageError
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload
from ottla.runtime.tasks import Tasks
from ottla.runtime.turns import Turns
from ottla.storage.log import Log
from ottla.storage.log_directory import CheckpointPlan
from ottla.storage.logs import Logs

logger = logging.getLogger(__name__)

FLUSH_CHECK_S = 1.0
UNLINK_CHECK_S = 5.0
SEGMENTS_DELETED_AT_ONCE = 20  # of one log: a few renames each


class Upkeep:
    """The background work of one broker."""

    def __init__(
        self,
        logs: Logs,
        replicas: Replicas,
        clock: Clock,
        offload: Offload,
        turns: Turns,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._offload = offload
        self._turns = turns
        self._config = config

    def start(self, tasks: Tasks) -> None:
        config = self._config
        tasks.every("retention", lambda: config().log_retention_check_interval_ms / 1000, self.apply_retention)
        tasks.every("flush", lambda: FLUSH_CHECK_S, self.flush_due)
        tasks.every("checkpoints", lambda: config().log_flush_offset_checkpoint_interval_ms / 1000, self.checkpoint)
        tasks.every(
            "high watermarks",
            lambda: config().replica_high_watermark_checkpoint_interval_ms / 1000,
            self.checkpoint_high_watermarks,
        )
        tasks.every("unlink", lambda: UNLINK_CHECK_S, self.unlink_due)
        tasks.every(
            "producer ids", lambda: config().producer_id_expiration_check_interval_ms / 1000, self.expire_producers
        )

    async def apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        async for partition in self._turns.over(list(self._replicas)):
            if not partition.is_gone:  # else its directory went offline with an earlier one
                log = partition.log
                try:
                    await self._delete_expired(partition, log, now_ms)
                except StorageError as error:
                    self._replicas.directory_failed(log, error)

    async def _delete_expired(self, partition: Partition, log: Log, now_ms: int) -> None:
        """Takes the expired segments of a log away, some at a time; a thread makes durable what must be so before."""
        while not partition.is_gone and partition.log is log:  # else it was moved to another directory
            high_watermark = partition.high_watermark
            snapshot = log.begin_deletion(now_ms, high_watermark, SEGMENTS_DELETED_AT_ONCE)
            if snapshot is not None:
                await self._offload.in_thread(snapshot.run)
                log.snapshot_synced(snapshot)
            elif log.delete_expired(now_ms, high_watermark, SEGMENTS_DELETED_AT_ONCE):
                partition.moved.fire()
                await self._turns.yield_turn()
            else:
                log.release_idle_files()
                return

    async def unlink_due(self) -> None:
        now_ms = self._clock.now_ms()
        try:
            async for log in self._turns.over(list(self._logs)):
                for unlinking in log.take_due(now_ms):
                    await self._offload.in_thread(unlinking.run)
        except StorageError as error:
            self._take_offline(error)
        # A deleted topic of a thousand partitions keeps the disk busy for seconds.
        steady_ms = self._clock.steady_ms()
        for path in self._logs.take_due_directories(steady_ms):
            try:
                await self._offload.in_thread(partial(self._logs.remove_tree, path))
            except OutOfDescriptorsError:
                self._logs.remove_later(path, steady_ms)
            except StorageError as error:
                self._take_offline(error)

    def _take_offline(self, error: StorageError) -> None:
        """The directory of a path that failed goes offline."""
        for directory in self._logs.directories:
            if directory.is_online and error.path.startswith(os.path.join(directory.path, "")):
                self._replicas.take_offline(directory, error)

    async def flush_due(self) -> None:
        """Syncs what rolled or what the topic's flush settings ask for; the sync itself runs in a thread."""
        async for partition in self._turns.over(list(self._replicas)):
            log = partition.log
            if not log.is_closed and log.is_flush_due(self._clock.now_ms()):
                await self._flush(log)

    async def _flush(self, log: Log) -> None:
        try:
            flush = log.begin_flush()
            await self._offload.in_thread(flush.run)
        except StorageError as error:
            self._replicas.directory_failed(log, error)
            return
        if not log.is_closed:
            log.end_flush(flush, self._clock.now_ms())

    async def checkpoint(self) -> None:
        await self._write(self._logs.begin_checkpoint())

    async def checkpoint_high_watermarks(self) -> None:
        await self._write(self._logs.begin_high_watermarks(self._replicas.high_watermarks()))

    async def _write(self, plans: list[CheckpointPlan]) -> None:
        for plan in plans:
            try:
                await self._offload.in_thread(plan.run)
            except StorageError as error:
                self._replicas.take_offline(plan.directory, error)

    async def expire_producers(self) -> None:
        now_ms, expiration_ms = self._clock.now_ms(), self._config().producer_id_expiration_ms
        async for partition in self._turns.over(list(self._replicas)):
            partition.log.expire_producers(now_ms, expiration_ms)
