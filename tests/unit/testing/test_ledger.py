"""The judge itself: what it must find, it finds."""

import math
from contextlib import nullcontext
from uuid import UUID

import pytest

from ottla.testing.ledger import (
    EVERYTHING,
    Bounds,
    Ledger,
    Licence,
    PartitionKey,
    Stored,
    Written,
    build_batch,
    whole_batches,
)

KEY = PartitionKey(UUID(int=1), 0, "orders")
NOW_MS = 10_000


def written(name: str, key: str = "k", timestamp: int = 0, *, is_tombstone: bool = False) -> Written:
    return Written(name.encode(), key.encode(), timestamp, is_tombstone)


P0, P1, P2 = written("p.0"), written("p.1"), written("p.2")
Q0 = written("q.0")


def records(base_offset: int, *written: Written) -> bytes:
    return build_batch(written, base_offset=base_offset)


def stored(*records: Written) -> list[Stored]:
    return [Stored(offset, record) for offset, record in enumerate(records)]


@pytest.fixture
def ledger() -> Ledger:
    """Two records are acknowledged, at offsets 0 and 1."""
    ledger = Ledger()
    ledger.acknowledge(KEY, 0, [P0, P1], losses=0)
    return ledger


def test_a_promise_that_is_kept_is_fine(ledger: Ledger) -> None:
    assert ledger.read(KEY, 0, records(0, P0, P1), 2, known=0, losses=0) == 2
    ledger.restarted({KEY: Bounds(0, 2)})
    ledger.starts_at(KEY, 0, NOW_MS)
    ledger.check_whole(KEY, stored(P0, P1), Bounds(0, 2), NOW_MS)


def test_an_offset_that_is_given_twice_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="acknowledged"):
        ledger.acknowledge(KEY, 1, [Q0], losses=0)


def test_another_record_than_the_acknowledged_one_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="was acknowledged, not"):
        ledger.read(KEY, 0, records(0, P0, Q0), 2, known=0, losses=0)


@pytest.mark.parametrize("other", [Q0, written("p.0", "other"), written("p.0", timestamp=1)])
def test_a_record_that_changes_between_two_reads_is_found(other: Written) -> None:
    ledger = Ledger()
    ledger.read(KEY, 0, records(0, P0), 1, known=0, losses=0)
    with pytest.raises(AssertionError, match="was read before"):
        ledger.read(KEY, 0, records(0, other), 1, known=0, losses=0)


def test_a_record_that_was_sent_once_and_is_in_the_next_topic_of_that_name_is_found() -> None:
    ledger = Ledger()
    ledger.acknowledge(KEY, 0, [P0], losses=0, is_sent_once=True)
    ledger.forget(KEY.topic_id)
    with pytest.raises(AssertionError, match="of another topic"):
        ledger.read(KEY._replace(topic_id=UUID(int=2)), 0, records(0, P0), 1, known=0, losses=0)


def test_a_record_above_the_high_watermark_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="not below 1"):
        ledger.read(KEY, 0, records(0, P0, P1), 1, known=0, losses=0)


def test_a_high_watermark_that_falls_is_found(ledger: Ledger) -> None:
    ledger.read(KEY, 0, records(0, P0, P1), 2, known=0, losses=0)
    with pytest.raises(AssertionError, match="fell from 2 to 1"):
        ledger.read(KEY, 0, b"", 1, known=ledger.high_watermark(KEY), losses=0)


def test_a_gap_between_batches_is_found_where_nothing_compacts(ledger: Ledger) -> None:
    answer = records(0, P0) + records(2, P2)
    with pytest.raises(AssertionError, match="is not at 1"):
        ledger.read(KEY, 0, answer, 3, known=0, losses=0)
    ledger.licences.grant("orders", Licence(compacts=True))
    assert ledger.read(KEY, 0, answer, 3, known=0, losses=0) == 3


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_an_acknowledged_record_that_a_crash_takes_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="was acknowledged or read"):
        ledger.restarted({KEY: Bounds(0, 1)})


def test_a_high_watermark_that_a_crash_takes_back_is_found() -> None:
    ledger = Ledger()
    ledger.told_high_watermark(KEY, 5, known=0, losses=0)
    with pytest.raises(AssertionError, match="ends at 4"):
        ledger.restarted({KEY: Bounds(0, 4)})


def test_a_power_loss_may_take_what_was_not_synced_and_nothing_else(ledger: Ledger) -> None:
    ledger.lose_power({KEY: 1})
    ledger.restarted({KEY: Bounds(0, 1)})
    ledger.check_whole(KEY, stored(P0), Bounds(0, 1), NOW_MS)
    ledger.lose_power({KEY: 1})
    with pytest.raises(AssertionError, match="synced up to 1"):
        ledger.restarted({KEY: Bounds(0, 0)})


def test_promises_of_a_partition_that_is_offline_wait_for_it(ledger: Ledger) -> None:
    ledger.restarted({})
    with pytest.raises(AssertionError, match="was acknowledged or read"):
        ledger.restarted({KEY: Bounds(0, 1)})


def test_a_power_loss_counts_for_a_partition_that_comes_back_later(ledger: Ledger) -> None:
    ledger.lose_power({KEY: 1})
    ledger.restarted({})
    ledger.restarted({KEY: Bounds(0, 1)})
    ledger.check_whole(KEY, stored(P0), Bounds(0, 1), NOW_MS)


def test_what_was_asked_before_a_power_loss_is_no_promise_after_it() -> None:
    ledger = Ledger()
    ledger.lose_power({})
    ledger.acknowledge(KEY, 0, [P0], losses=0)
    assert ledger.read(KEY, 0, records(0, Q0), 1, known=0, losses=0) == 0
    ledger.restarted({KEY: Bounds(0, 0)})


# -- what may go -------------------------------------------------------------------------------------------------------


def test_a_log_that_starts_behind_what_was_asked_for_is_found(ledger: Ledger) -> None:
    ledger.licences.grant(KEY, Licence(below=1))
    ledger.starts_at(KEY, 1, NOW_MS)
    with pytest.raises(AssertionError, match="was asked to go to 1 at most"):
        ledger.starts_at(KEY, 2, NOW_MS)


def test_a_record_that_is_deleted_before_its_time_is_found() -> None:
    ledger = Ledger()
    ledger.licences.grant(KEY.topic_id, Licence(retention_ms=1_000))
    ledger.acknowledge(KEY, 0, [written("p.0", timestamp=8_999), written("p.1", timestamp=9_001)], losses=0)
    ledger.starts_at(KEY, 1, NOW_MS)
    with pytest.raises(AssertionError, match=r"\[1\] are not 1000 ms old"):
        ledger.starts_at(KEY, 2, NOW_MS)


def test_retention_that_leaves_less_than_was_asked_for_is_found(ledger: Ledger) -> None:
    ledger.licences.grant(EVERYTHING, Licence(retention_bytes=500))
    ledger.starts_at(KEY, 1, NOW_MS, size_bytes=500)
    with pytest.raises(AssertionError, match="kept 499 of 500 bytes"):
        ledger.starts_at(KEY, 2, NOW_MS, size_bytes=499)


def test_a_licence_counts_while_it_is_asked_for_and_for_good_if_no_answer_comes(ledger: Ledger) -> None:
    licences, anything = ledger.licences, Licence(below=math.inf)
    with licences.asking(("orders", 0), anything):
        assert licences.of(KEY) == anything
    assert licences.of(KEY) == Licence()
    with pytest.raises(ConnectionError), licences.asking(("orders", 0), anything):
        raise ConnectionError
    assert licences.of(KEY) == anything
    assert licences.of(KEY._replace(partition=1)) == Licence()


def test_compaction_keeps_the_newest_of_each_key() -> None:
    ledger = Ledger()
    ledger.licences.grant("orders", Licence(compacts=True))
    ledger.acknowledge(KEY, 0, [written("p.0", "a"), written("p.1", "b"), written("p.2", "a")], losses=0)
    kept = [Stored(1, written("p.1", "b")), Stored(2, written("p.2", "a"))]
    ledger.check_whole(KEY, kept, Bounds(0, 3), NOW_MS)
    with pytest.raises(AssertionError, match="the newest of its key is gone"):
        ledger.check_whole(KEY, kept[1:], Bounds(0, 3), NOW_MS)


@pytest.mark.parametrize(("timestamp", "may_go"), [(9_000, True), (9_001, False)])
def test_a_tombstone_may_go_when_it_is_old(timestamp: int, *, may_go: bool) -> None:
    ledger = Ledger()
    ledger.licences.grant("orders", Licence(compacts=True, tombstones_ms=1_000))
    ledger.acknowledge(KEY, 0, [written("p.0", timestamp=timestamp, is_tombstone=True)], losses=0)
    with nullcontext() if may_go else pytest.raises(AssertionError, match="newest of its key"):
        ledger.check_whole(KEY, [], Bounds(0, 1), NOW_MS)


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("found", "is_right"), [(0, True), (1, False), (-1, False)])
def test_a_record_that_is_not_found_by_its_time_is_noticed(found: int, *, is_right: bool) -> None:
    ledger = Ledger()
    known = {0: written("p.0", timestamp=7), 1: written("p.1", timestamp=7)}
    with nullcontext() if is_right else pytest.raises(AssertionError, match="is as late"):
        ledger.found_by_time(KEY, 7, found, known)


@pytest.mark.parametrize(
    ("there", "finding"),
    [
        ([P0], "acknowledged and not there"),
        ([P0, P1, P1], "twice"),
        ([P0, P1, written("i.5"), written("i.4")], "too late"),
    ],
)
def test_what_is_wrong_in_the_end_is_found(ledger: Ledger, there: list[Written], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        ledger.check_whole(KEY, stored(*there), Bounds(0, max(2, len(there))), NOW_MS)


def test_offsets_that_are_missing_in_the_end_are_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="offsets are missing"):
        ledger.check_whole(KEY, [*stored(P0, P1), Stored(3, Q0)], Bounds(0, 4), NOW_MS)


def test_the_last_batch_of_an_answer_may_be_cut_and_a_damaged_one_may_not() -> None:
    data = records(0, P0) + records(1, P1)
    assert [header.base_offset for header, _ in whole_batches(data[:-3])] == [0]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(Exception, match="checksum"):
        list(whole_batches(bytes(damaged)))


def test_a_tombstone_has_its_name_in_a_header() -> None:
    tombstone = written("p.0", is_tombstone=True)
    ((_, found),) = whole_batches(records(0, tombstone))
    assert found == [Stored(0, tombstone)]
