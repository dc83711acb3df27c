"""What has to reach the disk so that a log survives a power loss up to some offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.disk import Disk, File
from ottla.storage import checkpoints
from ottla.storage.directory_hold import DirectoryHold
from ottla.storage.epochs import EpochStart


class Flush:
    """The syncing half of a flush: may run in any thread, touches nothing but files.

    Where the log goes on meanwhile, `files` are open from the beginning: what it deletes is synced in vain and does no
    harm. What is written by name is written only as long as the log has its directory.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_epochs_path",
        "_files",
        "_hold",
        "end_offset",
        "epochs",
        "truncation_count",
        "unsynced",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        hold: DirectoryHold,
        files: Iterable[File],
        unsynced: frozenset[str],
        epochs: tuple[EpochStart, ...] | None,
        epochs_path: str,
        end_offset: int,
        truncation_count: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._hold = hold
        self._files = files
        self._epochs_path = epochs_path
        self.unsynced = unsynced
        self.epochs = epochs
        self.end_offset = end_offset
        self.truncation_count = truncation_count

    def run(self) -> None:
        for file in self._files:
            file.sync()
        with self._hold as is_ours:
            if not is_ours:
                return
            if self.epochs is not None:
                checkpoints.write_epochs(self._disk, self._epochs_path, self.epochs)
            self._disk.sync_directory(self._directory)


@dataclass(frozen=True, slots=True)
class SnapshotSync:
    """A snapshot that must be durable before the records go that it sums up. `run` may run in any thread."""

    disk: Disk
    directory: str
    file: File

    def run(self) -> None:
        try:
            self.file.sync()
        finally:
            self.file.close()
        self.disk.sync_directory(self.directory)
