"""The compacted segments that take the place of others, while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.disk import Disk
from ottla.ids import NO_TIMESTAMP
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.storage.cleaning_job import CleaningJob, SegmentRange
from ottla.storage.index import RELATIVE_OFFSET_MAX, AbortedTransaction
from ottla.storage.segment import CLEANED_SUFFIX, Segment

if TYPE_CHECKING:
    from typing_extensions import Buffer

WRITE_BYTES = 1024 * 1024
SEGMENT_BYTES_MAX = 2**31 - 1


class CleanedOutput:
    """The compacted segments of one group, written in large pieces."""

    def __init__(self, job: CleaningJob, disk: Disk, base_offset: int) -> None:
        self._job = job
        self._disk = disk
        self._end_offset = base_offset
        self._segment: Segment | None = None
        self._buffer = bytearray()
        self._done: list[SegmentRange] = []
        self._aborted: list[AbortedTransaction] = []

    @property
    def is_empty(self) -> bool:
        return self._segment is None

    def reach(self, end_offset: int, last: BatchHeader) -> None:
        """Ends where the next segment begins, behind `last`: with an empty batch if that one did not stay."""
        if self._end_offset < end_offset:
            of_nobody = last._replace(
                base_offset=end_offset - 1,
                last_offset_delta=0,
                attributes=0,
                base_timestamp=NO_TIMESTAMP,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
            )
            empty = batch.rebuild(of_nobody, b"", record_count=0, max_timestamp=NO_TIMESTAMP)
            self.add(batch.read_header(empty), empty)

    def add(self, header: BatchHeader, data: Buffer) -> None:
        segment = self._segment_for(header)
        self._end_offset = header.end_offset
        segment.note_headed(header, segment.size_bytes + len(self._buffer))
        self._buffer += data
        for aborted in self._aborted:
            segment.transaction_index.append(aborted)
        self._aborted.clear()
        if len(self._buffer) >= WRITE_BYTES:
            self._write(segment)

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Goes into the segment of its marker, which is about to be added."""
        self._aborted.append(aborted)

    def _segment_for(self, header: BatchHeader) -> Segment:
        segment = self._segment
        if segment is not None and (
            segment.size_bytes + len(self._buffer) + header.size_bytes > SEGMENT_BYTES_MAX
            or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.index_bytes_needed > self._job.index_bytes_max
        ):
            # Rewritten timestamps may need more bytes than the old ones, so even a group can outgrow a segment.
            self._seal(segment)
            segment = None
        if segment is None:
            is_in_reach = header.last_offset - self._end_offset <= RELATIVE_OFFSET_MAX
            segment = self._segment = Segment.create(
                self._disk,
                self._job.directory,
                self._end_offset if is_in_reach else header.base_offset,
                index_interval_bytes=self._job.index_interval_bytes,
                created_ms=self._job.now_ms,
                suffix=CLEANED_SUFFIX,
            )
        return segment

    def _write(self, segment: Segment) -> None:
        if self._buffer:
            segment.write(self._buffer)
            self._buffer = bytearray()

    def _seal(self, segment: Segment) -> None:
        self._write(segment)
        segment.seal()
        segment.file.sync()
        segment.sync_indexes()
        self._done.append(SegmentRange(segment.base_offset, segment.size_bytes))
        segment.close()

    def finish(self) -> tuple[SegmentRange, ...]:
        if self._segment is not None:
            self._seal(self._segment)
        return tuple(self._done)
