"""Batches: the header of one, the check of one, the scan over many."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    INT64_MAX,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LENGTH_MIN,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Checked,
    Compression,
    Problem,
    Scan,
    ScanEnd,
    refusal,
)
from ottla.records.reference.buffers import byte_view
from ottla.records.reference.checksum import crc32c
from ottla.records.reference.sections import check_records

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LENGTH_FIELD = struct.Struct(">i")


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, if it is all there and its magic and length can be."""
    with byte_view(data) as view:
        return _read_header(view, position)


def _read_header(view: memoryview, position: int) -> BatchHeader:
    if position < 0 or len(view) - position <= MAGIC_AT:
        raise refusal(Problem.SHORT)
    magic = view[position + MAGIC_AT]
    if magic in (0, 1):
        raise refusal(Problem.LEGACY_MAGIC)
    if magic != MAGIC:
        raise refusal(Problem.MAGIC)
    if len(view) - position < HEADER_BYTES:
        raise refusal(Problem.SHORT)
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.batch_length < LENGTH_MIN:
        raise refusal(Problem.LENGTH)
    return header


def _header_problem(header: BatchHeader) -> Problem | None:
    """What no batch may claim, whoever wrote it."""
    if header.base_offset < 0 or not 0 <= header.last_offset_delta <= INT64_MAX - 1 - header.base_offset:
        return Problem.OFFSETS
    if header.record_count < 0:
        return Problem.COUNT
    return None


def _producer_problem(header: BatchHeader) -> Problem | None:
    """What a producer's batch may not claim."""
    if header.attributes & CONTROL_BIT:
        return Problem.CONTROL
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return Problem.COUNT
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Problem.SEQUENCE
    return None


def check_batch(data: Buffer, position: int, strict: bool, deep: bool) -> Checked:
    """Checks the batch at `position`; `deep` walks its records too, if they are not compressed."""
    with byte_view(data) as view:
        header = _read_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            raise refusal(Problem.SHORT)
        # Reported before the checksum, which does not cover it: a producer sends again after a bad checksum.
        if strict and header.base_offset:
            raise refusal(Problem.BASE_OFFSET)
        if crc32c(view[position + ATTRIBUTES_AT : end]) != header.crc:
            raise refusal(Problem.CRC)
        # A producer's batch without records is refused for good; from disk, claims that cannot be are damage.
        problem = _producer_problem(header) if strict else None
        if problem is None:
            problem = _header_problem(header)
        if problem is None and header.attributes & COMPRESSION_MASK > Compression.ZSTD:
            problem = Problem.CODEC
        if problem is not None:
            raise refusal(problem)
        if deep and not header.attributes & COMPRESSION_MASK:
            return check_records(view[position + HEADER_BYTES : end], header, strict)
        return Checked(header, header.max_timestamp, header.last_offset_delta, -1, True)


def scan(data: Buffer, position: int, end: int, check_crc: bool, batches_max: int) -> Scan:
    """The headers of the batches in `data[position:end]`, up to the first that is cut, bad or legacy."""
    headers: list[BatchHeader] = []
    with byte_view(data) as view:
        if not 0 <= position <= end <= len(view):
            raise refusal(Problem.SHORT)
        while position < end:
            if len(headers) >= batches_max:
                return Scan(headers, position, ScanEnd.MORE, None)
            remaining = end - position
            if remaining < LENGTH_PREFIX:
                return Scan(headers, position, ScanEnd.CUT, None)
            (length,) = _LENGTH_FIELD.unpack_from(view, position + LENGTH_AT)
            if length < LEGACY_LENGTH_MIN:
                return _bad(headers, position, Problem.LENGTH)
            if remaining <= MAGIC_AT:
                return Scan(headers, position, ScanEnd.CUT, None)
            magic = view[position + MAGIC_AT]
            if magic in (0, 1):
                return Scan(headers, position, ScanEnd.LEGACY, Problem.LEGACY_MAGIC.text)
            if magic != MAGIC:
                return _bad(headers, position, Problem.MAGIC)
            if length < LENGTH_MIN:
                return _bad(headers, position, Problem.LENGTH)
            batch_end = position + LENGTH_PREFIX + length
            if batch_end > end:
                return Scan(headers, position, ScanEnd.CUT, None)
            header = BatchHeader._make(HEADER.unpack_from(view, position))
            problem = _header_problem(header)
            if problem is not None:
                return _bad(headers, position, problem)
            if check_crc and crc32c(view[position + ATTRIBUTES_AT : batch_end]) != header.crc:
                return _bad(headers, position, Problem.CRC)
            headers.append(header)
            position = batch_end
    return Scan(headers, position, ScanEnd.END, None)


def _bad(headers: list[BatchHeader], position: int, problem: Problem) -> Scan:
    return Scan(headers, position, ScanEnd.BAD, problem.text)
