"""How much of a log survives a power loss: its recovery point, and what a flush has to sync to move it.

`begin_flush` hands out a `Flush`, whose `run` only syncs files and may run in any thread; `end_flush` moves the
recovery point. If the end of the log was cut in between, the flush does not count: what it synced may have been
written over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.config import LogConfig
from ottla.disk import Disk, File
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.flush import Flush
from ottla.storage.segments import Segments
from ottla.storage.unsynced import UnsyncedFiles


class Durability:
    """Owns the recovery point, the list of files that are not durable yet, and the number of truncations."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        hold: DirectoryHold,
        segments: Segments,
        epochs: LeaderEpochs,
        *,
        recovery_point: int,
        opened_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._hold = hold
        self._segments = segments
        self._epochs = epochs
        self._last_flush_ms = opened_ms
        self.unsynced = UnsyncedFiles(disk, directory)
        self.recovery_point = recovery_point
        self.truncation_count = 0

    def is_flush_due(self, config: LogConfig, log_start_offset: int, end_offset: int, now_ms: int) -> bool:
        unflushed = end_offset - self.recovery_point
        return unflushed > 0 and (
            self.recovery_point < log_start_offset  # a deletion counts after a crash once it is flushed
            or unflushed >= config.flush_messages
            # Before the last flush: the clock was set back, and how long ago it was is not known.
            or not 0 <= now_ms - self._last_flush_ms < config.flush_ms
            or self.recovery_point < self._segments.active.base_offset  # flush on roll
        )

    def begin_flush(self, end_offset: int) -> Flush:
        """What has to be synced so that everything below `end_offset` survives a power loss."""
        return self._flush_of(list(self._unflushed_files()), end_offset)

    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """The flush succeeded: what was written when it began is durable, unless the log was cut meanwhile."""
        self._last_flush_ms = now_ms
        if flush.epochs is not None:
            self._epochs.written(flush.epochs)
        if flush.truncation_count != self.truncation_count:
            return
        self.unsynced.settle(flush.unsynced)
        self.recovery_point = max(self.recovery_point, flush.end_offset)

    def flush(self, end_offset: int, now_ms: int) -> None:
        """All of it, for callers that may wait for the disk; nothing if nothing was ever written."""
        if self.is_untouched(end_offset) and self._epochs.pending(end_offset) is None:
            return
        flush = self._flush_of(self._unflushed_files(), end_offset)
        flush.run()
        self.end_flush(flush, now_ms)

    def is_untouched(self, end_offset: int) -> bool:
        """Whether nothing was ever written to the log."""
        return end_offset == 0 and self.truncation_count == 0 and not self.unsynced

    def note_truncation(self, end_offset: int) -> None:
        """The log was cut, or is about to be, and ends at `end_offset`."""
        self.truncation_count += 1
        self.recovery_point = min(self.recovery_point, end_offset)

    def moved_to(self, directory: str) -> None:
        """The directory of the log has another name."""
        self._directory = directory
        self.unsynced.moved_to(directory)

    def _unflushed_files(self) -> Iterator[File]:
        """Opened one at a time: recovery flushes logs that have more files than a process may hold open."""
        for segment in self._segments.from_offset(self.recovery_point):
            yield segment.file
        yield from self.unsynced.open()

    def _flush_of(self, files: Iterable[File], end_offset: int) -> Flush:
        return Flush(
            self._disk,
            self._directory,
            self._hold,
            files,
            self.unsynced.paths,
            self._epochs.pending(end_offset),
            self._epochs.path,
            end_offset,
            self.truncation_count,
        )
