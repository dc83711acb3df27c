"""The files in a log's directory that sum up its producers, each at an offset of the log."""

from __future__ import annotations

import os
from collections.abc import Collection

from ottla.disk import Disk, read_file, write_atomically
from ottla.errors import StorageError
from ottla.storage.segment import file_name

SNAPSHOT_SUFFIX = ".snapshot"


class Snapshots:
    """Owns nothing but the names: the files are the state."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def path(self, offset: int) -> str:
        return os.path.join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def offsets(self) -> list[int]:
        """Of all of them, rising."""
        return sorted(
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in self._disk.list_directory(self._directory)
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
        )

    def read(self, offset: int) -> bytes:
        return read_file(self._disk, self.path(offset))

    def add(self, offset: int, data: bytes) -> None:
        """Writes one into the page cache. One that stands there already stays, for to replace it takes a sync.

        A cut takes those behind it, so the one that stands is of the same batches, and can only name producers that
        have expired since.
        """
        path = self.path(offset)
        if self._disk.exists(path):
            return
        file = self._disk.open(path, create=True, writable=True)
        try:
            file.write(0, data)
        except StorageError:
            self._disk.unlink(path)  # a part of it must not be taken for the whole
            raise
        finally:
            file.close()

    def replace(self, offset: int, data: bytes) -> None:
        """The same for whoever may wait. Whole or not at all: retention may have taken those before it."""
        path = self.path(offset)
        if not self._disk.exists(path):
            self.add(offset, data)
        elif self.read(offset) != data:
            write_atomically(self._disk, path, [data])

    def drop(self, offset: int) -> None:
        self._disk.unlink(self.path(offset))

    def drop_all(self) -> None:
        for offset in self.offsets():
            self.drop(offset)

    def drop_strays(self, bases: Collection[int]) -> None:
        """Drops what nothing would start from: all but the newest and those at the start of a segment.

        Every clean stop leaves one at the end of the log, wherever that is.
        """
        for offset in self.offsets()[:-1]:
            if offset not in bases:
                self.drop(offset)
