"""Files of a log that were written whole and are not known to be durable yet: snapshots, indexes of sealed segments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ottla.disk import Disk, File
from ottla.storage.flush import SnapshotSync


class UnsyncedFiles:
    """Owns the list of their paths: a flush makes all of them durable."""

    __slots__ = ("_directory", "_disk", "_paths")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._paths: set[str] = set()

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._paths)

    def note(self, paths: Iterable[str]) -> None:
        self._paths.update(paths)

    def settle(self, paths: Iterable[str]) -> None:
        """These are durable."""
        self._paths.difference_update(paths)

    def moved_to(self, directory: str) -> None:
        """The directory has another name."""
        self._directory = directory
        self._paths = {os.path.join(directory, os.path.basename(path)) for path in self._paths}

    def clear(self) -> None:
        self._paths.clear()

    def open(self) -> Iterator[File]:
        """Those that still stand, one at a time: a log may have more of them than a process may hold open."""
        for path in sorted(self._paths):
            if self._disk.exists(path):
                yield self._disk.open(path, writable=True)

    def sync_of(self, path: str) -> SnapshotSync | None:
        """What makes one of them durable by itself; None where it is, or is not there."""
        if path not in self._paths or not self._disk.exists(path):
            return None
        return SnapshotSync(self._disk, self._directory, self._disk.open(path, writable=True))
