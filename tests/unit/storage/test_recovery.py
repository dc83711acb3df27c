"""Opening a log: what a clean stop, a crash and damage leave, and what is made of it."""

import os
from pathlib import Path

import pytest

from ottla.config import LogConfig
from ottla.disk import RealDisk, RealFile
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage.index import AbortedTransaction
from ottla.storage.log import Log
from ottla.storage.recovery import open_log
from ottla.testing.disk import Fate, SimulatedDisk

ONE = len(batch.build(None, [b"v"], 0))
TRANSACTIONAL = {"is_transactional": True}


def filled(home, count: int = 6, **settings):
    """A log of `count` one-record batches, two per segment, flushed."""
    log = home.open(**({"segment_bytes": 2 * ONE, "index_interval_bytes": 0} | settings))
    for number in range(count):
        home.produce(log, b"%d" % number, at=home.now_ms + number)
    log.flush(home.now_ms)
    return log


def damage(home, name: str, position: int) -> None:
    path = Path(home.path(name))
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def shorten(home, name: str, by: int) -> None:
    path = Path(home.path(name))
    path.write_bytes(path.read_bytes()[:-by])


# -- after a clean stop ------------------------------------------------------------------------------------------------


def test_a_clean_start_checks_no_batch(home) -> None:
    log = home.restart(filled(home))
    assert (home.report.recovered_segments, home.report.problems) == (0, [])
    assert home.values(log) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (log.end_offset, log.recovery_point) == (6, 6)


def test_a_directory_that_is_not_there_is_made_and_starts_where_the_log_starts(home) -> None:
    log = home.open(is_clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.end_offset, home.bases(log)) == (50, 50, [50])


def test_files_of_others_are_left_alone(home) -> None:
    log = filled(home)
    Path(home.path("notes.txt")).write_text("mine")
    home.restart(log)
    assert home.content("notes.txt") == b"mine"


@pytest.mark.parametrize("name", ["00000000000000000004.index", "00000000000000000004.timeindex"])
def test_a_clean_active_segment_without_an_index_is_recovered_all_the_same(home, name: str) -> None:
    log = filled(home)
    log.close()
    before = home.content(name)
    Path(home.path(name)).unlink()
    again = home.open(config=log.config, is_clean=True)
    assert home.report.recovered_segments == 1
    assert home.values(again) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    again.close()
    assert home.content(name) == before


# -- after a crash -----------------------------------------------------------------------------------------------------


def test_only_segments_from_the_recovery_point_on_are_checked(home) -> None:
    log = filled(home)
    log.abandon()
    again = home.open(config=log.config, recovery_point=4)
    assert (home.report.recovered_segments, home.report.recovered_bytes) == (1, 2 * ONE)
    again.abandon()
    home.open(config=log.config, recovery_point=3)
    assert home.report.recovered_segments == 2
    assert home.report.problems == []


def test_a_torn_batch_at_the_end_is_cut_and_the_rest_is_there(home) -> None:
    log = filled(home)
    log.abandon()
    shorten(home, "00000000000000000004.log", 1)
    again = home.open(config=log.config, recovery_point=4)
    assert home.values(again) == [b"0", b"1", b"2", b"3", b"4"]
    assert again.end_offset == again.recovery_point == 5
    assert home.report.dropped_bytes == ONE - 1
    assert home.produce(again, b"new").first_offset == 5


def test_segments_behind_a_bad_batch_are_dropped(home) -> None:
    log = filled(home)
    log.abandon()
    damage(home, "00000000000000000002.log", ONE + 65)
    again = home.open(config=log.config, recovery_point=2)
    assert home.values(again) == [b"0", b"1", b"2"]
    assert home.files(".log") == ["00000000000000000000.log", "00000000000000000002.log"]
    assert len(home.report.problems) == 2


def test_indexes_of_the_torn_part_are_made_anew(home) -> None:
    log = filled(home, 4)
    log.roll(home.now_ms)
    names = ["00000000000000000002.index", "00000000000000000002.timeindex"]
    sound = {name: home.content(name) for name in names}
    log.abandon()
    for name in names:
        Path(home.path(name)).write_bytes(b"nonsense")
    again = home.open(config=log.config, recovery_point=2)
    assert {name: home.content(name) for name in names} == sound
    assert again.offset_for_time(home.now_ms + 3) == (home.now_ms + 3, 3)


def test_an_empty_segment_of_a_crash_between_a_roll_and_its_first_batch_is_where_the_log_goes_on(home) -> None:
    log = filled(home, 2)
    log.roll(home.now_ms)
    log.flush(home.now_ms)
    again = home.restart_after_kill(log)
    assert (home.bases(again), again.end_offset, home.report.problems) == ([0, 2], 2, [])
    home.produce(again, b"2")
    assert home.values(again) == [b"0", b"1", b"2"]


def test_an_index_without_its_segment_is_dropped(home) -> None:
    log = filled(home)
    Path(home.path("00000000000000000099.index")).write_bytes(b"")
    log = home.restart_after_kill(log)
    assert "00000000000000000099.index" not in home.files()


def test_the_log_start_is_where_the_checkpoint_says(home) -> None:
    log = filled(home)
    log.advance_log_start(3)
    log = home.restart_after_kill(log)
    assert log.log_start_offset == 3
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 3)]


def test_a_checkpoint_of_the_past_does_not_take_the_start_below_the_first_segment(home) -> None:
    log = filled(home, retention_bytes=2 * ONE)
    log.delete_expired(home.now_ms, high_watermark=6)
    log.close()
    again = home.open(config=log.config, is_clean=True, log_start_offset=0)
    assert again.log_start_offset == 4


def test_a_start_behind_the_end_is_of_another_time_and_costs_no_record(home) -> None:
    """The checkpoint never names a start that was not flushed."""
    log = filled(home)
    log.advance_log_start(6)
    log.abandon()
    for name in home.files(".log")[1:]:
        Path(home.path(name)).unlink()
    again = home.open(config=log.config, recovery_point=0, log_start_offset=6)
    assert (again.log_start_offset, again.end_offset) == (0, 2)
    assert any("start cannot be 6" in problem for problem in home.report.problems)


def test_epochs_that_were_not_flushed_are_learned_from_the_batches(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    log.flush(home.now_ms)
    home.produce(log, b"b", leader_epoch=3)
    log = home.restart_after_kill(log)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (3, 1)]


def test_epochs_behind_the_end_of_a_cut_log_are_dropped(home) -> None:
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    home.produce(log, b"b", leader_epoch=3)
    log.flush(home.now_ms)
    log.abandon()
    shorten(home, "00000000000000000000.log", 1)
    again = home.open(config=log.config)
    assert [tuple(entry) for entry in again.epochs.entries] == [(1, 0)]
    assert home.content("leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_a_transaction_index_that_was_not_flushed_is_made_anew(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    log = home.restart_after_kill(log)
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(7, 0, 1, 2)]


# -- damage that no crash explains -------------------------------------------------------------------------------------


def test_a_lost_epoch_checkpoint_is_read_from_the_log_again(home) -> None:
    log = home.open(segment_bytes=2 * ONE)
    for epoch in (1, 1, 1, 4, 4):
        home.produce(log, b"v", leader_epoch=epoch)
    log.close()
    Path(home.path("leader-epoch-checkpoint")).write_text("nonsense")
    again = home.open(config=log.config, is_clean=True)
    assert [tuple(entry) for entry in again.epochs.entries] == [(1, 0), (4, 3)]
    assert home.content("leader-epoch-checkpoint") == b"0\n2\n1 0\n4 3\n"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_or_cut_index_of_a_sealed_segment_is_made_anew(home, suffix: str) -> None:
    log = filled(home)
    log.close()
    name = "00000000000000000002" + suffix
    before = home.content(name)
    for spoil in (lambda: Path(home.path(name)).unlink(), lambda: shorten(home, name, 3)):
        spoil()
        again = home.open(config=log.config, is_clean=True)
        assert home.content(name) == before
        assert len(home.report.problems) == 1
        again.close()


def test_a_damaged_transaction_index_of_a_sealed_segment_is_made_anew(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    log.roll(home.now_ms)
    home.produce(log, b"x")
    log.close()
    before = home.content("00000000000000000000.txnindex")
    shorten(home, "00000000000000000000.txnindex", 5)
    again = home.open(config=log.config, is_clean=True)
    assert again.aborted_transactions(0, 3) == [AbortedTransaction(7, 0, 1, 2)]
    assert home.content("00000000000000000000.txnindex") == before


def test_a_damaged_snapshot_gives_way_to_the_log_itself(home) -> None:
    log = home.open()
    home.send(log, 7, 0)
    home.send(log, 7, 1)
    log.close()
    damage(home, "00000000000000000002.snapshot", 20)
    again = home.open(config=log.config, is_clean=True)
    assert home.send(again, 7, 0).is_duplicate
    assert home.send(again, 7, 2).first_offset == 2


def test_a_damaged_sealed_segment_is_reported_and_refused_but_the_rest_is_served(home) -> None:
    log = filled(home)
    log.close()
    damage(home, "00000000000000000002.log", ONE + 9)  # the length of its second batch
    again = home.open(config=log.config, is_clean=True)
    assert any("refused to readers" in problem for problem in home.report.problems)
    assert again.read(2, 10**6).records.size_bytes == ONE
    with pytest.raises(CorruptFileError):
        again.read(3, 10**6)
    assert again.read(4, 10**6).records.size_bytes == 2 * ONE
    assert home.produce(again, b"new").first_offset == 6


# -- what compaction and deletion left behind --------------------------------------------------------------------------


def test_deleted_and_cleaned_files_are_dropped(home) -> None:
    log = filled(home)
    log.close()
    for name in ("00000000000000000000.log.cleaned", "00000000000000000099.index.deleted", "7.log.deleted"):
        Path(home.path(name)).write_bytes(b"leftover")
    home.open(config=log.config, is_clean=True)
    assert home.files(".cleaned") == []
    assert home.files(".deleted") == ["7.log.deleted"]  # not one of ours


def test_a_complete_swap_takes_the_place_of_what_it_was_made_of(home) -> None:
    log = filled(home)
    log.close()
    swap = home.batch(b"compacted", base_offset=0, offset_deltas=[3])  # of segments 0 and 2
    Path(home.path("00000000000000000000.log.swap")).write_bytes(swap)
    again = home.open(config=log.config, is_clean=True)
    assert home.bases(again) == [0, 4]
    assert home.values(again) == [b"compacted", b"4", b"5"]
    assert home.files(".swap") == []


def test_a_swap_behind_a_cleaned_file_is_incomplete_and_dropped(home) -> None:
    log = filled(home)
    log.close()
    Path(home.path("00000000000000000000.log.cleaned")).write_bytes(home.batch(b"x"))
    Path(home.path("00000000000000000002.log.swap")).write_bytes(home.batch(b"y", base_offset=2))
    again = home.open(config=log.config, is_clean=True)
    assert home.values(again) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert home.files(".swap") == home.files(".cleaned") == []


# -- one crash after the other -----------------------------------------------------------------------------------------


def opened(disk: SimulatedDisk) -> Log:
    config = LogConfig(segment_bytes=4 * ONE)
    return open_log(disk, "/data/orders-0", TopicPartition("orders", 0), config, now_ms=0, recovery_point=0)


def test_what_was_found_after_a_kill_survives_a_loss_of_power(home) -> None:
    """A recovery point may say only what recovery itself has made durable: a kill left all of it in the page cache."""
    disk = SimulatedDisk()
    log = opened(disk)
    for number in range(40):
        log.append(batch.build(None, [b"%d" % number], 0), leader_epoch=0, now_ms=0)
    disk = disk.kill()
    assert opened(disk).end_offset == 40
    assert home.values(opened(disk.crash(fates=(Fate.DROPPED,)))) == [b"%d" % number for number in range(40)]


def test_a_recovery_point_behind_the_end_is_of_another_time(home) -> None:
    log = filled(home)
    log.abandon()
    damage(home, home.files(".log")[0], ONE - 1)
    again = home.open(config=log.config, recovery_point=1000)
    assert (again.end_offset, home.values(again)) == (0, []), (
        "everything was checked, and the first batch does not hold"
    )
    assert any("never flushed up to 1000" in problem for problem in home.report.problems)


def test_a_log_of_many_segments_is_made_durable_without_holding_all_of_them_open(
    home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash that leaves a torn batch, or a lost recovery point, keeps the broker from starting."""
    home.disk = RealDisk(files_max=5)
    log = filled(home, 100)
    log.abandon()
    open_files = []
    monkeypatch.setattr(RealFile, "sync", lambda file: open_files.append(len(os.listdir("/dev/fd"))))
    before = len(os.listdir("/dev/fd"))
    assert home.open(config=log.config, recovery_point=0).end_offset == 100
    assert len(open_files) > 100
    assert max(open_files) <= before + 10


@pytest.mark.parametrize("gap", ["before", "behind"])
def test_a_hole_that_a_compaction_left_long_ago_costs_nothing_where_the_recovery_point_is_lost(home, gap: str) -> None:
    """The topic need not be a compacted one any more: records that are missing inside of segments tell."""
    log = filled(home, 8)
    log.abandon()
    shorten(home, "00000000000000000002.log", ONE)  # as an earlier release left it
    cleaned = home.path("00000000000000000000.log" if gap == "before" else "00000000000000000004.log")
    Path(cleaned).write_bytes(Path(cleaned).read_bytes()[ONE:])
    again = home.open(config=log.config, recovery_point=None)
    assert home.values(again) == [
        b"%d" % number for number in range(8) if number not in (3, 0 if gap == "before" else 4)
    ]
    assert again.end_offset == 8


def test_a_hole_that_no_compaction_explains_ends_the_log_also_where_the_recovery_point_is_lost(home) -> None:
    log = filled(home)
    log.abandon()
    shorten(home, "00000000000000000002.log", ONE)
    again = home.open(config=log.config, recovery_point=None)
    assert home.values(again) == [b"0", b"1", b"2"]
