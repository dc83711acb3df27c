"""The judge itself: what it must find, it finds."""

from uuid import UUID

import pytest

from ottla.records import batch
from ottla.testing.ledger import Ledger, PartitionKey, Stored, whole_batches

KEY = PartitionKey(UUID(int=1), 0)


def records(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    return bytes(batch.build(None, list(values), 0, base_offset=base_offset, producer_id=producer_id))


@pytest.fixture
def ledger() -> Ledger:
    """Two records are acknowledged, at offsets 0 and 1."""
    ledger = Ledger()
    ledger.acknowledge(KEY, 0, [b"p.0", b"p.1"], losses=0)
    return ledger


def test_a_promise_that_is_kept_is_fine(ledger: Ledger) -> None:
    assert ledger.read(KEY, 0, records(0, b"p.0", b"p.1"), 2, known=0, losses=0) == 2
    ledger.restarted({KEY: 2})
    ledger.check_whole(KEY, [Stored(0, b"p.0"), Stored(1, b"p.1")], 2)


def test_an_offset_that_is_given_twice_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="acknowledged"):
        ledger.acknowledge(KEY, 1, [b"q.0"], losses=0)


def test_another_record_than_the_acknowledged_one_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="was acknowledged, not"):
        ledger.read(KEY, 0, records(0, b"p.0", b"q.7"), 2, known=0, losses=0)


def test_a_record_that_changes_between_two_reads_is_found() -> None:
    ledger = Ledger()
    ledger.read(KEY, 0, records(0, b"p.0"), 1, known=0, losses=0)
    with pytest.raises(AssertionError, match="was read before"):
        ledger.read(KEY, 0, records(0, b"q.0"), 1, known=0, losses=0)


def test_a_record_above_the_high_watermark_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="not below 1"):
        ledger.read(KEY, 0, records(0, b"p.0", b"p.1"), 1, known=0, losses=0)


def test_a_high_watermark_that_falls_is_found(ledger: Ledger) -> None:
    ledger.read(KEY, 0, records(0, b"p.0", b"p.1"), 2, known=0, losses=0)
    with pytest.raises(AssertionError, match="fell from 2 to 1"):
        ledger.read(KEY, 0, b"", 1, known=ledger.high_watermark(KEY), losses=0)


def test_a_gap_between_batches_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="is not at 1"):
        ledger.read(KEY, 0, records(0, b"p.0") + records(2, b"p.2"), 3, known=0, losses=0)


def test_an_acknowledged_record_that_a_crash_takes_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="was acknowledged or read"):
        ledger.restarted({KEY: 1})


def test_a_power_loss_may_take_what_was_not_synced_and_nothing_else(ledger: Ledger) -> None:
    ledger.lose_power({KEY: 1})
    ledger.restarted({KEY: 1})
    ledger.check_whole(KEY, [Stored(0, b"p.0")], 1)
    ledger.lose_power({KEY: 1})
    with pytest.raises(AssertionError, match="synced up to 1"):
        ledger.restarted({KEY: 0})


def test_what_was_asked_before_a_power_loss_is_no_promise_after_it() -> None:
    ledger = Ledger()
    ledger.lose_power({})
    ledger.acknowledge(KEY, 0, [b"p.0"], losses=0)
    assert ledger.read(KEY, 0, records(0, b"q.0"), 1, known=0, losses=0) == 0
    ledger.restarted({KEY: 0})


@pytest.mark.parametrize(
    ("stored", "finding"),
    [
        ([Stored(0, b"p.0")], "acknowledged and not there"),
        ([Stored(0, b"p.0"), Stored(1, b"p.1"), Stored(3, b"p.3")], "offsets are missing"),
        ([Stored(0, b"p.0"), Stored(1, b"p.1"), Stored(2, b"p.1")], "twice"),
        ([Stored(0, b"p.0"), Stored(1, b"p.1"), Stored(2, b"i.5", 9), Stored(3, b"i.4", 9)], "too late"),
    ],
)
def test_what_is_wrong_in_the_end_is_found(ledger: Ledger, stored: list[Stored], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        ledger.check_whole(KEY, stored, len(stored))


def test_the_last_batch_of_an_answer_may_be_cut_and_a_damaged_one_may_not() -> None:
    data = records(0, b"p.0") + records(1, b"p.1")
    assert [header.base_offset for header, _ in whole_batches(data[:-3])] == [0]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(Exception, match="checksum"):
        list(whole_batches(bytes(damaged)))
