"""A piece of a segment, as it is read: by the kernel where it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.disk import File


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A range of a segment file, to be sent without being read. It keeps the file open, even past its deletion."""

    file: File
    position: int
    size_bytes: int

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        return self.file.read(self.position, self.size_bytes)
