"""Compares everything a log says with a plain reading of its files.

The log answers through indexes, caches and state that grew step by step; the audit reads the segment files from their
first byte, decodes every record and works the answers out the slow way. AssertionError where the two differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ottla.records import batch, control
from ottla.records.batch import BatchHeader
from ottla.storage.epochs import EpochStart
from ottla.storage.index import AbortedTransaction, TimestampOffset
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment

Asked = TypeVar("Asked")


class AuditedBatch(NamedTuple):
    header: BatchHeader
    data: bytes
    position: int


def audit(
    log: Log, *, may_have_gaps: bool = False, indexes_are_sound: bool = True, asked_max: int | None = None
) -> list[bytes]:
    """The batches of `log`, from its first segment on, after every answer about them was found right.

    `may_have_gaps`: compaction took offsets away. Without `indexes_are_sound` their entries may be wrong, as after
    damage that nobody has noticed yet; the answers may not. `asked_max`: about so many batches, and so many timestamps,
    are asked for, spread over the log, instead of all.
    """
    batches = []
    for segment in log.segments:
        found_here = audit_segment(segment)
        if indexes_are_sound:
            _check_offset_index(segment, found_here)
            _check_time_index(segment, found_here, is_active=segment is log.active)
        batches += found_here
    headers = [found.header for found in batches]
    _check_offsets(log, headers, may_have_gaps)
    visible = [found for found in batches if found.header.last_offset >= log.log_start_offset]
    _check_reads(log, visible, asked_max)
    _check_times(log, visible, asked_max)
    _check_epochs(log, [found.header for found in visible], may_have_gaps)
    _check_producers(log, batches, log.segments[0].base_offset == 0 and not may_have_gaps, indexes_are_sound)
    return [found.data for found in batches]


# -- segments and their indexes ----------------------------------------------------------------------------------------


def batches_of(log: Log, start_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a log from `start_offset`, or from its start, with its bytes."""
    offset = log.log_start_offset if start_offset is None else start_offset
    for segment in log.segments:
        found = segment.find(offset)
        if found is None:
            continue
        for position, header in segment.walk(found.position):
            yield header, segment.file.read(position, header.size_bytes)


def audit_segment(segment: Segment) -> list[AuditedBatch]:
    """The batches of a segment, each checked record by record."""
    content = segment.file.read(0, segment.file.size())
    name = segment.file.path
    assert len(content) == segment.size_bytes, f"{name}: {len(content)} bytes, thought to have {segment.size_bytes}"
    scanned = batch.scan(content)
    assert scanned.problem is None, f"{name}: {scanned.problem}"
    assert scanned.end_position == len(content), f"{name}: ends inside a batch"
    found = []
    for position, header in zip(scanned.positions, scanned.headers, strict=True):
        batch.check(content, position, strict=False)
        found.append(AuditedBatch(header, content[position : position + header.size_bytes], position))
    return found


def _check_offset_index(segment: Segment, batches: Sequence[AuditedBatch]) -> None:
    ends = {found.position: found.header.last_offset for found in batches}
    previous = -1
    for entry in segment.offset_index.entries():
        assert ends.get(entry.position) == entry.offset, f"{segment.offset_index.path}: {entry} is not a batch"
        assert entry.position > previous, f"{segment.offset_index.path}: {entry} comes after {previous}"
        previous = entry.position


def _check_time_index(segment: Segment, batches: Sequence[AuditedBatch], is_active: bool) -> None:
    """Each entry is the largest timestamp up to its batch; the last entry of a sealed one is the largest of all."""
    largest = TimestampOffset(-1, segment.base_offset)
    risen = [largest]
    for found in batches:
        if found.header.max_timestamp > largest.timestamp:
            largest = TimestampOffset(found.header.max_timestamp, found.header.last_offset)
            risen.append(largest)
    entries = list(segment.time_index.entries())
    assert set(entries) <= set(risen), f"{segment.time_index.path}: {set(entries) - set(risen)} not of the log"
    assert sorted(set(entries)) == entries, f"{segment.time_index.path}: entries do not rise: {entries}"
    assert segment.max_timestamp == largest, f"{segment.time_index.path}: {segment.max_timestamp}, in fact {largest}"
    if not is_active and largest.timestamp >= 0:
        assert entries[-1:] == [largest], f"{segment.time_index.path}: ends with {entries[-1:]} instead of {largest}"


# -- offsets, reads, times ---------------------------------------------------------------------------------------------


def _check_offsets(log: Log, headers: Sequence[BatchHeader], may_have_gaps: bool) -> None:
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases)), f"{log.name}: segments at {bases}"
    end_offset = bases[0]
    for header in headers:
        assert header.base_offset >= end_offset, f"{log.name}: offset {header.base_offset} after {end_offset - 1}"
        assert may_have_gaps or header.base_offset == end_offset, f"{log.name}: hole before {header.base_offset}"
        end_offset = header.end_offset
    assert end_offset <= log.end_offset
    assert may_have_gaps or end_offset == log.end_offset, f"{log.name}: ends at {end_offset}, says {log.end_offset}"
    assert log.log_start_offset <= log.end_offset
    assert log.recovery_point <= log.end_offset
    assert not log.active.size_bytes or log.active.base_offset <= headers[-1].base_offset


def _spread(asked: Sequence[Asked], asked_max: int | None) -> Sequence[Asked]:
    """All, or about that many, with the first and the last."""
    step = 1 if asked_max is None else max(1, len(asked) // asked_max)
    return asked if step == 1 else [*asked[:-1:step], asked[-1]]


def _check_reads(log: Log, visible: Sequence[AuditedBatch], asked_max: int | None) -> None:
    """From every batch on, one batch, and as much as there is."""
    ends = [log.log_start_offset, *(found.header.end_offset for found in visible[:-1])]
    for asked, found in _spread(list(zip(ends, visible, strict=False)), asked_max):
        for offset in {asked, max(asked, found.header.base_offset), found.header.last_offset}:
            piece = log.read(offset, 1)
            assert piece is not None, f"{log.name}: nothing at {offset}"
            assert piece.records.read() == found.data, f"{log.name}: not the batch at {offset}"
            assert piece.first_offset == found.header.base_offset
            assert piece.upper_offset >= found.header.end_offset
    assert log.read(log.end_offset, 1) is None
    content = b""
    offset = log.log_start_offset
    while (piece := log.read(offset, 2**31)) is not None:
        content += piece.records.read()
        assert piece.upper_offset > offset, f"{log.name}: a read at {offset} does not get on"
        offset = piece.upper_offset
    assert content == b"".join(found.data for found in visible), f"{log.name}: a read of all is not all"


def _check_times(log: Log, visible: Sequence[AuditedBatch], asked_max: int | None) -> None:
    """For every timestamp of the log, those around it, and the largest."""
    records = [
        TimestampOffset(timestamp, offset)
        for found in visible
        for offset, timestamp in zip(*batch.decode(found.data)[:2], strict=True)
        if offset >= log.log_start_offset
    ]
    timestamps = {record.timestamp for record in records}
    largest_before: list[TimestampOffset] = []
    for record in records:  # a later record that is not larger is never an answer
        if not largest_before or record.timestamp > largest_before[-1].timestamp:
            largest_before.append(record)
    for asked in {near for timestamp in _spread(sorted(timestamps), asked_max) for near in (timestamp, timestamp + 1)}:
        expected = next((record for record in largest_before if record.timestamp >= asked), None)
        answer = log.offset_for_time(asked)
        assert answer == expected, f"{log.name}: at time {asked} {answer}, in fact {expected}"


def _check_epochs(log: Log, headers: Sequence[BatchHeader], may_have_gaps: bool) -> None:
    """Every batch is of the epoch that the log names for its offset, and no other epoch is named."""
    known = [entry for entry in log.epochs.entries if entry.start_offset < log.end_offset]
    expected: list[EpochStart] = []
    for header in headers:
        if header.leader_epoch >= 0 and (not expected or header.leader_epoch > expected[-1].epoch):
            expected.append(EpochStart(header.leader_epoch, max(header.base_offset, log.log_start_offset)))
    if may_have_gaps:
        for header in headers:
            offset = max(header.base_offset, log.log_start_offset)
            assert log.epochs.epoch_at(offset) == header.leader_epoch, f"{log.name}: epoch at {offset}: {known}"
    else:
        assert known == expected, f"{log.name}: epochs {known}, in fact {expected}"


# -- producers ---------------------------------------------------------------------------------------------------------


class Replayed(NamedTuple):
    producers: ProducerStates
    aborted: list[AbortedTransaction]


class ClosedTransaction(NamedTuple):
    """One that had left nothing in the log when its producers were rebuilt, where the log ended at `at_offset`."""

    at_offset: int
    producer_id: int
    first_offset: int


def replay(batches: Iterable[tuple[BatchHeader, bytes]], closed: Iterable[ClosedTransaction] = ()) -> Replayed:
    """What a log that holds these batches must know of its producers and of their aborted transactions."""
    replayed = Replayed(ProducerStates(), [])
    states = replayed.producers
    to_close = deque(sorted(closed))
    for header, data in batches:
        while to_close and to_close[0].at_offset <= header.base_offset:
            states.close_transaction(to_close.popleft().producer_id)
        if header.producer_id < 0:
            continue
        if not header.is_control:
            states.record(header, header.max_timestamp)
        elif not header.record_count:
            states.record_emptied_marker(header)
        elif (marker := control.read_marker(data)) is not None:
            ended = states.record_marker(header, marker)
            if ended is not None and ended.is_aborted:
                stable = states.last_stable_offset_after(ended)
                replayed.aborted.append(
                    AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)
                )
    for transaction in to_close:
        states.close_transaction(transaction.producer_id)
    return replayed


def _check_producers(log: Log, batches: Sequence[AuditedBatch], is_whole: bool, indexes_are_sound: bool) -> None:
    replayed = replay((found.header, found.data) for found in batches)
    if is_whole:
        check_producers(log.producers, replayed.producers)
        known = log.aborted_transactions(0, log.end_offset)
        compared = 4 if indexes_are_sound else 3  # the last stable offset is a hint where to stop looking
        assert [entry[:compared] for entry in known] == [entry[:compared] for entry in replayed.aborted], (
            f"{log.name}: aborted {known}, in fact {replayed.aborted}"
        )
    for producer_id, producer in replayed.producers.producers.items():
        other = log.producers.producers.get(producer_id)
        assert other is not None, f"{log.name}: producer {producer_id} is not known"
        assert other.epoch == producer.epoch, f"{log.name}: {other}, in fact {producer}"
        if producer.batches:
            assert other.last_sequence == producer.last_sequence, f"{log.name}: {other}, in fact {producer}"


def check_producers(known: ProducerStates, expected: ProducerStates) -> None:
    """`known` may have forgotten what a snapshot does not tell: all but the last batch of a producer, and its time."""
    assert known.producers.keys() == expected.producers.keys()
    for producer_id, producer in expected.producers.items():
        other = known.producers[producer_id]
        remembered = [produced[:3] for produced in other.batches]
        all_batches = [produced[:3] for produced in producer.batches]
        assert bool(remembered) == bool(all_batches)
        assert remembered == all_batches[len(all_batches) - len(remembered) :], f"{other}, in fact {producer}"
        assert replace(other, batches=producer.batches) == producer, f"{other}, in fact {producer}"
    assert list(known.ongoing_transactions()) == list(expected.ongoing_transactions())
