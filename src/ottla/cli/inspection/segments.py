"""Reads a segment file in bounded memory: what its batches hold and what is wrong with them."""

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
from ottla.records.batch import BatchHeader, Scan, ScanEnd
from ottla.records.layout import MAGIC, MAGIC_AT
from ottla.storage.index import RELATIVE_OFFSET_MAX

CHUNK_BYTES: Final = 4 * 1024 * 1024
# No broker takes a request this large, so a longer batch is a wrong length; reading it would cost its memory.
BATCH_BYTES_MAX: Final = 256 * 1024 * 1024

_MAGIC_BYTE: Final = bytes([MAGIC])


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in the file: `data[at:]` begins with it."""

    position: int
    header: BatchHeader
    data: bytes
    at: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are no batch. `is_tail`: nothing sound follows, as when the last batch was not written whole."""

    position: int
    size_bytes: int
    problem: str
    is_tail: bool


class SegmentWalk:
    """Goes through a segment in bounded memory: its batches, and what is between them if it is damaged."""

    def __init__(self, path: Path, base_offset: int) -> None:
        self._file = RealDisk().open(str(path))
        self._size_bytes = self._file.size()
        self._base_offset = base_offset
        self._end_offset = base_offset

    def __iter__(self) -> Iterator[StoredBatch | Gap]:
        position = 0
        while position < self._size_bytes:
            chunk = self._chunk(position)
            # Without checksums, so that a batch with a flipped bit does not hide those behind it.
            scanned = batch.scan(chunk, check_crc=False)
            for header, at in zip(scanned.headers, scanned.positions, strict=True):
                self._end_offset = header.end_offset
                yield StoredBatch(position + at, header, chunk, at)
            chunk_end = position + len(chunk)
            position += scanned.end_position
            is_cut_by_the_chunk = scanned.headers and chunk_end < self._size_bytes
            if scanned.ended is ScanEnd.END or (scanned.is_cut and is_cut_by_the_chunk):
                continue
            gap = self._gap(position, scanned)
            yield gap
            position += gap.size_bytes

    def _chunk(self, position: int) -> bytes:
        chunk = self._file.read(position, CHUNK_BYTES)
        if len(chunk) < batch.HEADER_BYTES:
            return chunk
        needed = batch.LENGTH_PREFIX + int.from_bytes(chunk[8:12], "big", signed=True)
        is_there = position + needed <= self._size_bytes and needed <= BATCH_BYTES_MAX
        return self._file.read(position, needed) if needed > len(chunk) and is_there else chunk

    def _gap(self, position: int, scanned: Scan) -> Gap:
        rest = self._size_bytes - position
        if self._is_zero_from(position):
            return Gap(position, rest, "zeros up to the end: reserved space, or what a crash left", is_tail=True)
        resumed = self._next_sound_batch(position + 1)
        if resumed is not None:
            problem = scanned.problem or "the batch claims more bytes than there are"
            return Gap(position, resumed - position, problem, is_tail=False)
        if scanned.is_cut:
            return Gap(position, rest, "a batch that was not written whole", is_tail=True)
        return Gap(position, rest, scanned.problem or "no batch", is_tail=False)

    def _is_zero_from(self, position: int) -> bool:
        return all(piece.count(0) == len(piece) for _, piece in self._pieces(position))

    def _next_sound_batch(self, position: int) -> int | None:
        """Where a batch with a right checksum begins again. Its magic, a 2 at byte 16, shows where to look."""
        for start, piece in self._pieces(position, overlap=batch.HEADER_BYTES):
            at = piece.find(_MAGIC_BYTE, MAGIC_AT)
            while at >= 0:
                candidate = start + at - MAGIC_AT
                if self._is_sound_batch(candidate, piece[at - MAGIC_AT : at - MAGIC_AT + batch.HEADER_BYTES]):
                    return candidate
                at = piece.find(_MAGIC_BYTE, at + 1)
        return None

    def _is_sound_batch(self, position: int, head: bytes) -> bool:
        try:
            header = batch.read_header(head)
            is_plausible = (
                self._end_offset <= header.base_offset <= self._base_offset + RELATIVE_OFFSET_MAX
                and position + header.size_bytes <= self._size_bytes
                and header.size_bytes <= BATCH_BYTES_MAX
            )
            if is_plausible:
                batch.check(self._file.read(position, header.size_bytes), strict=False, deep=False)
        except RecordsError:
            return False
        return is_plausible

    def _pieces(self, position: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """The rest of the file in pieces, each beginning with the last `overlap` bytes of the one before."""
        while position < self._size_bytes:
            piece = self._file.read(position, CHUNK_BYTES + overlap)
            yield position, piece
            position += CHUNK_BYTES


def read_segment(file: LogFile, options: ReadOptions) -> Iterator[Finding]:
    """The batches and, if asked for, the records of a segment. Only the newest may end with a torn batch."""
    end_offset = file.base_offset
    for found in SegmentWalk(file.path, file.base_offset):
        end = found.position + (found.size_bytes if isinstance(found, Gap) else found.header.size_bytes)
        if options.bytes_max is not None and end > options.bytes_max:
            yield Note(f"stopped: {options.bytes_max} bytes were asked for", found.position)
            return
        if isinstance(found, Gap):
            if found.is_tail and file.is_newest_segment():
                text = f"{found.size_bytes} bytes: {found.problem}; a broker cuts them off when it recovers"
                yield Note(text, found.position)
            else:
                text = f"{found.problem}; {found.size_bytes} bytes cannot be read"
                yield Damage(text, found.position, end_offset)
            continue
        header = found.header
        if header.base_offset < end_offset:
            text = f"offset {header.base_offset} where {end_offset} or more is due"
            yield Damage(text, found.position, header.base_offset)
        end_offset = header.end_offset
        if header.last_offset >= options.from_offset:
            yield from _batch(found, options)


def _batch(stored: StoredBatch, options: ReadOptions) -> Iterator[Finding]:
    header = stored.header
    yield FoundBatch(stored.position, header, _control_text(stored))
    try:
        if options.verify:
            batch.check(stored.data, stored.at, strict=False)
        if options.deep:
            yield from batch.iterate(stored.data, stored.at)
    except RecordsError as error:
        yield Damage(error.message, stored.position, header.base_offset)


def _control_text(stored: StoredBatch) -> str | None:
    """What a control batch says; None for a batch of data, and for one that compaction emptied."""
    if not stored.header.is_control or not stored.header.record_count:
        return None
    try:
        marker = control.read_marker(stored.data, stored.at)
        if marker is None:
            return control.control_type_name(stored.data, stored.at).lower()
    except RecordsError as error:
        return f"unreadable, {error.message}"
    return f"{'commit' if marker.commit else 'abort'}, coordinator epoch {marker.coordinator_epoch}"
