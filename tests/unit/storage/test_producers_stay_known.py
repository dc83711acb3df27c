"""What a log knows of its producers after compaction and a crash, and which verification holds for which epoch."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.storage import cleaner
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates

PRODUCER = 7


def cleaned(home: Any, log: Log) -> None:
    log.roll(home.now_ms)
    log.flush(home.now_ms)
    log.producers.passed_high_watermark(log.end_offset)
    job = cleaner.plan(log, 0, high_watermark=log.end_offset, now_ms=home.now_ms)
    assert job is not None
    assert cleaner.commit(log, cleaner.run_job(job), home.now_ms)


def without_snapshots(home: Any, log: Log) -> Log:
    """The process died and no snapshot can be read: all that is known of producers is what stands in the log."""
    log.abandon()
    for name in home.files(".snapshot"):
        os.unlink(home.path(name))
    return home.open(config=log.config)


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_producer_whose_records_compaction_took_is_known_by_its_last_number(home: Any, is_aborted: bool) -> None:
    log = home.open(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    for sequence in range(3):
        home.send(log, PRODUCER, sequence, keys=[b"k"], is_transactional=True)
    home.end(log, PRODUCER, commit=not is_aborted)
    home.put(log, (b"k", b"later"))  # takes away what was committed, too
    cleaned(home, log)
    assert home.values(log) == [b"later"]
    log = without_snapshots(home, log)
    again = home.send(log, PRODUCER, 2, keys=[b"k"], is_transactional=True)
    assert again.is_duplicate
    assert not home.send(log, PRODUCER, 3, keys=[b"k"], is_transactional=True).is_duplicate


def verified(states: ProducerStates, epoch: int, sequence: int) -> Any:
    return states.begin_verification(PRODUCER, epoch, sequence, starts_at_zero=False, now_ms=0)


def test_a_later_epoch_is_verified_by_itself() -> None:
    """An attempt of the epoch before, whose answer never came, says nothing about the numbers of the next one."""
    states = ProducerStates()
    earlier = verified(states, 0, 3)
    later = verified(states, 1, 9)
    states.check_verified(PRODUCER, 1, 9, later)
    with pytest.raises(ApiError) as caught:
        states.check_verified(PRODUCER, 0, 3, earlier)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def test_an_earlier_epoch_does_not_take_the_place_of_a_later_one() -> None:
    states = ProducerStates()
    later = verified(states, 1, 9)
    verified(states, 0, 0)
    states.check_verified(PRODUCER, 1, 9, later)


def test_of_several_attempts_in_an_epoch_the_lowest_number_comes_first() -> None:
    states = ProducerStates()
    first, second = verified(states, 1, 9), verified(states, 1, 4)
    assert first is second
    states.check_verified(PRODUCER, 1, 4, second)
    with pytest.raises(ApiError) as caught:
        states.check_verified(PRODUCER, 1, 9, first)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
