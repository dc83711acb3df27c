"""What a reader gets of a log: whole batches of one segment, as a range of its file."""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.batch import BatchHeader
from ottla.storage.file_slice import FileSlice
from ottla.storage.segment import Segment


class LogSlice(NamedTuple):
    """Whole batches of one segment, the last perhaps cut by the size limit. `upper_offset` is past all of them."""

    records: FileSlice
    first_offset: int
    upper_offset: int
    attributes: int  # of the first batch: its codec may be unknown to an old reader


def slice_of(
    segment: Segment,
    next_base: int,
    position: int,
    header: BatchHeader,
    max_bytes: int,
    upper_offset: int,
    at_least_one: bool,
) -> LogSlice | None:
    """From the batch at `position` on; None where the bounds leave nothing. The next segment begins at `next_base`."""
    limit = segment.size_bytes if segment.damaged_from is None else segment.damaged_from
    if upper_offset < next_base:
        upper = segment.find(upper_offset)
        if upper is not None:
            limit = upper.position
    if limit <= position:
        return None  # the bound is inside of the first batch
    size_bytes = min(limit - position, max_bytes)
    first_bytes = header.size_bytes
    if size_bytes < first_bytes:
        if not at_least_one:
            return None
        size_bytes = first_bytes
    bound = min(upper_offset, next_base)
    if position + size_bytes < segment.size_bytes:
        bound = min(bound, segment.offset_past(position + size_bytes, next_base))
    return LogSlice(segment.slice(position, size_bytes), header.base_offset, bound, header.attributes)
