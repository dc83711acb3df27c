"""Which file of a log directory is it? The names say; nothing is opened here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ottla.storage import checkpoints
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from ottla.storage.snapshots import SNAPSHOT_SUFFIX


class FileKind(StrEnum):
    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epoch checkpoint"
    OFFSETS = "offset checkpoint"
    PARTITION_METADATA = "partition metadata"


_KIND_OF_SUFFIX: Final = {
    LOG_SUFFIX: FileKind.SEGMENT,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_KIND_OF_NAME: Final = {
    checkpoints.LEADER_EPOCHS: FileKind.LEADER_EPOCHS,
    checkpoints.RECOVERY_POINTS: FileKind.OFFSETS,
    checkpoints.LOG_START_OFFSETS: FileKind.OFFSETS,
    checkpoints.HIGH_WATERMARKS: FileKind.OFFSETS,
    checkpoints.CLEANER_OFFSETS: FileKind.OFFSETS,
    checkpoints.PARTITION_METADATA: FileKind.PARTITION_METADATA,
}
_SEGMENT_FILE: Final = re.compile(
    rf"(\d{{20}})({'|'.join(map(re.escape, _KIND_OF_SUFFIX))})"
    rf"({'|'.join(map(re.escape, (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)))})?"
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file whose name says what it holds. `base_offset` is 0 for a file that has none in its name."""

    path: Path
    kind: FileKind
    base_offset: int = 0
    state: str = ""  # ".deleted", ".cleaned" or ".swap" while a segment comes or goes

    def segment_path(self) -> Path:
        """The segment that an index belongs to."""
        return self.path.with_name(file_name(self.base_offset, LOG_SUFFIX) + self.state)

    def is_newest_segment(self) -> bool:
        """Whether no later segment stands beside this one: only the last may end with a torn batch."""
        names = (_SEGMENT_FILE.fullmatch(path.name) for path in self.path.parent.iterdir())
        return all(int(name[1]) <= self.base_offset for name in names if name and name[2] == LOG_SUFFIX)


def identify(path: Path) -> LogFile | None:
    """What the file is by its name; None for a name that a log directory does not use."""
    if kind := _KIND_OF_NAME.get(path.name):
        return LogFile(path, kind)
    if matched := _SEGMENT_FILE.fullmatch(path.name):
        return LogFile(path, _KIND_OF_SUFFIX[matched[2]], int(matched[1]), matched[3] or "")
    return None


def files_of(directory: Path) -> list[LogFile]:
    """The files of a partition: segment by segment, each followed by its indexes, the small files at the end."""
    return sorted((file for path in directory.iterdir() if (file := identify(path))), key=_place)


def _place(file: LogFile) -> tuple[bool, int, str, int, str]:
    is_small = file.path.name in _KIND_OF_NAME
    return is_small, file.base_offset, file.state, list(FileKind).index(file.kind), file.path.name
