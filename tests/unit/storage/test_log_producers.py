"""Idempotent producers and transactions, as a log keeps them through restarts, crashes and truncations."""

import errno
import os
from typing import Any

import pytest

from ottla.config import LogConfig
from ottla.errors import ApiError, ErrorCode, RecordsError, StorageError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage.index import AbortedTransaction
from ottla.storage.producer_state import SEQUENCE_MAX
from ottla.storage.recovery import open_log
from ottla.testing.disk import SimulatedDisk

TRANSACTIONAL = {"is_transactional": True}
COMMIT, MARKER = b"\0\0\0\1", b"\0\0\0\0\0\0"  # key and value of a marker
RESTARTS = ["restart", "restart_after_kill"]


def refusal(home, log, *arguments, **options) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(ApiError) as caught:
        home.send(log, *arguments, **options)
    assert log.end_offset == before
    return caught.value.code


# -- idempotence -------------------------------------------------------------------------------------------------------


def test_a_duplicate_answers_its_first_offsets_and_writes_nothing(home) -> None:
    log = home.open()
    home.produce(log, b"other")
    first = home.send(log, 7, 0, b"a", b"b")
    home.send(log, 7, 2, b"c")
    again = home.send(log, 7, 0, b"a", b"b")
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (1, 2)
    assert again.is_duplicate
    assert not first.is_duplicate
    assert (first.append_time_ms, again.append_time_ms) == (-1, home.now_ms)
    assert home.values(log) == [b"other", b"a", b"b", b"c"]


def test_a_duplicate_under_log_append_time_answers_the_time_of_the_first(home) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    home.send(log, 7, 0, now_ms=home.now_ms)
    assert home.send(log, 7, 0, now_ms=home.now_ms + 99).append_time_ms == home.now_ms


def test_a_gap_is_refused(home) -> None:
    log = home.open()
    home.send(log, 7, 0)
    assert refusal(home, log, 7, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    home.send(log, 7, 1)


def test_sequences_wrap_in_the_log(home) -> None:
    log = home.open()
    home.send(log, 7, SEQUENCE_MAX - 1, b"a", b"b", b"c")  # an unknown producer may start anywhere
    assert home.send(log, 7, 1, b"d").first_offset == 3
    assert home.send(log, 7, SEQUENCE_MAX - 1, b"a", b"b", b"c").first_offset == 0


def test_producers_do_not_disturb_each_other(home) -> None:
    log = home.open()
    home.send(log, 7, 0)
    home.send(log, 8, 500)
    home.produce(log, b"nobody's")
    home.send(log, 7, 1)
    home.send(log, 8, 501)
    assert log.end_offset == 5


@pytest.mark.parametrize("how", RESTARTS)
def test_after_a_restart_the_sequence_goes_on(home, how: str) -> None:
    log = home.open()
    for sequence in range(3):
        home.send(log, 7, sequence)
    log = getattr(home, how)(log)
    assert home.send(log, 7, 2).first_offset == 2
    assert refusal(home, log, 7, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert home.send(log, 7, 3).first_offset == 3


def test_after_a_clean_restart_only_the_last_batch_is_remembered_as_in_kafka(home) -> None:
    log = home.open()
    for sequence in range(3):
        home.send(log, 7, sequence)
    log = home.restart(log)
    assert home.send(log, 7, 2).is_duplicate
    assert refusal(home, log, 7, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("how", RESTARTS)
def test_a_producer_in_an_older_segment_is_known_after_a_restart(home, how: str) -> None:
    log = home.open()
    home.send(log, 7, 0)
    log.roll(home.now_ms)
    home.produce(log, b"x")
    log.roll(home.now_ms)
    home.produce(log, b"y")
    log.flush(home.now_ms)
    log = getattr(home, how)(log)
    assert home.send(log, 7, 0).is_duplicate
    assert refusal(home, log, 7, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_takes_the_producers_back_to_where_the_log_ends(home) -> None:
    log = home.open()
    for sequence in range(4):
        home.send(log, 7, sequence)
    home.send(log, 8, 0)
    log.truncate_to(2, now_ms=home.now_ms)
    assert refusal(home, log, 7, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert home.send(log, 7, 2).first_offset == 2
    assert home.send(log, 8, 9).first_offset == 3  # unknown again


def test_truncation_into_an_earlier_segment_starts_from_its_snapshot(home) -> None:
    log = home.open()
    home.send(log, 7, 0)
    log.roll(home.now_ms)
    home.send(log, 7, 1)
    home.send(log, 7, 2)
    log.roll(home.now_ms)
    home.send(log, 7, 3)
    log.truncate_to(2, now_ms=home.now_ms)
    assert home.send(log, 7, 1).is_duplicate
    assert home.send(log, 7, 2).first_offset == 2
    assert home.files(".snapshot") == ["00000000000000000001.snapshot"]


def test_a_silent_producer_is_forgotten_after_a_day(home) -> None:
    log = home.open()
    home.send(log, 7, 0)
    assert log.expire_producers(home.now_ms + 86_400_000 - 1) == 0
    assert log.expire_producers(home.now_ms + 86_400_000) == 1
    home.send(log, 7, 77)


def test_snapshots_of_earlier_lives_do_not_pile_up(home) -> None:
    log = home.open()
    for _ in range(4):
        home.send(log, 7, log.end_offset)
        log = home.restart(log)
    assert home.files(".snapshot") == ["00000000000000000004.snapshot"]


# -- transactions ------------------------------------------------------------------------------------------------------


def test_the_last_stable_offset_stops_at_an_open_transaction(home) -> None:
    log = home.open()
    home.produce(log, b"plain")
    assert log.last_stable_offset(1) == 1
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.produce(log, b"plain")
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(0) == 0  # never past the high watermark


def test_a_transaction_is_unstable_until_the_high_watermark_passes_its_marker(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    assert home.end(log, 7, commit=True).first_offset == 1
    log.producers.passed_high_watermark(1)
    assert log.last_stable_offset(1) == 0
    log.producers.passed_high_watermark(2)
    assert log.last_stable_offset(2) == 2


def test_the_last_stable_offset_is_never_below_the_log_start(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.produce(log, b"a")
    log.advance_log_start(2)
    assert log.last_stable_offset(2) == 2


# No key, too short a key, a version that was never there; the same of the value.
UNREADABLE_MARKERS = [
    (None, None),
    (b"\0", b""),
    (b"\xff\xff\0\1", MARKER),
    (COMMIT, b"\0"),
    (COMMIT, b"\xff\xff\0\0\0\0"),
]


def unreadable_marker(key: bytes | None, value: bytes | None, base_offset: int) -> bytes:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    return bytes(batch.build([key], [value], 0, base_offset=base_offset, **options))


@pytest.mark.parametrize(("key", "value"), UNREADABLE_MARKERS)
def test_a_follower_does_not_write_a_marker_that_nobody_can_read(home, key: bytes | None, value: bytes | None) -> None:
    log = home.open()
    data = home.batch(b"a") + unreadable_marker(key, value, 1) + home.batch(b"b", base_offset=2)
    with pytest.raises(RecordsError):
        log.append_as_follower(data, now_ms=home.now_ms)
    assert home.values(log) == [b"a"]
    assert log.append_as_follower(home.batch(b"b", base_offset=1), now_ms=home.now_ms) == 2


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize(("key", "value"), UNREADABLE_MARKERS)
def test_a_log_with_a_marker_that_nobody_can_read_is_opened(
    home, caplog, key: bytes | None, value: bytes | None, is_flushed: bool
) -> None:
    """An earlier version wrote it. The transaction stays open until its coordinator ends it again."""
    log = home.open()
    home.send(log, 7, 0, b"a", **TRANSACTIONAL)
    log.active.write(unreadable_marker(key, value, 1))
    log.end_offset = 2
    home.produce(log, b"b")
    if is_flushed:
        log.flush()
    log = home.restart_after_kill(log)
    assert log.end_offset == 3
    assert log.producers.first_unstable_offset == 0
    assert "the marker of producer 7 at offset 1 is passed over" in caplog.text
    home.end(log, 7, commit=True)
    log.producers.passed_high_watermark(log.end_offset)
    assert log.producers.first_unstable_offset is None


def test_a_marker_is_a_control_batch_of_its_producer(home) -> None:
    log = home.open()
    home.send(log, 7, 0, epoch=3, **TRANSACTIONAL)
    home.end(log, 7, epoch=3, commit=True)
    header = home.headers(log)[-1]
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 3, -1, 1)


def test_a_committed_transaction_leaves_no_entry(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.end(log, 7, commit=True)
    assert log.aborted_transactions(0, 10) == []


def test_an_aborted_transaction_is_listed_with_the_last_stable_offset_after_it(home) -> None:
    log = home.open()
    home.send(log, 7, 0, b"a", b"b", **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    assert log.aborted_transactions(0, 3) == [AbortedTransaction(7, 0, 2, last_stable_offset=3)]


def test_an_abort_without_data_leaves_no_entry(home) -> None:
    log = home.open()
    home.end(log, 7, commit=False)
    assert log.aborted_transactions(0, 1) == []
    assert log.last_stable_offset(1) == 1


def test_interleaved_transactions_are_kept_apart(home) -> None:
    log = home.open()
    home.send(log, 1, 0, **TRANSACTIONAL)  # 0
    home.send(log, 2, 0, **TRANSACTIONAL)  # 1
    home.send(log, 3, 0, **TRANSACTIONAL)  # 2
    home.send(log, 1, 1, **TRANSACTIONAL)  # 3
    home.end(log, 2, commit=False)  # 4
    home.end(log, 1, commit=True)  # 5
    home.end(log, 3, commit=False)  # 6
    assert log.aborted_transactions(0, 7) == [
        AbortedTransaction(2, 1, 4, last_stable_offset=0),
        AbortedTransaction(3, 2, 6, last_stable_offset=7),
    ]


def test_only_the_aborted_transactions_that_a_reader_can_meet_are_listed(home) -> None:
    log = home.open()
    for number in range(3):  # [0, 1], [2, 3], [4, 5]: data and marker
        home.send(log, 7, number, **TRANSACTIONAL)
        home.end(log, 7, commit=False)
    first, second, third = log.aborted_transactions(0, 6)
    assert log.aborted_transactions(0, 1) == [first]
    assert log.aborted_transactions(1, 2) == [first]  # its marker stands at 1
    assert log.aborted_transactions(2, 4) == [second]  # the first ended before
    assert log.aborted_transactions(2, 5) == [second, third]
    assert log.aborted_transactions(6, 9) == []


def test_aborted_transactions_are_found_across_segments(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    log.roll(home.now_ms)
    home.send(log, 7, 1, **TRANSACTIONAL)
    log.roll(home.now_ms)
    home.end(log, 7, commit=False)
    assert log.aborted_transactions(0, 1) == [AbortedTransaction(7, 0, 2, 3)]
    assert log.aborted_transactions(2, 3) == [AbortedTransaction(7, 0, 2, 3)]
    log.roll(home.now_ms)
    assert home.files(".txnindex") == ["00000000000000000002.txnindex"]


def test_a_long_transaction_behind_short_ones_is_still_found(home) -> None:
    """An entry may end the search only if its last stable offset says that nothing earlier is missing."""
    log = home.open()
    home.send(log, 1, 0, **TRANSACTIONAL)  # 0, open for long
    home.send(log, 2, 0, **TRANSACTIONAL)  # 1
    home.end(log, 2, commit=False)  # 2
    home.send(log, 2, 1, **TRANSACTIONAL)  # 3
    home.end(log, 2, commit=False)  # 4
    home.end(log, 1, commit=False)  # 5
    assert [entry.producer_id for entry in log.aborted_transactions(0, 2)] == [2, 1]


@pytest.mark.parametrize("how", RESTARTS)
def test_open_and_aborted_transactions_survive_a_restart(home, how: str) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.end(log, 7, commit=False, coordinator_epoch=4)
    home.send(log, 8, 0, **TRANSACTIONAL)
    before = log.aborted_transactions(0, 3)
    log = getattr(home, how)(log)
    assert log.aborted_transactions(0, 3) == before == [AbortedTransaction(7, 0, 1, 2)]
    log.producers.passed_high_watermark(3)
    assert log.last_stable_offset(3) == 2
    with pytest.raises(ApiError) as caught:
        home.end(log, 7, commit=True, coordinator_epoch=3)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    home.end(log, 8, commit=True)
    log.producers.passed_high_watermark(4)
    assert log.last_stable_offset(4) == 4


def test_truncating_the_marker_opens_the_transaction_again(home) -> None:
    log = home.open()
    home.send(log, 7, 0, **TRANSACTIONAL)
    home.end(log, 7, commit=False)
    log.producers.passed_high_watermark(2)
    log.truncate_to(1, now_ms=home.now_ms)
    assert log.aborted_transactions(0, 2) == []
    assert log.last_stable_offset(1) == 0


def test_truncating_the_data_forgets_the_transaction(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    home.send(log, 7, 0, **TRANSACTIONAL)
    log.truncate_to(1, now_ms=home.now_ms)
    assert log.last_stable_offset(1) == 1


def test_a_refused_marker_writes_nothing(home) -> None:
    log = home.open()
    home.send(log, 7, 0, epoch=2, **TRANSACTIONAL)
    with pytest.raises(ApiError) as caught:
        home.end(log, 7, epoch=1, commit=True)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 1


def test_a_follower_knows_of_transactions_what_its_leader_knows(home, tmp_path) -> None:
    leader = home.open()
    home.send(leader, 7, 0, **TRANSACTIONAL)
    home.end(leader, 7, commit=False)
    home.send(leader, 8, 0, **TRANSACTIONAL)
    sent = leader.read(0, 10**6).records.read()
    home.directory = str(tmp_path / "follower")
    follower = home.open()
    follower.append_as_follower(sent, now_ms=home.now_ms)
    assert follower.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3)
    assert follower.last_stable_offset(3) == leader.last_stable_offset(3)
    assert follower.producers.snapshot() == leader.producers.snapshot()


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_a_roll_where_a_clean_stop_left_its_snapshot_waits_for_no_disk(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append rolls on the event loop. Producers that expired meanwhile are no reason to replace the snapshot."""
    log = home.open()
    home.send(log, 7, 0)
    log = home.restart(log)
    assert log.expire_producers(home.now_ms + 10**9) == 1
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log.roll(home.now_ms)
    assert synced == []
    assert log.snapshots.offsets() == [1]


def test_a_snapshot_that_could_not_be_written_whole_does_not_stand_for_the_whole() -> None:
    disk, name = SimulatedDisk(), TopicPartition("t", 0)
    log = open_log(disk, "/t-0", name, LogConfig(), now_ms=0)
    data = batch.build(None, [b"v"], 0, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(data, leader_epoch=0, now_ms=0)
    disk.fail("*.snapshot", "write", errno.ENOSPC, written=0.5, times=1)
    with pytest.raises(StorageError):
        log.roll(0)
    log.roll(0)
    log.flush()
    log.abandon()
    again = open_log(disk, "/t-0", name, LogConfig(), now_ms=0, recovery_point=1)
    assert list(again.producers.producers) == [7]
    assert again.snapshots.offsets() == [1]
