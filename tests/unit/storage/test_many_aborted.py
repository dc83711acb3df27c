"""A log with very many aborted transactions: neither a clean start nor a read at its end looks at all of them.

Work is counted, not time: entries that are unpacked and reads of files.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.records.control import EndTransactionMarker
from ottla.storage.index import AbortedTransaction, TransactionIndex
from ottla.storage.log import Log
from ottla.storage.recovery import ABORTED_CHECKED_MAX, open_log
from ottla.testing.disk import SimulatedDisk

ABORT = EndTransactionMarker(commit=False, coordinator_epoch=0)


class CountingDisk(SimulatedDisk):
    reads = 0

    def _admit(self, kind: Any, path: str) -> None:
        self.reads += kind == "read"
        super()._admit(kind, path)


def opened(disk: SimulatedDisk, *, is_clean: bool) -> Log:
    config = LogConfig(segment_bytes=1 << 16)
    return open_log(disk, "/data/t-0", TopicPartition("t", 0), config, now_ms=0, is_clean=is_clean)


def with_aborted(count: int) -> CountingDisk:
    """A log that was closed in order."""
    disk = CountingDisk()
    log = opened(disk, is_clean=False)
    for number in range(count):
        data = batch.build(
            None, [b"v"], number, producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True
        )
        log.append(data, leader_epoch=0, now_ms=number)
        log.append_marker(7, 0, ABORT, leader_epoch=0, now_ms=number)
    log.close()
    disk.reads = 0
    return disk


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the entries that were unpacked."""
    numbers: list[int] = []
    entry = TransactionIndex.entry

    def counted(index: TransactionIndex, number: int) -> AbortedTransaction:
        numbers.append(number)
        return entry(index, number)

    monkeypatch.setattr(TransactionIndex, "entry", counted)
    return numbers


def work_of_a_clean_start(count: int, unpacked: list[int]) -> tuple[int, int, int]:
    """(reads of files, unpacked entries) for each segment, and how many segments there are."""
    disk = with_aborted(count)
    unpacked.clear()
    log = opened(disk, is_clean=True)
    segments = len(log.segments)
    assert len(log.aborted_transactions(0, log.end_offset)) == count
    return disk.reads // segments, len(unpacked[: -count or None]) // segments, segments


def test_a_clean_start_looks_at_a_bounded_part(unpacked: list[int]) -> None:
    reads, entries, segments = work_of_a_clean_start(3000, unpacked)
    assert 3000 // segments > 300
    assert entries <= ABORTED_CHECKED_MAX
    assert reads <= 4 * ABORTED_CHECKED_MAX + 20  # two batches of an entry, found by the index and a look around


def test_a_read_at_the_end_looks_at_what_ended_there(unpacked: list[int]) -> None:
    log = opened(with_aborted(1000), is_clean=True)
    unpacked.clear()
    end_offset = log.end_offset
    assert log.aborted_transactions(end_offset - 2, end_offset) == [
        AbortedTransaction(7, end_offset - 2, end_offset - 1, end_offset)
    ]
    assert len(unpacked) == 1


def test_a_read_in_the_middle_finds_all_that_it_needs(unpacked: list[int]) -> None:
    log = opened(with_aborted(1000), is_clean=True)
    unpacked.clear()
    found = log.aborted_transactions(500, 520)
    assert [entry.first_offset for entry in found] == list(range(500, 520, 2))
    assert len(unpacked) <= 11
