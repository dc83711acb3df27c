"""The judges themselves: a broker with one bug planted in it does not get through a soak, and is told why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.partition import Partition, Watermarks
from ottla.broker.replicas import Replicas
from ottla.errors import StorageError
from ottla.replication.leader import Leader
from ottla.storage import cleaner, logs, retention
from ottla.storage.flush import Flush
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import open_log
from ottla.testing.soak import Climate, soak
from ottla.testing.world import SimulationError

SEEDS_MAX = 48  # chance decides when a bug shows: the rarest in one run of eight; so many must be enough

Plant = Callable[[pytest.MonkeyPatch], None]


def recovery_drops_an_acknowledged_batch(patch: pytest.MonkeyPatch) -> None:
    def open_and_cut(*arguments: Any, is_clean: bool = False, now_ms: int, **options: Any) -> Log:
        log = open_log(*arguments, is_clean=is_clean, now_ms=now_ms, **options)
        if not is_clean and log.end_offset > log.log_start_offset:
            log.truncate_to(log.end_offset - 1, now_ms=now_ms)
        return log

    patch.setattr(logs, "open_log", open_and_cut)


def recovery_starts_above_what_was_synced(patch: pytest.MonkeyPatch) -> None:
    """As a broker that does not care whether a sync failed."""

    def run(flush: Flush) -> None:
        return

    patch.setattr(Flush, "run", run)


def deleted_records_are_one_too_many(patch: pytest.MonkeyPatch) -> None:
    advance = Log.advance_log_start

    def advance_too_far(log: Log, offset: int) -> None:
        advance(log, min(offset + 1, log.end_offset))

    patch.setattr(Log, "advance_log_start", advance_too_far)


def retention_by_size_takes_one_segment_more(patch: pytest.MonkeyPatch) -> None:
    expired_count = retention.expired_count

    def one_more(segments: list[Any], *arguments: Any, **options: Any) -> int:
        count = expired_count(segments, *arguments, **options)
        return min(count + 1, len(segments) - 1) if count else 0

    patch.setattr(retention, "expired_count", one_more)


def compaction_drops_the_newest(patch: pytest.MonkeyPatch) -> None:
    def clean_records(run: Any, header: Any, data: Any, new: Any) -> None:
        run._keep_empty_if_last(header, new)

    patch.setattr(cleaner._Run, "_clean_records", clean_records)


def a_repeated_batch_is_taken_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda states, header: None)


def every_tenth_batch_is_appended_twice(patch: pytest.MonkeyPatch) -> None:
    append, count = Log.append, [0]

    def append_twice(log: Log, data: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] % 10 == 0:
            append(log, bytes(data), **options)
        return append(log, data, **options)

    patch.setattr(Log, "append", append_twice)


def readers_are_told_an_old_high_watermark(patch: pytest.MonkeyPatch) -> None:
    count = [0]

    def watermarks(partition: Partition) -> Watermarks:
        count[0] += 1
        start, end = partition.log.log_start_offset, partition.leader.high_watermark
        high_watermark = max(start, end - 10) if count[0] % 7 == 0 else end
        return Watermarks(high_watermark, high_watermark, start)

    patch.setattr(Partition, "watermarks", property(watermarks))


def a_partition_of_a_failed_disk_is_made_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicas, "_check_may_be_made", lambda replicas, name: None)


def a_deleted_topic_leaves_its_records_to_the_next(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(logs.Logs, "detach", lambda *arguments, **options: None)
    patch.setattr(logs.Logs, "begin_set_strays_aside", lambda *arguments, **options: ())
    patch.setattr(logs.Logs, "claim", lambda *arguments: None)


def a_record_is_not_found_by_its_time(patch: pytest.MonkeyPatch) -> None:
    offset_for_time = Log.offset_for_time

    def later(log: Log, timestamp: int, *arguments: Any) -> Any:
        return offset_for_time(log, timestamp + 1, *arguments)

    patch.setattr(Log, "offset_for_time", later)


def the_leader_epoch_falls(patch: pytest.MonkeyPatch) -> None:
    start, count = Leader.__init__, [0]

    def start_lower(leader: Leader, node_id: int, epoch: int, *arguments: Any, **options: Any) -> None:
        count[0] += 1
        start(leader, node_id, max(0, 1000 - count[0]), *arguments, **options)

    patch.setattr(Leader, "__init__", start_lower)


def a_disk_that_fails_ends_a_background_task(patch: pytest.MonkeyPatch) -> None:
    def give_up(replicas: Replicas, log: Log, error: StorageError) -> None:
        raise error

    patch.setattr(Replicas, "directory_failed", give_up)


def soak_again_and_again(climate: Climate) -> None:
    for seed in range(SEEDS_MAX):
        soak(seed, climate)


@pytest.mark.parametrize(
    ("plant", "climate", "finding"),
    [
        (recovery_drops_an_acknowledged_batch, Climate(), "was acknowledged or read|was synced up to"),
        (recovery_starts_above_what_was_synced, Climate(), "was synced up to"),
        (deleted_records_are_one_too_many, Climate(deletes_records=True), "was asked to go to"),
        (retention_by_size_takes_one_segment_more, Climate(retains_less=True), "kept .* bytes|ms old"),
        (compaction_drops_the_newest, Climate(compacts=True), "the newest of its key is gone"),
        (a_repeated_batch_is_taken_again, Climate(), "there twice|comes too late"),
        (every_tenth_batch_is_appended_twice, Climate(sends_without_acks=True), "there twice|comes too late"),
        (readers_are_told_an_old_high_watermark, Climate(), "high watermark fell|is not below"),
        (a_partition_of_a_failed_disk_is_made_anew, Climate(2, fails_disks=True), "acknowledged|synced"),
        (a_deleted_topic_leaves_its_records_to_the_next, Climate(), "is of another topic|epochs"),
        (a_record_is_not_found_by_its_time, Climate(asks_offsets=True), "is as late|at time"),
        (the_leader_epoch_falls, Climate(), "came before|went from"),
        (a_disk_that_fails_ends_a_background_task, Climate(2, fails_disks=True), "an error in the log|is not led"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_is_found(plant: Plant, climate: Climate, finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(SimulationError, match=finding):
        soak_again_and_again(climate)
