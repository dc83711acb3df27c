"""A batch that was refused for now comes before those behind it, also where the log knows nothing of its producer."""

from __future__ import annotations

import pytest

from ottla.broker import refused_starts
from ottla.broker.refused_starts import REMEMBERED_MS, BatchStart, Place, RefusedStarts, start_of
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.wire import ZERO_UUID
from ottla.storage.producer_state import SEQUENCE_MAX, ProducerEntry, ProducerStates
from ottla.testing.raw_requests import one_batch

HERE = Place("t", ZERO_UUID, 0)
PRODUCER = 7


def start(sequence: int, *, producer_id: int = PRODUCER, epoch: int = 0) -> BatchStart:
    return BatchStart(producer_id, epoch, sequence)


@pytest.fixture
def starts() -> RefusedStarts:
    starts = RefusedStarts()
    starts.note(HERE, start(3), now_ms=0)
    return starts


def check(starts: RefusedStarts, batch: BatchStart | None, *, place: Place = HERE, now_ms: int = 1) -> None:
    starts.check(place, batch, ProducerStates(), now_ms)


def test_a_batch_behind_a_refused_one_is_out_of_order(starts: RefusedStarts) -> None:
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            check(starts, start(4))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_refused_batch_may_come_and_then_the_next_one(starts: RefusedStarts) -> None:
    check(starts, start(3))
    check(starts, start(4))


def test_of_several_refused_batches_the_first_one_counts(starts: RefusedStarts) -> None:
    starts.note(HERE, start(4), now_ms=0)
    with pytest.raises(ApiError):
        check(starts, start(4))
    starts.note(HERE, start(2), now_ms=0)
    with pytest.raises(ApiError):
        check(starts, start(3))


def test_sequences_begin_again_at_0() -> None:
    starts = RefusedStarts()
    starts.note(HERE, start(SEQUENCE_MAX), now_ms=0)
    starts.note(HERE, start(0), now_ms=0)
    for behind in (0, 1):
        with pytest.raises(ApiError):
            check(starts, start(behind))
    check(starts, start(SEQUENCE_MAX))
    check(starts, start(0))


def test_others_are_not_concerned(starts: RefusedStarts) -> None:
    check(starts, start(4, producer_id=8))
    check(starts, start(4, epoch=1))
    check(starts, start(4), place=Place("t", ZERO_UUID, 1))
    check(starts, None)


def test_where_a_batch_starts_stands_in_its_header() -> None:
    data = one_batch(b"v", producer_id=7, producer_epoch=2, base_sequence=5)
    assert start_of(data) == BatchStart(7, 2, 5)
    assert [start_of(other) for other in (one_batch(b"of no producer"), b"too short", None)] == [None, None, None]


def test_a_log_that_knows_the_producer_decides_by_itself(starts: RefusedStarts) -> None:
    known = ProducerStates()
    known.producers[PRODUCER] = ProducerEntry(PRODUCER)
    starts.check(HERE, start(4), known, 1)


def test_after_a_while_nothing_of_that_time_is_under_way(starts: RefusedStarts) -> None:
    check(starts, start(4), now_ms=REMEMBERED_MS + 1)


def test_a_connection_remembers_so_many(starts: RefusedStarts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_starts, "STARTS_MAX", 2)
    for producer_id in (8, 9):
        starts.note(HERE, start(0, producer_id=producer_id), now_ms=0)
    check(starts, start(4))
    with pytest.raises(ApiError):
        check(starts, start(1, producer_id=8))
