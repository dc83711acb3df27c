"""Which logs are compacted and when; what becomes of one that cannot be.

One log after the other, the dirtiest first, until none is left; then a pause (`log.cleaner.backoff.ms`). The work
itself runs in another process: see `storage.cleaner`. A log that cannot be compacted, because a segment is damaged or a
batch has too many keys, is reported once and tried again at growing intervals; other logs do not wait for it. A disk
that fails takes its directory offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError, StorageError
from ottla.ids import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.offload import Offload
from ottla.runtime.tasks import Tasks
from ottla.storage import cleaner
from ottla.storage.cleaning_job import CleaningJob
from ottla.storage.log import Log
from ottla.storage.logs import Logs

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 60.0
PAUSE_S_MAX = 3600.0
LOOKED_AT_ONCE = 32  # logs, until others have their turn


@dataclass(slots=True)
class Uncleanable:
    """A log that could not be compacted, why, and when it is tried again (by the loop's clock)."""

    log: Log
    reason: str
    pause_s: float
    retry_at: float


class Compaction:
    """The compaction of one broker's logs. Owns the list of those that cannot be compacted."""

    def __init__(
        self, logs: Logs, replicas: Replicas, clock: Clock, offload: Offload, config: Callable[[], BrokerConfig]
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._offload = offload
        self._config = config
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}

    def start(self, tasks: Tasks) -> None:
        tasks.every("compaction", lambda: self._config().log_cleaner_backoff_ms / 1000, self.run)

    async def run(self) -> None:
        """Compacts until nothing is left to compact."""
        while self._config().log_cleaner_enable and await self._run_round():
            pass

    async def _run_round(self) -> bool:
        """Compacts each log that needs it now; whether that got any of them on."""
        due = await self._due()
        has_got_on = False
        for _, partition in sorted(due, key=lambda one: one[0], reverse=True):
            if self._may_be_cleaned(partition) and self._config().log_cleaner_enable:
                has_got_on = await self._clean(partition) or has_got_on
        return has_got_on

    async def _due(self) -> list[tuple[float, Partition]]:
        """The partitions with a log that needs compaction, and how dirty it is."""
        due = []
        for number, partition in enumerate(list(self._replicas)):
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._may_be_cleaned(partition):
                continue
            try:
                cleanable = cleaner.look(
                    partition.log,
                    self._logs.clean_offset(partition.name),
                    high_watermark=partition.high_watermark,
                    now_ms=self._clock.now_ms(),
                )
            except StorageError as error:
                self._could_not_clean(partition.log, error)
                continue
            if cleanable.is_due(partition.log.config):
                due.append((cleanable.dirty_ratio, partition))
        return due

    def _may_be_cleaned(self, partition: Partition) -> bool:
        log = partition.log
        if partition.is_gone or log.is_closed or not log.config.is_compacted or len(log.segments) < 2:
            return False
        if self._logs.moves.target_of(partition.name) is not None:
            return False  # it is being moved to another directory
        trouble = self.uncleanable.get(partition.name)
        if trouble is None or trouble.log is not log:
            return True
        return asyncio.get_running_loop().time() >= trouble.retry_at

    async def _clean(self, partition: Partition) -> bool:
        """Compacts one log; whether less of it is dirty then."""
        log, job = partition.log, None
        try:
            job = self._plan(partition)
            if job is None:
                return False
            result = await self._offload.in_process(cleaner.run_job, job, log.disk)
            is_moving = self._logs.moves.target_of(log.name) is not None
            if log.is_closed or not cleaner.commit(log, result, self._clock.now_ms(), is_moving=is_moving):
                return False
            await self._offload.in_thread(partial(log.disk.sync_directory, log.directory))
            self._logs.end_cleaning(log, result)
        except Exception as error:  # whatever it is, other logs must not wait for ever
            if not log.is_closed and (job is None or _has_all_segments_of(log, job)):
                self._could_not_clean(log, error)
            # Else the log or what was to be cleaned of it went meanwhile, and the files with it.
            return False
        self.uncleanable.pop(log.name, None)
        return result.end_offset > job.first_dirty_offset

    def _plan(self, partition: Partition) -> CleaningJob | None:
        config = self._config()
        return cleaner.plan(
            partition.log,
            self._logs.clean_offset(partition.name),
            high_watermark=partition.high_watermark,
            now_ms=self._clock.now_ms(),
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            bytes_per_second_max=config.log_cleaner_io_max_bytes_per_second,
        )

    def _could_not_clean(self, log: Log, error: Exception) -> None:
        """A disk that fails takes its directory offline; a damaged segment, or too many keys, only stays as it is."""
        reason = str(error) if isinstance(error, OttlaError) else repr(error)
        known = self.uncleanable.get(log.name)
        is_known = known is not None and known.log is log
        pause_s = min(known.pause_s * 2, PAUSE_S_MAX) if known is not None and is_known else FIRST_PAUSE_S
        if known is None or not is_known or known.reason != reason:
            logger.error(
                "%s could not be compacted: %s; retry in %d s",
                log.name,
                reason,
                pause_s,
                exc_info=None if isinstance(error, OttlaError) else error,
            )
        retry_at = asyncio.get_running_loop().time() + pause_s
        self.uncleanable[log.name] = Uncleanable(log, reason, pause_s, retry_at)
        if isinstance(error, StorageError) and error.is_disk_failure:
            self._replicas.directory_failed(log, error)


def _has_all_segments_of(log: Log, job: CleaningJob) -> bool:
    standing = {segment.base_offset for segment in log.segments}
    return all(one.base_offset in standing for one in job.segments)
