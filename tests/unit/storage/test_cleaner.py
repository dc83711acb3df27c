"""Compaction: what stays, what goes and when, and how it gets in place."""

import itertools
import multiprocessing
import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.errors import CorruptFileError, OttlaError
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.storage import cleaned_output, cleaner
from ottla.storage.cleaning_job import CleaningJob, CleaningResult, SegmentRange
from ottla.storage.index import AbortedTransaction
from ottla.testing.audit import batches_of
from ottla.testing.log_upkeep import unlink_due_segments

HOUR = 3_600_000
DAY = 24 * HOUR
TRANSACTIONAL = {"is_transactional": True}


def compacted(home, **settings):
    return home.open(**({"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0} | settings))


def seal(home, log) -> None:
    """Everything so far may be cleaned: it is in sealed segments and flushed."""
    log.roll(home.now_ms)
    log.flush(home.now_ms)
    log.producers.passed_high_watermark(log.end_offset)


def planned(home, log, *, first_dirty: int = 0, now_ms: int | None = None, **options) -> CleaningJob | None:
    return cleaner.plan(log, first_dirty, high_watermark=log.end_offset, now_ms=now_ms or home.now_ms, **options)


def job_of(home, log, **options) -> CleaningJob:
    job = planned(home, log, **options)
    assert job is not None
    return job


def clean(home, log, *, first_dirty: int = 0, now_ms: int | None = None, **options) -> CleaningResult:
    """Seals the log, cleans it and puts the result in place."""
    seal(home, log)
    job = job_of(home, log, first_dirty=first_dirty, now_ms=now_ms, **options)
    result = cleaner.run_job(job)
    assert cleaner.commit(log, result, now_ms or home.now_ms)
    return result


def clean_again(home, log, **options) -> CleaningResult:
    """Makes the log dirty by an unrelated key and cleans it."""
    first_dirty = log.end_offset
    home.put(log, (b"unrelated", b"%d" % first_dirty))
    return clean(home, log, first_dirty=first_dirty, **options)


# -- what stays --------------------------------------------------------------------------------------------------------


def test_the_last_value_of_each_key_stays_at_its_offset(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    home.put(log, (b"c", b"1"), (b"b", b"2"))
    home.put(log, (b"a", b"3"))
    result = clean(home, log)
    assert home.records(log) == [(3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
    assert (result.records_read, result.records_kept, result.keys) == (6, 3, 3)
    assert result.end_offset == log.end_offset == 6


def test_what_is_not_sealed_is_not_touched_and_does_not_count(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"))
    seal(home, log)
    home.put(log, (b"a", b"2"))
    job = job_of(home, log)
    assert job is not None
    cleaner.commit(log, cleaner.run_job(job), home.now_ms)
    assert home.values(log) == [b"1", b"2"]


def test_a_later_value_takes_away_an_earlier_one_that_was_cleaned_before(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"b", b"1"))
    first = clean(home, log)
    home.put(log, (b"a", b"2"))
    clean(home, log, first_dirty=first.end_offset)
    assert home.records(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_headers_timestamps_and_batch_header_survive(home) -> None:
    log = compacted(home)
    home.produce(
        log, b"1", b"2", b"3", keys=[b"a", b"b", b"a"], at=[home.now_ms, home.now_ms + 7, home.now_ms + 3],
        headers=[[], [("h", b"x")], [("h", None)]], leader_epoch=5,
    )  # fmt: skip
    (before,) = home.headers(log)
    clean(home, log)
    ((after, data),) = batches_of(log)
    assert (after.base_offset, after.last_offset, after.leader_epoch) == (0, 2, 5)
    assert (after.base_timestamp, after.max_timestamp) == (before.base_timestamp, home.now_ms + 7)
    assert list(batch.iterate(data)) == [
        (1, home.now_ms + 7, b"b", b"2", (("h", b"x"),)),
        (2, home.now_ms + 3, b"a", b"3", (("h", None),)),
    ]


def test_the_max_timestamp_is_that_of_the_records_that_stay(home) -> None:
    log = compacted(home)
    home.produce(log, b"1", b"2", keys=[b"a", b"b"], at=[home.now_ms + 9, home.now_ms])
    home.put(log, (b"a", b"2"))
    clean(home, log)
    assert home.headers(log)[0].max_timestamp == home.now_ms


def test_log_append_time_stays_as_it_is(home) -> None:
    log = compacted(home, message_timestamp_type="LogAppendTime")
    home.put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), at=5)
    clean(home, log)
    ((header, data),) = batches_of(log)
    assert (header.is_log_append_time, header.max_timestamp) == (True, home.now_ms)
    assert batch.decode(data).timestamps == [home.now_ms] * 2


@pytest.mark.parametrize("compression", list(Compression))
def test_a_rebuilt_batch_keeps_its_codec_and_a_whole_one_its_bytes(home, compression: Compression) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"x" * 200), (b"b", b"x" * 200), compression=compression)
    home.put(log, (b"a", b"y" * 200), (b"c", b"y" * 200), compression=compression)
    whole = [data for _, data in batches_of(log)][1]
    clean(home, log)
    assert [header.compression for header in home.headers(log)] == [compression] * 2
    assert home.records(log) == [(1, b"b", b"x" * 200), (2, b"a", b"y" * 200), (3, b"c", b"y" * 200)]
    assert [data for _, data in batches_of(log)][1] == whole
    assert all(batch.check(data, strict=False) for _, data in batches_of(log))


def test_records_without_a_key_go(home) -> None:
    log = home.open()
    home.produce(log, b"1", b"2", keys=[None, b"k"])
    log.config = replace(log.config, cleanup_policy=("compact",))  # the topic was not compacted when they came
    clean(home, log)
    assert home.records(log) == [(1, b"k", b"2")]


def test_reads_go_over_the_gaps_and_times_are_found(home) -> None:
    log = compacted(home)
    for number in range(6):
        home.put(log, (b"%d" % (number % 2), b"%d" % number), at=home.now_ms + number)
    clean(home, log)
    found = log.read(0, 10**6)
    assert found.first_offset == 4
    assert log.log_start_offset == 0
    assert log.offset_for_time(home.now_ms) == (home.now_ms + 4, 4)
    assert log.offset_of_max_timestamp() == (home.now_ms + 5, 5)


@pytest.mark.parametrize("how", ["restart", "restart_after_kill"])
def test_a_compacted_log_opens_as_it_was_left(home, how: str) -> None:
    log = compacted(home)
    for number in range(6):
        home.put(log, (b"%d" % (number % 2), b"%d" % number))
        log.roll(home.now_ms)
    clean(home, log)
    before = home.records(log)
    log = getattr(home, how)(log)
    assert home.report.problems == []
    assert (home.records(log), log.log_start_offset, log.end_offset) == (before, 0, 6)


# -- tombstones --------------------------------------------------------------------------------------------------------


def test_a_tombstone_takes_the_value_away_and_stays_for_its_time(home) -> None:
    log = compacted(home, delete_retention_ms=DAY)
    home.put(log, (b"a", b"1"), (b"b", b"1"))
    home.put(log, (b"a", None), (b"c", b"1"), at=[home.now_ms, home.now_ms + 8])
    clean(home, log)
    assert home.records(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header, data = list(batches_of(log))[1]
    assert header.delete_horizon_ms == home.now_ms + DAY
    assert header.max_timestamp == home.now_ms + 8
    assert batch.decode(data).timestamps == [home.now_ms, home.now_ms + 8]  # though their base is another now


def test_a_tombstone_goes_once_its_time_is_over(home) -> None:
    log = compacted(home, delete_retention_ms=DAY)
    home.put(log, (b"a", b"1"))
    home.put(log, (b"a", None), (b"c", b"1"))
    clean(home, log)
    clean_again(home, log, now_ms=home.now_ms + DAY - 1)
    assert (1, b"a", None) in home.records(log)
    clean_again(home, log, now_ms=home.now_ms + DAY)
    assert [key for _, key, _ in home.records(log)] == [b"c", b"unrelated"]


def test_a_later_cleaning_does_not_give_a_tombstone_more_time(home) -> None:
    log = compacted(home, delete_retention_ms=DAY)
    home.put(log, (b"a", None))
    clean(home, log)
    clean_again(home, log, now_ms=home.now_ms + HOUR)
    assert home.headers(log)[0].delete_horizon_ms == home.now_ms + DAY


def test_a_tombstone_of_a_key_that_came_back_goes_at_once(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", None))
    home.put(log, (b"a", b"again"))
    clean(home, log)
    assert home.records(log) == [(1, b"a", b"again")]


def test_a_log_of_which_nothing_is_left_still_begins_where_it_began(home) -> None:
    """Its readers' offsets must not fall out of range, not even after a restart."""
    log = home.open(min_cleanable_dirty_ratio=0.0)
    for _ in range(3):
        home.send(log, 7, log.end_offset, b"without a key")
        log.roll(home.now_ms)
    log.expire_producers(home.now_ms + 2 * DAY)
    log.config = replace(log.config, cleanup_policy=("compact",))
    for _ in range(2):
        first_dirty = clean(home, log).end_offset
        assert home.records(log) == []
        log = home.restart(log)
        assert (log.log_start_offset, log.end_offset) == (0, 3)
    assert log.producers.producers == {}
    home.put(log, (b"a", b"1"))
    clean(home, log, first_dirty=first_dirty)
    assert (home.bases(log), [header.base_offset for header in home.headers(log)]) == ([0, 4], [3])


# -- producers and transactions ----------------------------------------------------------------------------------------


def test_the_last_batch_of_a_producer_stays_empty(home) -> None:
    log = compacted(home)
    home.send(log, 7, 0, b"1", b"2", keys=[b"a", b"b"])
    home.send(log, 7, 2, b"3", keys=[b"c"])
    home.put(log, (b"a", b"x"), (b"b", b"x"), (b"c", b"x"))
    clean(home, log)
    empty, rest = home.headers(log)
    assert (empty.record_count, empty.base_offset, empty.last_offset) == (0, 2, 2)
    assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (7, 2, 2)
    assert rest.base_offset == 3


def test_a_producer_whose_last_batch_was_emptied_goes_on_after_a_crash(home) -> None:
    log = compacted(home)
    home.send(log, 7, 0, b"1", b"2", keys=[b"a", b"b"])
    home.put(log, (b"a", b"x"), (b"b", b"x"))
    clean(home, log)
    for name in home.files(".snapshot"):
        home.disk.unlink(home.path(name))
    log = home.restart_after_kill(log)
    assert home.send(log, 7, 0, b"1", b"2", keys=[b"a", b"b"]).is_duplicate
    assert home.send(log, 7, 2, keys=[b"c"]).first_offset == 4


def test_the_empty_batch_of_a_forgotten_producer_goes(home) -> None:
    log = compacted(home)
    home.send(log, 7, 0, b"1", keys=[b"a"])
    home.put(log, (b"a", b"x"))
    clean(home, log)
    assert len(home.headers(log)) == 2
    log.expire_producers(home.now_ms + 2 * DAY)
    clean_again(home, log)
    assert [header.record_count for header in home.headers(log)] == [1, 1]


def test_data_of_an_aborted_transaction_goes_and_counts_for_nothing(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"before"))
    home.send(log, 7, 0, b"aborted", keys=[b"a"], **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    home.send(log, 7, 1, b"committed", keys=[b"b"], **TRANSACTIONAL)
    home.end(log, 7, commit=True)
    clean(home, log)
    assert home.records(log) == [(0, b"a", b"before"), (3, b"b", b"committed")]


def test_a_transaction_that_is_open_holds_the_cleaning_back(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"))
    log.roll(home.now_ms)
    home.send(log, 7, 0, b"2", keys=[b"a"], **TRANSACTIONAL)
    result = clean(home, log)
    assert result.end_offset == 1
    assert home.values(log) == [b"1", b"2"]


def test_an_abort_marker_and_its_entry_stay_while_data_of_it_was_there(home) -> None:
    log = compacted(home)
    home.send(log, 7, 0, b"x", keys=[b"a"], **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    home.send(log, 7, 1, b"y", keys=[b"b"], **TRANSACTIONAL)
    home.end(log, 7, commit=True)
    clean(home, log)
    assert log.aborted_transactions(0, 4) == [AbortedTransaction(7, 0, 1, 2)]
    marker = home.headers(log)[0]
    assert (marker.is_control, marker.base_offset, marker.delete_horizon_ms) == (True, 1, None)


def test_a_marker_without_data_gets_its_time_and_then_goes(home) -> None:
    log = compacted(home, delete_retention_ms=DAY)
    home.send(log, 7, 0, b"x", keys=[b"a"], **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    home.send(log, 7, 1, b"y", keys=[b"b"], **TRANSACTIONAL)  # the last batch of the producer is another one
    home.end(log, 7, commit=True)
    clean(home, log)  # takes the data
    clean_again(home, log)  # meets the marker without data
    assert log.aborted_transactions(0, 4) == []
    marker = home.headers(log)[0]
    assert (marker.is_control, marker.base_offset) == (True, 1)
    assert marker.delete_horizon_ms == home.now_ms + DAY
    clean_again(home, log, now_ms=home.now_ms + DAY)
    assert home.headers(log)[0].base_offset == 2


def test_a_commit_marker_stays_while_any_data_of_its_transaction_does(home) -> None:
    log = compacted(home, delete_retention_ms=0)
    home.send(log, 7, 0, b"x", keys=[b"a"], **TRANSACTIONAL)
    home.end(log, 7, commit=True)
    clean(home, log)
    clean_again(home, log)
    clean_again(home, log, now_ms=home.now_ms + DAY)
    assert [header.base_offset for header in home.headers(log)][:2] == [0, 1]
    assert home.headers(log)[1].is_control


# -- when --------------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_compacted_needs_no_cleaning(home) -> None:
    log = home.open()
    home.put(log, (b"a", b"1"))
    seal(home, log)
    assert planned(home, log) is None


def test_only_what_is_sealed_flushed_and_below_the_high_watermark_is_cleaned(home) -> None:
    log = compacted(home)
    for number in range(3):
        home.put(log, (b"a", b"%d" % number))
        log.roll(home.now_ms)
    assert planned(home, log) is None  # nothing is flushed
    log.flush(home.now_ms)
    look = cleaner.look(log, 0, high_watermark=2, now_ms=home.now_ms)
    assert look.end_offset == 2
    assert cleaner.look(log, 0, high_watermark=1, now_ms=home.now_ms).end_offset == 1
    assert cleaner.look(log, 0, high_watermark=3, now_ms=home.now_ms).end_offset == 3


def test_the_dirty_part_must_be_more_than_its_share_of_the_log(home) -> None:
    log = compacted(home, min_cleanable_dirty_ratio=0.5)
    for number in range(4):
        home.put(log, (b"%d" % number, b"v"))
        log.roll(home.now_ms)
    seal(home, log)
    assert planned(home, log, first_dirty=3) is None
    assert planned(home, log, first_dirty=2) is None  # exactly half is not more
    assert planned(home, log, first_dirty=1) is not None


def test_a_ratio_of_one_never_cleans(home) -> None:
    log = compacted(home, min_cleanable_dirty_ratio=1.0)
    home.put(log, (b"a", b"1"))
    seal(home, log)
    assert planned(home, log) is None


def test_nothing_dirty_needs_no_cleaning(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"))
    seal(home, log)
    assert planned(home, log, first_dirty=1) is None


@pytest.mark.parametrize("first_dirty", [-5, 99])
def test_a_checkpoint_of_another_life_counts_for_nothing(home, first_dirty: int) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    clean(home, log, first_dirty=first_dirty)
    assert home.values(log) == [b"2"]


def test_records_are_left_alone_for_the_smallest_lag(home) -> None:
    log = compacted(home, min_compaction_lag_ms=HOUR)
    for number, age in enumerate((3 * HOUR, 2 * HOUR, 0)):
        home.put(log, (b"a", b"%d" % number), at=home.now_ms - age)
        log.roll(home.now_ms)
    result = clean(home, log)
    assert result.end_offset == 2
    assert home.values(log) == [b"1", b"2"]


def test_a_clean_segment_with_a_young_record_does_not_hold_the_dirty_ones_back(home) -> None:
    log = compacted(home, min_compaction_lag_ms=HOUR)
    for number, age in enumerate((0, 2 * HOUR, 2 * HOUR)):
        home.put(log, (b"a", b"%d" % number), at=home.now_ms - age)
        log.roll(home.now_ms)
    seal(home, log)
    assert cleaner.look(log, 1, high_watermark=3, now_ms=home.now_ms).end_offset == 3


def test_past_the_largest_lag_a_log_is_cleaned_whatever_its_ratio(home) -> None:
    log = compacted(home, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR)
    home.put(log, (b"a", b"1"))
    seal(home, log)
    assert planned(home, log, now_ms=home.now_ms + HOUR) is None
    assert planned(home, log, now_ms=home.now_ms + HOUR + 1) is not None


# -- how ---------------------------------------------------------------------------------------------------------------


def test_a_map_that_overflows_cleans_in_several_rounds(home) -> None:
    log = compacted(home)
    for _ in range(2):
        for number in range(40):
            home.put(log, (b"%d" % number, b"v"))
    first_dirty, rounds = 0, 0
    while first_dirty < 80:
        result = clean(home, log, first_dirty=first_dirty, dedupe_buffer_bytes=24 * 20)
        assert first_dirty < result.end_offset
        first_dirty, rounds = result.end_offset, rounds + 1
    assert rounds > 2
    assert home.records(log) == [(40 + number, b"%d" % number, b"v") for number in range(40)]


def test_a_batch_with_more_keys_than_the_map_takes_is_a_clear_error(home) -> None:
    log = compacted(home)
    home.put(log, *((b"%d" % number, b"v") for number in range(40)))
    seal(home, log)
    job = job_of(home, log, dedupe_buffer_bytes=24 * 20)
    assert job is not None
    with pytest.raises(OttlaError, match=r"raise log\.cleaner\.dedupe\.buffer\.size"):
        cleaner.run_job(job)


def test_small_neighbours_become_one_segment_no_larger_than_a_segment(home) -> None:
    size = len(home.batch(b"v", keys=[b"0"]))
    log = compacted(home, segment_bytes=3 * size)
    for number in range(8):
        home.put(log, (b"%d" % number, b"v"))
        log.roll(home.now_ms)
    clean(home, log)
    assert home.bases(log) == [0, 3, 6, 8]
    assert [segment.size_bytes for segment in log.segments] == [3 * size, 3 * size, 2 * size, 0]
    unlink_due_segments(log, home.now_ms + 60_000)
    assert home.files(".snapshot") == [f"{base:020d}.snapshot" for base in (3, 6, 8)]


def test_segments_that_are_too_far_apart_for_one_index_stay_apart(home) -> None:
    log = compacted(home)
    far = 2**32
    for offset in (0, 1, far, far + 1):
        log.append_as_follower(home.batch(b"%d" % offset, keys=[b"%d" % (offset % 2)], base_offset=offset), now_ms=0)
        log.roll(home.now_ms)
    home.put(log, (b"2", b"v"))
    clean(home, log)
    assert home.records(log) == [(far, b"0", b"%d" % far), (far + 1, b"1", b"%d" % (far + 1)), (far + 2, b"2", b"v")]
    log = home.restart(log)
    assert (log.end_offset, len(home.records(log))) == (far + 3, 3)


def test_the_old_segments_go_like_deleted_ones(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    held = log.read(0, 10**6)
    clean(home, log)
    assert "00000000000000000000.log.deleted" in home.files()
    assert held.records.size_bytes == len(held.records.read())
    assert unlink_due_segments(log, home.now_ms + 60_000) == 1
    assert home.files(".deleted") == []
    assert "00000000000000000000.log" in home.files()
    assert home.values(log) == [b"2"]


def test_a_truncation_meanwhile_makes_the_result_void(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    seal(home, log)
    result = cleaner.run_job(job_of(home, log))
    log.truncate_to(0, now_ms=home.now_ms)
    home.put(log, (b"a", b"other"))
    assert not cleaner.commit(log, result, home.now_ms)
    assert home.values(log) == [b"other"]
    assert home.files(".cleaned") == []


def test_a_truncation_is_noticed_even_if_the_log_grew_back_to_the_same_size(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    seal(home, log)
    result = cleaner.run_job(job_of(home, log))
    log.truncate_to(0, now_ms=home.now_ms)
    home.put(log, (b"a", b"3"), (b"b", b"4"))
    seal(home, log)
    assert not cleaner.commit(log, result, home.now_ms)
    assert home.values(log) == [b"3", b"4"]


def test_what_a_job_of_a_deleted_log_of_the_same_name_left_here_goes_before_segments_are_swapped(home) -> None:
    """In front of a swap that a crash cuts off, recovery would take it for a part of that one, and undo it."""
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    seal(home, log)
    home.put(log, (b"a", b"3"))
    seal(home, log)
    result = cleaner.run_job(job_of(home, log))
    for ending in (".log", ".index", ".timeindex"):
        Path(home.path(f"{1:020}{ending}.cleaned")).write_bytes(b"of another log")
    assert cleaner.commit(log, result, home.now_ms)
    assert home.files(".cleaned") == []


def test_retention_meanwhile_makes_the_result_void(home) -> None:
    log = compacted(home, cleanup_policy=("compact", "delete"))
    home.put(log, (b"a", b"1"))
    seal(home, log)
    result = cleaner.run_job(job_of(home, log))
    log.advance_log_start(1)
    assert log.delete_expired(home.now_ms, high_watermark=1) == 1
    assert not cleaner.commit(log, result, home.now_ms)
    assert home.values(log) == []


def test_appends_meanwhile_do_no_harm(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    seal(home, log)
    result = cleaner.run_job(job_of(home, log))
    home.put(log, (b"a", b"3"))
    seal(home, log)
    assert cleaner.commit(log, result, home.now_ms)
    assert home.values(log) == [b"2", b"3"]


def test_leftovers_of_a_run_that_was_given_up_are_not_taken_for_its_own(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"))
    seal(home, log)
    with open(home.path("00000000000000000009.log.cleaned"), "wb") as leftover:
        leftover.write(b"garbage")
    cleaner.run_job(job_of(home, log))
    assert home.files(".cleaned") == [
        "00000000000000000000.index.cleaned",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.timeindex.cleaned",
    ]


def test_a_damaged_segment_is_not_compacted(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    seal(home, log)
    with open(home.path("00000000000000000000.log"), "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    with pytest.raises(CorruptFileError, match="cannot be compacted"):
        cleaner.run_job(job_of(home, log))
    assert log.segments[0].size_bytes == len(home.content("00000000000000000000.log"))


def test_a_batch_larger_than_a_piece_is_read_whole(home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "READ_BYTES", 100)
    monkeypatch.setattr(cleaned_output, "WRITE_BYTES", 100)
    log = compacted(home)
    home.put(log, (b"a", b"1" * 1000), (b"b", b"2" * 1000))
    home.put(log, (b"a", b"3"))
    clean(home, log)
    assert home.values(log) == [b"2" * 1000, b"3"]


def test_a_job_runs_in_another_process(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"), (b"a", b"2"))
    home.send(log, 7, 0, b"x", keys=[b"b"], **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    seal(home, log)
    job = job_of(home, log)
    assert pickle.loads(pickle.dumps(job)) == job
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(cleaner.run_job, job).result(timeout=60)
    assert result.groups[0].old == (SegmentRange(0, log.segments[0].size_bytes),)
    assert cleaner.commit(log, result, home.now_ms)
    assert home.values(log) == [b"2"]


def test_the_reading_keeps_to_its_speed_limit(home, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"x" * 1000))
    seal(home, log)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    cleaner.run_job(job_of(home, log, bytes_per_second_max=1000.0))
    assert max(slept) == pytest.approx(2 * log.size_bytes / 1000, rel=0.1)  # it is read twice


def test_the_checkpoint_below_the_log_start_is_the_log_start(home) -> None:
    log = compacted(home)
    home.put(log, (b"a", b"1"))
    home.put(log, (b"a", b"2"))
    log.advance_log_start(1)
    seal(home, log)
    assert cleaner.look(log, 0, high_watermark=2, now_ms=home.now_ms).first_dirty_offset == 1


def test_what_is_compacted_reaches_to_the_next_segment(home) -> None:
    """So that recovery can tell a gap that compaction left from one that a crash left: by the files alone."""
    log = compacted(home)
    home.put(log, (b"kept", b"1"))
    home.put(log, (b"later", b"1"))  # the last of its segment, and a later one has its key
    log.roll(home.now_ms)
    home.put(log, (b"later", b"2"))
    home.send(log, 7, 0, b"aborted", keys=[b"a"], **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    clean(home, log, now_ms=home.now_ms)
    clean_again(home, log, now_ms=home.now_ms + 2 * DAY)
    headers = home.headers(log)
    assert headers[0].base_offset == 0
    for segment, following in itertools.pairwise(log.segments):
        (*_, (_, last)) = segment.walk(0)
        assert last.end_offset == following.base_offset
    log.abandon()
    again = home.open(config=log.config, recovery_point=None)
    assert (home.records(again), again.end_offset) == (home.records(log), log.end_offset)
    assert not home.report.problems


def test_a_tombstone_in_a_part_that_was_never_cleaned_takes_its_value_with_it(home) -> None:
    """The checkpoint is of another time: it calls clean what is not."""
    log = compacted(home, delete_retention_ms=HOUR)
    home.put(log, (b"gone", b"value"))
    home.put(log, (b"gone", None))
    first_dirty = log.end_offset
    home.put(log, (b"other", b"value"))
    result = clean(home, log, first_dirty=first_dirty)
    assert result.end_offset == 1, "the tombstone is looked at again"
    later = clean(home, log, first_dirty=result.end_offset, now_ms=home.now_ms + DAY)
    assert home.records(log) == [(1, b"gone", None), (2, b"other", b"value")]
    home.put(log, (b"other", b"newer"))
    clean(home, log, first_dirty=later.end_offset, now_ms=home.now_ms + 3 * DAY)
    assert home.records(log) == [(3, b"other", b"newer")]


def test_an_empty_segment_that_a_crash_left_at_the_beginning_is_merged_with_the_next(home) -> None:
    """Whatever the sizes: a log that cannot be compacted for an error of ours holds up all others."""
    log = compacted(home)
    home.put(log, (b"lost", b"1"))
    log.roll(home.now_ms)
    home.put(log, (b"a", b"1"), (b"b", b"1"))
    seal(home, log)
    log.abandon()
    Path(home.path("00000000000000000000.log")).write_bytes(b"")
    config = replace(log.config, segment_bytes=log.segments[1].size_bytes - 1)
    log = home.open(config=config, recovery_point=None)
    assert home.bases(log)[:2] == [0, 1]
    assert log.segments[0].size_bytes == 0
    home.put(log, (b"a", b"2"))
    clean(home, log)
    assert home.records(log) == [(2, b"b", b"1"), (3, b"a", b"2")]
