"""Truncation, retention, deletion, flushing and closing of a log."""

import os

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.records import batch
from ottla.testing.log_upkeep import unlink_due_segments

HOUR = 3_600_000
ONE = len(batch.build(None, [b"v"], 0))
DELAY = 60_000


def filled(home, count: int = 6, **settings):
    """A log of `count` one-record batches, two per segment."""
    log = home.open(**({"segment_bytes": 2 * ONE} | settings))
    for number in range(count):
        home.produce(log, b"%d" % number)
    return log


# -- cutting the end ---------------------------------------------------------------------------------------------------


def test_truncation_at_a_batch_drops_it_and_the_rest(home) -> None:
    log = home.open()
    for value in (b"a", b"b", b"c"):
        home.produce(log, value)
    log.truncate_to(1, now_ms=home.now_ms)
    assert (home.values(log), log.end_offset) == ([b"a"], 1)
    assert home.produce(log, b"new").first_offset == 1


def test_truncation_inside_of_a_batch_drops_the_whole_batch(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    home.produce(log, b"b", b"c", b"d")
    log.truncate_to(3, now_ms=home.now_ms)
    assert (home.values(log), log.end_offset) == ([b"a"], 1)


def test_truncation_into_an_earlier_segment_drops_the_later_ones(home) -> None:
    log = filled(home)
    log.truncate_to(3, now_ms=home.now_ms)
    assert home.bases(log) == [0, 2]
    assert home.files(".log") == ["00000000000000000000.log", "00000000000000000002.log"]
    for number in range(3, 6):
        home.produce(log, b"new %d" % number)
    assert home.values(log) == [b"0", b"1", b"2", b"new 3", b"new 4", b"new 5"]


def test_truncation_to_the_start_of_a_segment_leaves_it_empty_and_active(home) -> None:
    log = filled(home)
    log.truncate_to(2, now_ms=home.now_ms)
    assert (home.bases(log), log.end_offset, log.active.size_bytes) == ([0, 2], 2, 0)
    home.produce(log, b"new")
    assert home.values(log) == [b"0", b"1", b"new"]


def test_truncation_at_or_past_the_end_cuts_nothing(home) -> None:
    log = filled(home)
    log.truncate_to(6, now_ms=home.now_ms)
    log.truncate_to(99, now_ms=home.now_ms)
    assert log.end_offset == 6
    assert len(home.values(log)) == 6


def test_truncation_below_the_first_segment_starts_anew_there(home) -> None:
    log = filled(home, retention_bytes=ONE)
    log.delete_expired(home.now_ms, high_watermark=6)
    assert log.log_start_offset == 4
    log.truncate_to(1, now_ms=home.now_ms)
    assert (log.log_start_offset, log.end_offset, log.recovery_point) == (1, 1, 1)
    assert home.bases(log) == [1]
    assert home.produce(log, b"new").first_offset == 1


def test_truncation_below_the_log_start_takes_the_start_along(home) -> None:
    log = filled(home)
    log.advance_log_start(5)
    log.truncate_to(3, now_ms=home.now_ms)
    assert (log.log_start_offset, log.end_offset) == (3, 3)


def test_starting_anew_forgets_everything(home) -> None:
    log = filled(home)
    home.send(log, 7, 0, is_transactional=True)
    log.truncate_fully(1000, now_ms=home.now_ms)
    assert (log.log_start_offset, log.end_offset, log.recovery_point) == (1000, 1000, 1000)
    assert log.epochs.entries == ()
    assert log.producers.producers == {}
    assert home.files(".log") == ["00000000000000001000.log"]
    assert home.files(".snapshot") == []
    assert log.last_stable_offset(1000) == 1000


def test_truncation_takes_epochs_recovery_point_and_time_along(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1, at=home.now_ms)
    home.produce(log, b"b", leader_epoch=2, at=home.now_ms + 50)
    log.flush(home.now_ms)
    assert log.recovery_point == 2
    log.truncate_to(1, now_ms=home.now_ms)
    assert log.recovery_point == 1
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]
    assert log.offset_for_time(home.now_ms + 1) is None
    home.produce(log, b"c", leader_epoch=3, at=home.now_ms + 10)
    assert log.offset_for_time(home.now_ms + 1) == (home.now_ms + 10, 1)


def test_an_epoch_that_wrote_nothing_is_dropped_by_a_truncation_that_cuts_nothing(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    log.assign_epoch(4)
    log.truncate_to(1, now_ms=home.now_ms)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_a_leader_notes_its_epoch_before_its_first_batch(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    log.assign_epoch(4)
    assert log.epochs.end_of(1, log.end_offset) == (1, 1)
    assert log.epochs.end_of(4, log.end_offset) == (4, 1)
    log.assign_epoch(3)  # of the past
    assert log.epochs.latest == 4


def test_a_truncated_log_opens_as_it_was_left(home) -> None:
    log = filled(home)
    log.truncate_to(3, now_ms=home.now_ms)
    home.produce(log, b"new")
    log = home.restart_after_kill(log)
    assert home.report.problems == []
    assert home.values(log) == [b"0", b"1", b"2", b"new"]


# -- cutting the beginning ---------------------------------------------------------------------------------------------


def test_deleted_records_are_out_of_range_at_once_and_their_segments_go_with_retention(home) -> None:
    log = filled(home)
    log.advance_log_start(3)
    with pytest.raises(ApiError) as caught:
        log.read(2, 1000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert home.bases(log) == [0, 2, 4]
    assert log.delete_expired(home.now_ms, high_watermark=6) == 1
    assert (home.bases(log), log.log_start_offset) == ([2, 4], 3)


def test_records_past_the_end_cannot_be_deleted(home) -> None:
    log = filled(home)
    with pytest.raises(ApiError) as caught:
        log.advance_log_start(7)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_log_start(6)
    assert log.log_start_offset == 6


def test_the_log_start_never_goes_back(home) -> None:
    log = filled(home)
    log.advance_log_start(3)
    log.advance_log_start(1)
    assert log.log_start_offset == 3


def test_deleting_records_moves_the_start_of_the_epochs(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    home.produce(log, b"b", leader_epoch=2)
    home.produce(log, b"c", leader_epoch=2)
    log.advance_log_start(2)
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 2)]


def test_old_segments_go_by_the_time_of_their_records(home) -> None:
    log = home.open(segment_bytes=ONE, retention_ms=HOUR)
    for age in (3 * HOUR, 2 * HOUR, 0):
        home.produce(log, b"v", at=home.now_ms - age)
    assert log.delete_expired(home.now_ms, high_watermark=3) == 2
    assert (home.bases(log), log.log_start_offset) == ([2], 2)


def test_when_all_is_expired_a_new_segment_is_rolled_first(home) -> None:
    log = filled(home, retention_ms=HOUR)
    assert log.delete_expired(home.now_ms + 2 * HOUR, high_watermark=6) == 3
    assert (home.bases(log), log.log_start_offset, log.end_offset) == ([6], 6, 6)
    assert home.produce(log, b"new").first_offset == 6
    assert log.delete_expired(home.now_ms + 2 * HOUR, high_watermark=6) == 0


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_records_without_a_time_age_from_when_the_last_of_them_was_written(home, is_opened_again: bool) -> None:
    """As in Kafka, which asks the file. A segment that is written to for weeks must not go with its newest records."""
    log = home.open(retention_ms=HOUR, now_ms=home.now_ms - 3 * HOUR)
    home.produce(log, b"v", at=-1)
    path = log.active.file.path
    if is_opened_again:
        log.close()
        log = home.open(retention_ms=HOUR, is_clean=True, recovery_point=1, now_ms=home.now_ms + 3 * HOUR)
    os.utime(path, ns=(0, home.now_ms * 1_000_000))
    assert log.delete_expired(home.now_ms + HOUR, high_watermark=1) == 0
    assert log.delete_expired(home.now_ms + HOUR + 1, high_watermark=1) == 1


def test_retention_stops_at_the_high_watermark(home) -> None:
    log = filled(home, retention_bytes=0)
    assert log.delete_expired(home.now_ms, high_watermark=3) == 1
    assert home.bases(log) == [2, 4]


def test_deleted_segments_wait_under_another_name_and_go_after_the_delay(home) -> None:
    log = filled(home, retention_bytes=2 * ONE)
    assert log.delete_expired(home.now_ms, high_watermark=6) == 2
    assert home.files(".deleted") == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000002.index.deleted",
        "00000000000000000002.log.deleted",
        "00000000000000000002.timeindex.deleted",
    ]
    assert unlink_due_segments(log, home.now_ms + DELAY - 1) == 0
    assert unlink_due_segments(log, home.now_ms + DELAY) == 2
    assert home.files(".deleted") == []
    assert home.files(".snapshot") == ["00000000000000000004.snapshot"]
    assert unlink_due_segments(log, home.now_ms + 2 * DELAY) == 0


def test_what_was_being_deleted_is_gone_after_a_restart(home) -> None:
    log = filled(home, retention_bytes=2 * ONE)
    log.delete_expired(home.now_ms, high_watermark=6)
    log = home.restart_after_kill(log)
    assert home.files(".deleted") == []
    assert (log.log_start_offset, home.values(log)) == (4, [b"4", b"5"])


# -- making durable ----------------------------------------------------------------------------------------------------


def test_a_flush_moves_the_recovery_point_to_where_the_log_ended_when_it_began(home) -> None:
    log = filled(home)
    flush = log.begin_flush()
    home.produce(log, b"later")
    flush.run()
    assert log.recovery_point == 0
    log.end_flush(flush, home.now_ms)
    assert (log.recovery_point, log.end_offset) == (6, 7)


def test_a_flush_that_was_overtaken_by_a_truncation_moves_nothing(home) -> None:
    log = filled(home)
    flush = log.begin_flush()
    log.truncate_to(3, now_ms=home.now_ms)
    for _ in range(5):
        home.produce(log, b"new")  # the end is past the flush again, with other records
    flush.run()
    log.end_flush(flush, home.now_ms)
    assert log.recovery_point <= 3


def test_a_flush_does_not_mind_segments_that_were_deleted_meanwhile(home) -> None:
    log = filled(home, retention_bytes=0)
    flush = log.begin_flush()
    log.delete_expired(home.now_ms, high_watermark=6)
    unlink_due_segments(log, home.now_ms + DELAY)
    flush.run()
    log.end_flush(flush, home.now_ms)
    assert log.recovery_point == 6


def test_the_epochs_are_on_disk_before_the_recovery_point_moves(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=3)
    flush = log.begin_flush()
    flush.run()
    assert home.content("leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    assert log.recovery_point == 0
    log.end_flush(flush, home.now_ms)
    assert log.recovery_point == 1


def test_a_flush_is_due_after_so_many_records(home) -> None:
    log = home.open(flush_messages=3)
    home.produce(log, b"a", b"b")
    assert not log.is_flush_due(home.now_ms)
    home.produce(log, b"c")
    assert log.is_flush_due(home.now_ms)
    log.flush(home.now_ms)
    assert not log.is_flush_due(home.now_ms)


def test_a_flush_is_due_after_so_much_time_if_there_is_something_to_flush(home) -> None:
    log = home.open(flush_ms=1000)
    assert not log.is_flush_due(home.now_ms + 5000)
    home.produce(log, b"a")
    assert not log.is_flush_due(home.now_ms + 999)
    assert log.is_flush_due(home.now_ms + 1000)
    log.flush(home.now_ms + 1000)
    home.produce(log, b"b")
    assert not log.is_flush_due(home.now_ms + 1999)
    assert log.is_flush_due(home.now_ms + 2000)


def test_by_default_a_flush_is_due_only_after_a_roll(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    assert not log.is_flush_due(home.now_ms + 10**12)
    log.roll(home.now_ms)
    assert log.is_flush_due(home.now_ms)
    log.flush(home.now_ms)
    assert not log.is_flush_due(home.now_ms)


def test_closing_flushes_and_a_clean_start_changes_no_file(home) -> None:
    log = filled(home, 5)
    home.send(log, 7, 0, is_transactional=True)
    home.end(log, 7, commit=False)
    log.close()
    assert log.recovery_point == log.end_offset
    before = {name: home.content(name) for name in home.files()}
    assert "00000000000000000007.snapshot" in before
    again = home.open(config=log.config, is_clean=True)
    assert home.report.problems == []
    assert (home.report.recovered_segments, again.end_offset, again.recovery_point) == (0, 7, 7)
    assert {name: home.content(name) for name in home.files()} == before
    again.close()
    assert {name: home.content(name) for name in home.files()} == before


def test_after_a_clean_start_the_log_goes_on_as_if_nothing_had_been(home, tmp_path) -> None:
    def life(restarting: bool) -> list:
        home.directory = str(tmp_path / f"restarting-{restarting}")
        log = home.open(segment_bytes=4 * ONE, index_interval_bytes=ONE)
        for number in range(10):
            home.produce(log, b"v", at=home.now_ms + number)
            if restarting:
                log = home.restart(log)
        log.close()
        return [home.content(name) for name in home.files(".log") + home.files(".index")]

    assert life(restarting=True) == life(restarting=False)


def syncs_of(work, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many files and directories `work` syncs."""
    count = 0

    def sync(descriptor: int) -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr("os.fsync", sync)
    work()
    return count


def test_a_log_that_was_never_written_closes_without_a_sync(home, monkeypatch) -> None:
    log = home.open()
    assert syncs_of(log.close, monkeypatch) == 0
    assert home.open(is_clean=True).end_offset == 0


def test_a_log_that_was_not_written_since_a_clean_start_is_opened_and_closed_without_a_sync(home, monkeypatch) -> None:
    filled(home).close()
    opened = []
    assert syncs_of(lambda: opened.append(home.open(is_clean=True)), monkeypatch) == 0
    assert syncs_of(opened[0].close, monkeypatch) == 0
    assert home.values(home.open(is_clean=True)) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_log_that_was_written_since_a_clean_start_syncs_when_it_closes(home, monkeypatch) -> None:
    filled(home).close()
    log = home.open(is_clean=True)
    home.produce(log, b"new")
    assert syncs_of(log.close, monkeypatch) > 0
    assert home.values(home.open(is_clean=True))[-1] == b"new"
