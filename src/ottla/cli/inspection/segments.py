"""Goes through a segment file in bounded memory and tells what its batches hold and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.inspection.files import LogFile
from ottla.cli.inspection.findings import Damage, Finding, FoundBatch, Note, ReadOptions
from ottla.disk import RealDisk
from ottla.errors import RecordsError
from ottla.records import batch, control
from ottla.records.batch import BatchHeader, ScanEnd

CHUNK_BYTES: Final = 4 * 1024 * 1024
# No broker takes a request this large, so a longer batch is a wrong length; reading it would cost its memory.
BATCH_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in the file: `data[at:]` begins with it."""

    position: int
    header: BatchHeader
    data: bytes
    at: int


class SegmentWalk:
    """Goes through the batches of a segment in bounded memory. Where it stopped early, `stopped` says why."""

    def __init__(self, path: Path) -> None:
        self._file = RealDisk().open(str(path))
        self.size_bytes = self._file.size()
        self.position = 0  # where the next batch begins
        self.ended = ScanEnd.END
        self.problem = ""

    def __iter__(self) -> Iterator[StoredBatch]:
        while self.position < self.size_bytes:
            chunk = self._chunk()
            # Without checksums, so that a batch with a flipped bit does not hide those behind it.
            scanned = batch.scan(chunk, check_crc=False)
            start = self.position
            for header, at in zip(scanned.headers, scanned.positions, strict=True):
                self.position = start + at + header.size_bytes
                yield StoredBatch(start + at, header, chunk, at)
            is_whole_file_read = start + len(chunk) >= self.size_bytes
            if scanned.ended in (ScanEnd.BAD, ScanEnd.LEGACY):
                self._stop(scanned.ended, scanned.problem)
                return
            if scanned.ended is ScanEnd.CUT and (is_whole_file_read or not scanned.headers):
                self._stop(ScanEnd.CUT, None)
                return

    def _chunk(self) -> bytes:
        chunk = self._file.read(self.position, CHUNK_BYTES)
        if len(chunk) < batch.HEADER_BYTES:
            return chunk
        needed = batch.LENGTH_PREFIX + int.from_bytes(chunk[8:12], "big", signed=True)
        is_there = self.position + needed <= self.size_bytes and needed <= BATCH_BYTES_MAX
        return self._file.read(self.position, needed) if needed > len(chunk) and is_there else chunk

    def _stop(self, ended: ScanEnd, problem: str | None) -> None:
        self.ended = ended
        rest = self.size_bytes - self.position
        if self._is_zero_to_the_end():
            self.ended = ScanEnd.CUT
            self.problem = f"{rest} zero bytes up to the end: reserved space, or what a crash left"
        elif ended is ScanEnd.CUT:
            self.problem = f"{rest} bytes of a batch that was not written whole"
        else:
            self.problem = problem or "no batch"

    def _is_zero_to_the_end(self) -> bool:
        position = self.position
        while position < self.size_bytes:
            piece = self._file.read(position, CHUNK_BYTES)
            if piece.count(0) != len(piece):
                return False
            position += len(piece)
        return True


def read_segment(file: LogFile, options: ReadOptions) -> Iterator[Finding]:
    walk = SegmentWalk(file.path)
    end_offset = file.base_offset
    for stored in walk:
        header = stored.header
        if options.bytes_max is not None and stored.position + header.size_bytes > options.bytes_max:
            yield Note(f"stopped: {options.bytes_max} bytes were asked for", stored.position)
            return
        if header.base_offset < end_offset:
            yield Damage(
                f"offset {header.base_offset} where {end_offset} or more is due",
                stored.position,
                header.base_offset,
            )
        end_offset = header.end_offset
        if header.last_offset >= options.from_offset:
            yield from _batch(stored, options)
    if walk.ended is ScanEnd.END:
        return
    if walk.ended is ScanEnd.CUT and file.is_newest_segment():
        yield Note(f"{walk.problem}; a broker cuts it off when it recovers", walk.position)
    else:
        yield Damage(f"{walk.problem}; {_rest(walk)}", walk.position, end_offset)


def _rest(walk: SegmentWalk) -> str:
    return f"the {walk.size_bytes - walk.position} bytes from here on cannot be read"


def _batch(stored: StoredBatch, options: ReadOptions) -> Iterator[Finding]:
    header = stored.header
    try:
        says = _control_text(stored) if header.is_control and header.record_count else None
        yield FoundBatch(stored.position, header, says)
        if options.verify:
            batch.check(stored.data, stored.at, strict=False)
        if options.deep:
            yield from batch.iterate(stored.data, stored.at)
    except RecordsError as error:
        yield Damage(error.message, stored.position, header.base_offset)


def _control_text(stored: StoredBatch) -> str:
    marker = control.read_marker(stored.data, stored.at)
    if marker is None:
        return control.control_type_name(stored.data, stored.at).lower()
    return f"{'commit' if marker.commit else 'abort'}, coordinator epoch {marker.coordinator_epoch}"
