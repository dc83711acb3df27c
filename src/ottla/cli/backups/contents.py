"""Checksums of what readers see of a partition, its batches from the start of the log to the last whole one, and of
the files beside the records, without which a broker would not find them: metadata, checkpoints, indexes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ottla.cli.inspection.segments import Gap, SegmentWalk
from ottla.errors import CorruptFileError
from ottla.records.codec import crc32c
from ottla.storage.segment import LOG_SUFFIX

Files = dict[str, int]  # path below a log directory → CRC-32C
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """Two partitions with equal contents give a reader the same records at the same offsets."""

    start_offset: int
    end_offset: int
    batch_count: int
    checksum: int

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset} in {self.batch_count} batches, {self.checksum:08x}"


def contents_of(directory: Path, start_offset: int) -> Contents:
    """Reads all segments of a partition. CorruptFileError: one is damaged, other than by a torn end of the last."""
    segments = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    end_offset, batch_count, checksum = start_offset, 0, 0
    for path in segments:
        for found in SegmentWalk(path, int(path.stem)):
            if isinstance(found, Gap):
                if found.is_tail and path == segments[-1]:
                    break
                raise CorruptFileError(
                    str(path), f"{found.problem} at byte {found.position}: `ottla dump-log --verify` shows more"
                )
            header = found.header
            if header.end_offset <= start_offset:
                continue
            checksum = crc32c(memoryview(found.data)[found.at : found.at + header.size_bytes], checksum)
            end_offset = header.end_offset
            batch_count += 1
    return Contents(start_offset, end_offset, batch_count, checksum)


def files_of(directory: Path) -> Files:
    """All files of a log directory but the segments, whose ends may be torn: `contents_of` is about them."""
    found = {}
    for place, _, names in os.walk(directory):
        for name in names:
            if not name.endswith(LOG_SUFFIX):
                path = Path(place, name)
                found[str(path.relative_to(directory))] = _checksum(path)
    return found


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            checksum = crc32c(piece, checksum)
    return checksum
