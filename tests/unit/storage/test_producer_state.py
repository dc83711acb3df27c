import random
from typing import Any

import pytest

from ottla.errors import ApiError, CorruptFileError, ErrorCode
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.records.codec import crc32c
from ottla.records.control import EndTransactionMarker, build_marker
from ottla.storage.producer_state import (
    BATCHES_REMEMBERED,
    SEQUENCE_MAX,
    EndedTransaction,
    ProducerEntry,
    ProducerStates,
    Verification,
    follows,
    read_snapshot,
    sequence_before,
)

NOW = 1_700_000_000_000
COMMIT = EndTransactionMarker(commit=True, coordinator_epoch=0)
ABORT = EndTransactionMarker(commit=False, coordinator_epoch=0)


def data(
    sequence: int, *, count: int = 1, offset: int = 0, epoch: int = 0, producer_id: int = 7, **options: Any
) -> BatchHeader:
    """The header of a producer's batch."""
    return batch.read_header(
        batch.build(
            None,
            [b"v"] * count,
            NOW,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **options,
        )
    )


def end(offset: int, *, epoch: int = 0, producer_id: int = 7, marker: EndTransactionMarker = COMMIT) -> BatchHeader:
    """The header of a marker."""
    return batch.read_header(build_marker(producer_id, epoch, marker, NOW, base_offset=offset))


def states(*headers: BatchHeader) -> ProducerStates:
    found = ProducerStates()
    for header in headers:
        found.record(header, header.max_timestamp)
    return found


def refusal(known: ProducerStates, header: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        known.check(header)
    return caught.value.code


# -- sequences ---------------------------------------------------------------------------------------------------------


def test_sequences_run_to_the_largest_int_and_begin_again_at_zero() -> None:
    assert follows(5, 6)
    assert follows(SEQUENCE_MAX, 0)
    assert follows(-1, 0)
    assert not follows(SEQUENCE_MAX, SEQUENCE_MAX)
    assert not follows(5, 5)
    assert not follows(5, 7)
    assert not follows(5, 0)
    assert sequence_before(1, 3) == SEQUENCE_MAX - 1
    assert sequence_before(3, 3) == 0


def test_an_unknown_producer_may_start_with_any_sequence() -> None:
    known = ProducerStates()
    assert known.check(data(0)) is None
    assert known.check(data(4711)) is None


def test_the_next_sequence_is_taken() -> None:
    assert states(data(0, count=3)).check(data(3)) is None


@pytest.mark.parametrize("sequence", [4, 5, 1000])
def test_a_gap_is_out_of_order(sequence: int) -> None:
    assert refusal(states(data(0, count=3)), data(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_across_the_wrap_is_taken_and_followed() -> None:
    known = states(data(SEQUENCE_MAX - 1, count=1))
    across = data(SEQUENCE_MAX, count=3, offset=1)
    assert across.last_sequence == 1
    assert known.check(across) is None
    known.record(across, NOW)
    assert known.check(data(2)) is None
    duplicate = known.check(data(SEQUENCE_MAX, count=3))
    assert duplicate is not None
    assert duplicate.first_offset == 1


def test_any_of_the_last_five_batches_is_recognised_when_it_comes_again() -> None:
    known = states(*(data(2 * number, count=2, offset=100 + 2 * number) for number in range(6)))
    for number in range(1, 6):
        duplicate = known.check(data(2 * number, count=2))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (100 + 2 * number, 101 + 2 * number)


def test_the_sixth_last_batch_is_forgotten_and_out_of_order() -> None:
    assert BATCHES_REMEMBERED == 5
    known = states(*(data(number, offset=number) for number in range(6)))
    assert refusal(known, data(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_an_earlier_one_is_no_duplicate() -> None:
    known = states(data(0, count=3))
    assert refusal(known, data(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(known, data(1, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_checking_changes_nothing() -> None:
    known = states(data(0))
    before = known.snapshot()
    known.check(data(1))
    known.check(data(0, epoch=1))
    known.check(data(3, producer_id=8))
    assert known.snapshot() == before


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_a_new_epoch_starts_with_sequence_zero() -> None:
    known = states(data(5, epoch=1))
    assert known.check(data(0, epoch=2)) is None
    assert refusal(known, data(6, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("behind", [1, 2, 9])
def test_an_old_epoch_is_refused(behind: int) -> None:
    known = states(data(0, epoch=9))
    before = known.snapshot()
    stale = 9 - behind
    for sequence in (0, 1, -1):
        assert refusal(known, data(sequence, epoch=stale)) is ErrorCode.INVALID_PRODUCER_EPOCH
    for asked in (
        lambda: known.check_marker(data(-1, epoch=stale), EndTransactionMarker(commit=True, coordinator_epoch=0)),
        lambda: begin(known, data(0, epoch=stale, is_transactional=True)),
    ):
        with pytest.raises(ApiError) as caught:
            asked()
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.snapshot() == before


@pytest.mark.parametrize("behind", [1, 2, 9])
def test_an_old_coordinator_is_refused(behind: int) -> None:
    known = states(data(0, epoch=1, is_transactional=True))
    header = data(-1, epoch=1, offset=1, is_transactional=True)
    known.record_marker(header, EndTransactionMarker(commit=True, coordinator_epoch=9))
    with pytest.raises(ApiError) as caught:
        known.check_marker(header, EndTransactionMarker(commit=True, coordinator_epoch=9 - behind))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    known.check_marker(header, EndTransactionMarker(commit=True, coordinator_epoch=9))


def test_a_batch_of_the_old_epoch_is_no_duplicate_once_the_new_one_began() -> None:
    known = states(data(0, epoch=0), data(0, epoch=1, offset=1))
    assert refusal(known, data(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    duplicate = known.check(data(0, epoch=1))
    assert duplicate is not None
    assert duplicate.first_offset == 1


def test_a_producer_known_by_its_marker_only_starts_at_zero() -> None:
    known = ProducerStates()
    known.record_marker(end(0), COMMIT)
    assert known.check(data(0)) is None
    assert refusal(known, data(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    known = states(data(0, is_transactional=True))
    assert refusal(known, data(1)) is ErrorCode.INVALID_TXN_STATE
    assert known.check(data(1, is_transactional=True)) is None


def test_after_the_marker_plain_batches_are_fine_again() -> None:
    known = states(data(0, is_transactional=True))
    known.record_marker(end(1), COMMIT)
    assert known.check(data(1)) is None


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    known = states(data(0, offset=10, is_transactional=True))
    assert known.first_unstable_offset == 10
    known.record_marker(end(11), COMMIT)
    assert known.first_unstable_offset == 10
    known.passed_high_watermark(11)
    assert known.first_unstable_offset == 10
    known.passed_high_watermark(12)
    assert known.first_unstable_offset is None


def test_the_first_of_several_transactions_makes_the_rest_unstable() -> None:
    known = states(
        data(0, offset=10, producer_id=1, is_transactional=True),
        data(0, offset=11, producer_id=2, is_transactional=True),
        data(1, offset=12, producer_id=1, is_transactional=True),
    )
    assert list(known.ongoing_transactions()) == [(10, 1), (11, 2)]
    known.record_marker(end(13, producer_id=1), COMMIT)
    known.passed_high_watermark(14)
    assert known.first_unstable_offset == 11
    known.record_marker(end(14, producer_id=2), COMMIT)
    known.passed_high_watermark(15)
    assert known.first_unstable_offset is None


def test_transactions_that_end_in_another_order_stay_unstable_from_the_first_one_on() -> None:
    known = states(
        data(0, offset=10, producer_id=1, is_transactional=True),
        data(0, offset=11, producer_id=2, is_transactional=True),
    )
    known.record_marker(end(12, producer_id=2), COMMIT)
    known.record_marker(end(13, producer_id=1), COMMIT)
    assert known.first_unstable_offset == 10
    known.passed_high_watermark(13)  # the later transaction is stable, the earlier one ends at 13
    assert known.first_unstable_offset == 10


def test_a_marker_tells_which_transaction_it_ended() -> None:
    known = states(data(0, count=3, offset=10, is_transactional=True))
    ended = known.record_marker(end(13, marker=ABORT), ABORT)
    assert ended == EndedTransaction(7, first_offset=10, last_offset=13, is_aborted=True)
    assert known.last_stable_offset_after(ended) == 14


def test_the_last_stable_offset_after_a_transaction_is_held_back_by_another_one() -> None:
    known = states(
        data(0, offset=10, producer_id=1, is_transactional=True),
        data(0, offset=11, producer_id=2, is_transactional=True),
    )
    ended = known.record_marker(end(12, producer_id=1, marker=ABORT), ABORT)
    assert ended is not None
    assert known.last_stable_offset_after(ended) == 11


def test_a_marker_without_data_ends_nothing() -> None:
    known = ProducerStates()
    assert known.record_marker(end(0, marker=ABORT), ABORT) is None
    assert known.first_unstable_offset is None


def test_a_marker_of_an_old_producer_epoch_is_fenced() -> None:
    known = states(data(0, epoch=2, is_transactional=True))
    with pytest.raises(ApiError) as caught:
        known.check_marker(end(1, epoch=1), COMMIT)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_with_a_newer_producer_epoch_fences_the_producer() -> None:
    known = states(data(0, epoch=2, is_transactional=True))
    marker = end(1, epoch=3, marker=ABORT)
    known.check_marker(marker, ABORT)
    assert known.record_marker(marker, ABORT) is not None
    assert refusal(known, data(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check(data(0, epoch=3)) is None


def test_a_marker_of_an_old_coordinator_is_fenced() -> None:
    known = states(data(0, is_transactional=True))
    known.record_marker(end(1), EndTransactionMarker(commit=True, coordinator_epoch=5))
    with pytest.raises(ApiError) as caught:
        known.check_marker(end(2), EndTransactionMarker(commit=True, coordinator_epoch=4))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    known.check_marker(end(2), EndTransactionMarker(commit=True, coordinator_epoch=5))


def test_the_sequence_goes_on_after_a_marker() -> None:
    known = states(data(0, count=2, is_transactional=True))
    known.record_marker(end(2), COMMIT)
    assert known.check(data(2, is_transactional=True)) is None
    assert refusal(known, data(3, is_transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- verification ------------------------------------------------------------------------------------------------------


def verified(known: ProducerStates, header: BatchHeader, verification: Verification | None) -> ErrorCode:
    """What is said to a batch just before it would be appended."""
    try:
        known.check_verified(header.producer_id, header.producer_epoch, header.base_sequence, verification)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def begin(known: ProducerStates, header: BatchHeader, *, is_v2: bool = False) -> Verification:
    return known.begin_verification(
        header.producer_id, header.producer_epoch, header.base_sequence, starts_at_zero=is_v2, now_ms=NOW
    )


def test_a_batch_opens_a_transaction_only_after_the_coordinator_was_asked() -> None:
    known = ProducerStates()
    first = data(0, offset=0, is_transactional=True)
    assert verified(known, first, None) == ErrorCode.INVALID_TXN_STATE
    asked = begin(known, first)
    assert verified(known, first, asked) == ErrorCode.NONE
    known.record(first, NOW)
    assert known.has_open_transaction(7, 0)
    assert verified(known, data(1, offset=1, is_transactional=True), None) == ErrorCode.NONE, (
        "what is open needs no question"
    )
    assert not known.has_open_transaction(7, 1)


def test_an_answer_that_a_marker_has_overtaken_does_not_count() -> None:
    known = ProducerStates()
    late = begin(known, data(0, offset=0, is_transactional=True))
    known.record_marker(end(0, marker=ABORT), ABORT)
    anew = begin(known, data(0, offset=1, is_transactional=True))
    assert verified(known, data(0, offset=1, is_transactional=True), late) == ErrorCode.INVALID_TXN_STATE
    assert verified(known, data(0, offset=1, is_transactional=True), anew) == ErrorCode.NONE


def test_a_later_batch_does_not_become_the_first_when_it_is_answered_sooner() -> None:
    known = ProducerStates()
    begin(known, data(0, offset=0, is_transactional=True))
    later = begin(known, data(1, offset=0, is_transactional=True))
    assert verified(known, data(1, offset=0, is_transactional=True), later) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(known, data(0, offset=0, is_transactional=True), later) == ErrorCode.NONE


def test_a_transaction_of_version_2_starts_at_sequence_zero() -> None:
    known = ProducerStates()
    ahead = data(5, offset=0, is_transactional=True)
    assert verified(known, ahead, begin(known, ahead, is_v2=True)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(known, ahead, begin(ProducerStates(), ahead)) == ErrorCode.INVALID_TXN_STATE, "another partition's"
    older = ProducerStates()
    assert verified(older, ahead, begin(older, ahead)) == ErrorCode.NONE


def test_a_question_that_nobody_came_back_with_is_forgotten() -> None:
    known = ProducerStates()
    first = data(0, offset=0, is_transactional=True)
    asked = begin(known, first)
    known.expire(NOW + 1000, 1000)
    assert verified(known, first, asked) == ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_a_version_2_transaction_has_a_later_epoch_than_what_it_ends() -> None:
    known = states(data(0, is_transactional=True))
    with pytest.raises(ApiError) as caught:
        known.check_raised_epoch(7, 0)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    known.check_raised_epoch(7, 1)
    known.record_marker(end(1, epoch=1), COMMIT)
    known.check_raised_epoch(7, 1)  # told again


def test_what_a_coordinator_writes_for_a_producer_has_no_sequence() -> None:
    known = states(data(-1, is_transactional=True))
    assert known.check(data(-1, offset=1, is_transactional=True)) is None
    assert known.check(data(-1, offset=1, count=3, is_transactional=True)) is None
    known.record_marker(end(4, epoch=1), COMMIT)
    assert refusal(known, data(-1, is_transactional=True)) == ErrorCode.INVALID_PRODUCER_EPOCH


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_a_silent_producer_is_forgotten_and_may_then_start_anywhere() -> None:
    known = states(data(0))
    assert known.expire(NOW + 999, expiration_ms=1000) == 0
    assert known.expire(NOW + 1000, expiration_ms=1000) == 1
    assert known.check(data(4711)) is None


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    known = states(data(0, is_transactional=True))
    assert known.expire(NOW + 10**9, expiration_ms=1000) == 0
    known.record_marker(end(1), COMMIT)
    assert known.expire(NOW + 10**9, expiration_ms=1000) == 1


# -- snapshots ---------------------------------------------------------------------------------------------------------

# Producer 4000, epoch 2, sequence 7 at offset 10, one record at T, coordinator epoch 0, a transaction from offset 10.
SNAPSHOT = bytes.fromhex(
    "0001" "37e0aa2e" "00000001"
    "0000000000000fa0" "0002" "00000007" "000000000000000a" "00000000" "0000018bcfe56800" "00000000" "000000000000000a"
)  # fmt: skip


def test_a_snapshot_has_kafkas_bytes() -> None:
    known = states(data(7, offset=10, epoch=2, producer_id=4000, is_transactional=True))
    known.producers[4000].coordinator_epoch = 0
    assert known.snapshot() == SNAPSHOT


def test_a_snapshot_of_kafka_is_understood() -> None:
    (producer,) = read_snapshot(SNAPSHOT, "path")
    assert isinstance(producer, ProducerEntry)
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (4000, 2, 7)
    assert (producer.coordinator_epoch, producer.last_timestamp) == (0, NOW)
    assert producer.transaction_first_offset == 10
    assert producer.batches[-1].first_offset == producer.batches[-1].last_offset == 10


def test_an_empty_snapshot_has_a_count_of_zero() -> None:
    empty = ProducerStates().snapshot()
    assert len(empty) == 10
    assert empty[-4:] == bytes(4)
    assert list(read_snapshot(empty, "path")) == []


def test_a_snapshot_keeps_the_last_batch_and_no_other() -> None:
    known = ProducerStates()
    known.load(states(data(0), data(1, count=2, offset=1)).snapshot(), 3, "path")
    duplicate = known.check(data(1, count=2))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (1, 2)
    assert known.check(data(3)) is None
    assert refusal(known, data(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_keeps_open_transactions_in_the_order_of_their_offsets() -> None:
    before = states(
        data(0, offset=5, producer_id=9, is_transactional=True),
        data(0, offset=6, producer_id=3, is_transactional=True),
    )
    before.record_marker(end(7, producer_id=9), COMMIT)
    before.record(data(1, offset=8, producer_id=9, is_transactional=True), NOW)
    after = ProducerStates()
    after.load(before.snapshot(), 9, "path")
    assert list(after.ongoing_transactions()) == [(6, 3), (8, 9)]
    assert after.first_unstable_offset == 6
    assert after.end_offset == 9


def test_a_snapshot_keeps_a_producer_that_is_known_by_its_marker_only() -> None:
    before = ProducerStates()
    before.record_marker(end(0, epoch=4), EndTransactionMarker(commit=True, coordinator_epoch=6))
    after = ProducerStates()
    after.load(before.snapshot(), 1, "path")
    producer = after.producers[7]
    assert (producer.epoch, producer.coordinator_epoch, producer.last_timestamp) == (4, 6, NOW)
    assert not producer.batches


@pytest.mark.parametrize(
    ("damaged", "complaint"),
    [
        (SNAPSHOT[:9], "too few"),
        (b"", "too few"),
        (b"\0\2" + SNAPSHOT[2:], "unknown version 2"),
        (SNAPSHOT[:-1], "checksum"),
        (SNAPSHOT[:20] + b"\xff" + SNAPSHOT[21:], "checksum"),
        (SNAPSHOT + b"\0", "checksum"),
        (bytes(100), "unknown version 0"),
    ],
)
def test_a_damaged_snapshot_is_reported(damaged: bytes, complaint: str) -> None:
    with pytest.raises(CorruptFileError, match=complaint):
        ProducerStates().load(damaged, 0, "path")


def test_a_snapshot_that_lies_about_its_count_is_reported() -> None:
    body = (2).to_bytes(4, "big") + SNAPSHOT[10:]
    lying = b"\0\1" + crc32c(body).to_bytes(4, "big") + body
    with pytest.raises(CorruptFileError, match="2 producers announced in 46 bytes"):
        ProducerStates().load(lying, 0, "path")


@pytest.mark.parametrize("seed", range(20))
def test_sequences_go_on_across_the_wrap_as_if_there_were_none(seed: int) -> None:
    """Beside a count that never wraps: what comes next, what came before and what does not fit are the same."""
    rng = random.Random(seed)
    known = ProducerStates()
    total = SEQUENCE_MAX + 1
    count_so_far = total - rng.randint(1, 8)
    sent: list[tuple[int, int]] = []  # (the first count, how many), of those that are remembered
    offset = 0
    for _ in range(40):
        count = rng.randint(1, 5)
        if sent:
            first, again = rng.choice(sent)
            duplicate = known.check(data(first % total, count=again))
            assert duplicate is not None, f"{again} from {first} came before"
            assert duplicate.first_sequence == first % total
            skipped = count_so_far + rng.randint(1, 3)
            assert refusal(known, data(skipped % total, count=count)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = data(count_so_far % total, count=count, offset=offset)
        assert known.check(following) is None
        known.record(following, NOW)
        sent = [*sent, (count_so_far, count)][-BATCHES_REMEMBERED:]
        offset, count_so_far = offset + count, count_so_far + count
        assert known.producers[7].last_sequence == (count_so_far - 1) % total
        if rng.random() < 0.2:  # a restart remembers the last batch alone
            known.load(known.snapshot(), offset, "snapshot")
            sent = sent[-1:]


def test_a_marker_that_compaction_emptied_ends_its_transaction_and_tells_its_epoch() -> None:
    known = states(data(0, is_transactional=True))
    known.record_emptied_marker(end(1, epoch=1))
    assert list(known.ongoing_transactions()) == []
    assert refusal(known, data(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
