"""How the producer state of a log is rebuilt: from the newest sound snapshot, then batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.errors import CorruptFileError, RecordsError
from ottla.records import control
from ottla.records.batch import BatchHeader
from ottla.records.control import EndTransactionMarker
from ottla.storage.index import AbortedTransaction
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.snapshots import Snapshots

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)


def replay_batch(
    producers: ProducerStates, header: BatchHeader, marker: EndTransactionMarker | None, segment: Segment | None
) -> None:
    """Takes a batch that stands in a log into the producer state; an abort into the transaction index of `segment`.

    `marker`: what `marker_of` or `marker_if_readable` found in it.
    """
    if header.producer_id >= 0:
        if not header.is_control:
            producers.record(header, header.max_timestamp)
        elif not header.record_count:
            producers.record_emptied_marker(header)
        elif marker is not None:
            record_marker(producers, header, marker, segment)
    producers.end_offset = header.end_offset


def marker_of(header: BatchHeader, data: Buffer, position: int) -> EndTransactionMarker | None:
    """The marker that the batch at `position` is, if it is one; RecordsError for one that nobody can read."""
    if header.producer_id < 0 or not header.is_control or not header.record_count:
        return None
    return control.read_marker(data, position)


def marker_if_readable(header: BatchHeader, data: Buffer, position: int) -> EndTransactionMarker | None:
    """The same of a batch that stands in a log. One that cannot be read is passed over: all else in there can be."""
    try:
        return marker_of(header, data, position)
    except RecordsError as error:
        offset = header.base_offset
        logger.warning("the marker of producer %d at offset %d is passed over: %s", header.producer_id, offset, error)
        return None


def record_marker(
    producers: ProducerStates, header: BatchHeader, marker: EndTransactionMarker, segment: Segment | None
) -> None:
    """Ends a transaction in the producer state and, if it aborted, in the transaction index of `segment`."""
    ended = producers.record_marker(header, marker)
    if ended is not None and ended.is_aborted and segment is not None:
        segment.transaction_index.append(
            AbortedTransaction(
                ended.producer_id, ended.first_offset, ended.last_offset, producers.last_stable_offset_after(ended)
            )
        )
    producers.end_offset = header.end_offset


class ProducerReplay:
    """Rebuilds the producer state of one log, up to `end_offset`."""

    def __init__(
        self,
        producers: ProducerStates,
        segments: Segments,
        snapshots: Snapshots,
        *,
        end_offset: int,
        is_compacted: bool,
    ) -> None:
        self._producers = producers
        self._segments = segments
        self._snapshots = snapshots
        self._end_offset = end_offset
        self._is_compacted = is_compacted

    def run(self, rebuilt_aborted: Sequence[Segment] = ()) -> None:
        """`rebuilt_aborted` are segments whose transaction index was lost: it is filled again on the way."""
        self._producers.clear()
        newest = min((segment.base_offset for segment in rebuilt_aborted), default=self._end_offset)
        start_offset = self._load_snapshot(newest)
        for segment in self._segments.from_offset(start_offset):
            try:
                self._replay_segment(segment, start_offset, segment if segment in rebuilt_aborted else None)
            except CorruptFileError as error:
                logger.warning("%s; the state of its producers is not known from there on", error)
        self._producers.end_offset = self._end_offset

    def _replay_segment(self, segment: Segment, start_offset: int, filled: Segment | None) -> None:
        found = segment.find(start_offset)
        if found is None:
            return
        for position, header in segment.walk(found.position):
            if header.producer_id < 0 or header.base_offset < start_offset:
                continue
            # Only of markers the content counts, and they are short.
            data = segment.file.read(position, header.size_bytes) if header.is_control else b""
            replay_batch(self._producers, header, marker_if_readable(header, data, 0), filled)

    def _load_snapshot(self, newest: int) -> int:
        """Loads the last sound snapshot up to `newest` and returns its offset; those that do not fit the log go."""
        first_offset = self._segments.bases[0] if self._segments.bases else self._end_offset
        for offset in reversed(self._snapshots.offsets()):
            if newest < offset <= self._end_offset:
                continue
            if first_offset <= offset <= newest:
                try:
                    path = self._snapshots.path(offset)
                    self._producers.load(self._snapshots.read(offset), offset, path)
                    self._close_transactions_that_are_gone(first_offset, path)
                    return offset
                except CorruptFileError as error:
                    logger.warning("%s; using an earlier snapshot or the log itself", error)
            self._snapshots.drop(offset)
        self._producers.clear()
        return first_offset

    def _close_transactions_that_are_gone(self, log_first_offset: int, path: str) -> None:
        """A snapshot is as old as its segment: deletion and compaction may have taken a transaction that it calls open.

        CorruptFileError where neither explains that the transaction is not in the log: the snapshot is not of this log.
        """
        producers = self._producers
        for _, producer_id in list(producers.ongoing_transactions()):
            last_offset = producers.producers[producer_id].last_offset
            is_deleted = last_offset < log_first_offset
            # What is decided goes from the front, so as long as the last batch is there, others may be.
            if not is_deleted and self._has_batch(producer_id, last_offset):
                continue
            if not is_deleted and not self._is_compacted:
                raise CorruptFileError(path, f"names a batch of producer {producer_id} at {last_offset} that is none")
            producers.close_transaction(producer_id)

    def _has_batch(self, producer_id: int, last_offset: int) -> bool:
        """Whether a batch of this producer ends there."""
        found = self._segments.from_offset(last_offset)[0].find(last_offset)
        return found is not None and (found.header.last_offset, found.header.producer_id) == (last_offset, producer_id)
