"""How compacted segments get into the place of the old ones: whatever interrupts it, no value is lost."""

from __future__ import annotations

import itertools

from ottla.config import LogConfig
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage import cleaner
from ottla.storage.cleaning_job import CleaningResult
from ottla.storage.log import Log
from ottla.storage.recovery import open_log
from ottla.testing.audit import audit, batches_of
from ottla.testing.disk import EVERY_FATE, DiskStopped, SimulatedDisk

# Small indexes, so that one group of segments becomes several, and not where the old ones began.
CONFIG = LogConfig(
    cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, index_interval_bytes=0, segment_index_bytes=60
)
BATCHES = 24


def opened(disk: SimulatedDisk) -> Log:
    return open_log(disk, "/data/t-0", TopicPartition("t", 0), CONFIG, now_ms=0, recovery_point=BATCHES)


def cleaned() -> tuple[SimulatedDisk, Log, CleaningResult]:
    """A flushed log and what its compaction wrote beside it."""
    disk = SimulatedDisk()
    log = opened(disk)
    for number in range(BATCHES):
        key = b"again" if number % 3 == 0 else b"key-%d" % number
        log.append(batch.build([key], [b"%d" % number], number), leader_epoch=0, now_ms=0)
    log.roll(0)
    log.flush()
    job = cleaner.plan(log, 0, high_watermark=log.end_offset, now_ms=0)
    assert job is not None
    return disk, log, cleaner.run_job(job, disk)


def table(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for _, data in batches_of(log) for record in batch.iterate(data)}


def test_an_interrupted_swap_of_several_segments_loses_no_value() -> None:
    disk, log, result = cleaned()
    (group,) = result.groups
    assert len(group.new) > 2
    assert len(group.old) > 2
    assert {new.base_offset for new in group.new} - {old.base_offset for old in group.old}, "they begin elsewhere"
    expected = table(log)
    for number in itertools.count():
        disk, log, result = cleaned()
        disk.stop_at(len(disk.operations) + number)
        try:
            assert cleaner.commit(log, result, 0)
        except DiskStopped:
            pass
        else:
            assert number > 10, "it takes many renames"
            assert table(log) == expected
            return
        for survivor in (disk.crash(number, EVERY_FATE), disk.kill()):
            again = opened(survivor)
            audit(again, may_have_gaps=True)
            assert (table(again), again.end_offset) == (expected, BATCHES), f"stopped at rename {number}"
            assert [one.damaged_from for one in again.segments] == [None] * len(again.segments)
