"""Numbers without gaps, and how they are found again when some are lost."""

from __future__ import annotations

import pytest

from ottla.client.producer.batch import Numbers, ProducerBatch
from ottla.client.producer.sequences import EPOCH_MAX, Identity, Remedy, Sequences
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(count: int = 1, partition: TopicPartition = PLACE) -> ProducerBatch:
    made = ProducerBatch(partition, 1000, 1000, 0.0, 120.0)
    for _ in range(count):
        made.append(None, b"v", 0, (), None)
    return made


def known(*, is_transactional: bool = False) -> Sequences:
    """Of a producer whose first batch is acknowledged, so that several may be under way."""
    sequences = Sequences(is_transactional=is_transactional)
    sequences.start(Identity(7, 0))
    first = batch()
    sequences.sent(first)
    sequences.returned(first)
    sequences.acked(first, 0)
    return sequences


def send(sequences: Sequences, *batches: ProducerBatch) -> None:
    for each in batches:
        assert sequences.may_send(each)
        sequences.sent(each)


def test_without_an_identity_nothing_goes():
    assert not Sequences().may_send(batch())


def test_the_first_batch_of_a_partition_goes_alone():
    sequences = Sequences()
    sequences.start(Identity(7, 0))
    first = batch()
    send(sequences, first)
    assert first.numbers == Numbers(7, 0, 0)
    assert not sequences.may_send(batch())
    assert sequences.may_send(batch(partition=OTHER))
    sequences.returned(first)
    sequences.acked(first, 0)
    send(sequences, *(batch() for _ in range(5)))
    assert not sequences.may_send(batch())


def test_numbers_count_records_and_begin_again_after_the_last():
    sequences = known()
    sequences._partitions[PLACE].next_sequence = 2**31 - 2
    two, after = batch(3), batch()
    send(sequences, two, after)
    assert (two.numbers.base_sequence, after.numbers.base_sequence) == (2**31 - 2, 1)


def test_what_comes_back_goes_first_and_new_ones_wait():
    sequences = known()
    first, second, third = batch(), batch(), batch()
    send(sequences, first, second)
    sequences.returned(first)
    sequences.returned(second)
    assert sequences.failed(first, ErrorCode.NOT_ENOUGH_REPLICAS) is Remedy.RETRY
    assert sequences.failed(second, OUT_OF_ORDER) is Remedy.RETRY
    assert not sequences.may_send(third)
    assert not sequences.may_send(second)
    send(sequences, first)
    assert first.numbers.base_sequence == 1
    sequences.returned(first)
    sequences.acked(first, 1)
    send(sequences, second, third)


def test_a_hole_that_the_broker_has_makes_a_new_epoch_from_zero():
    sequences = known()
    first, second = batch(), batch(2)
    send(sequences, first, second)
    sequences.returned(first)
    assert sequences.failed(first, OUT_OF_ORDER) is Remedy.RESTART
    assert not sequences.may_send(first)  # the second is on the wire still
    sequences.returned(second)
    assert sequences.failed(second, OUT_OF_ORDER) is Remedy.RETRY
    send(sequences, first)
    assert first.numbers == Numbers(7, 1, 0)
    assert second.numbers == Numbers(7, 1, 1)
    assert sequences.identity == Identity(7, 1)


def test_other_partitions_follow_to_the_new_epoch_when_they_are_empty():
    sequences = known()
    lost, elsewhere = batch(), batch(partition=OTHER)
    send(sequences, lost, elsewhere)
    sequences.returned(lost)
    sequences.gave_up(lost, is_in_log_perhaps=False)
    assert sequences.identity == Identity(7, 1)
    late = batch(partition=OTHER)
    assert not sequences.may_send(late)
    sequences.returned(elsewhere)
    sequences.acked(elsewhere, 5)
    send(sequences, late)
    assert late.numbers == Numbers(7, 1, 0)
    fresh = batch()
    send(sequences, fresh)
    assert fresh.numbers == Numbers(7, 1, 0)


def test_an_epoch_that_is_used_up_asks_for_a_new_producer_id():
    sequences = known()
    sequences.start(Identity(7, EPOCH_MAX))
    lost = batch()
    send(sequences, lost)
    sequences.returned(lost)
    sequences.gave_up(lost, is_in_log_perhaps=False)
    assert sequences.identity is None
    sequences.start(Identity(8, 0))
    fresh = batch()
    send(sequences, fresh)
    assert fresh.numbers == Numbers(8, 0, 0)


def test_a_producer_that_the_log_has_forgotten_starts_again():
    sequences = known()
    lost = batch()
    send(sequences, lost)
    sequences.returned(lost)
    assert sequences.failed(lost, ErrorCode.UNKNOWN_PRODUCER_ID, -1) is Remedy.RETRY
    assert sequences.failed(lost, ErrorCode.UNKNOWN_PRODUCER_ID, 0) is Remedy.RESTART
    send(sequences, lost)
    assert lost.numbers == Numbers(7, 1, 0)


def test_in_a_transaction_only_retention_excuses_a_log_that_forgot():
    sequences = known(is_transactional=True)
    one = batch()
    send(sequences, one)
    sequences.returned(one)
    assert sequences.failed(one, ErrorCode.UNKNOWN_PRODUCER_ID, 0) is Remedy.FAIL
    assert sequences.failed(one, ErrorCode.UNKNOWN_PRODUCER_ID, 100) is Remedy.RENUMBER
    send(sequences, one)
    assert one.numbers == Numbers(7, 0, 0)


def test_in_a_transaction_a_refused_batch_leaves_no_gap():
    sequences = known(is_transactional=True)
    first, second = batch(2), batch(3)
    send(sequences, first, second)
    for each in (first, second):
        sequences.returned(each)
    sequences.gave_up(first, is_in_log_perhaps=False)
    assert second.numbers.base_sequence == 1
    send(sequences, second)
    sequences.returned(second)
    sequences.acked(second, 9)
    last = batch()
    send(sequences, last)
    assert last.numbers.base_sequence == 4


@pytest.mark.parametrize("is_acked", [True, False])
def test_a_batch_that_expired_on_its_way_is_looked_into_when_nothing_is_under_way(is_acked):
    sequences = known()
    expired, later = batch(), batch()
    send(sequences, expired, later)
    sequences.returned(expired)
    sequences.gave_up(expired, is_in_log_perhaps=True)
    assert not sequences.may_send(batch())
    assert sequences.resolve() == []
    assert sequences.identity == Identity(7, 0)
    sequences.returned(later)
    if is_acked:  # so the expired one is in the log
        sequences.acked(later, 2)
    else:
        sequences.gave_up(later, is_in_log_perhaps=True)
    assert sequences.resolve() == []
    fresh = batch()
    send(sequences, fresh)
    assert fresh.numbers == (Numbers(7, 0, 3) if is_acked else Numbers(7, 1, 0))


def test_in_a_transaction_a_batch_that_may_be_missing_is_told():
    sequences = known(is_transactional=True)
    expired = batch()
    send(sequences, expired)
    sequences.returned(expired)
    sequences.gave_up(expired, is_in_log_perhaps=True)
    assert sequences.resolve() == [PLACE]
    assert sequences.resolve() == []


def test_pieces_of_a_batch_have_its_numbers():
    sequences = known()
    large, later = batch(4), batch()
    send(sequences, large, later)
    pieces = large.split(25 * 2 + 61)
    sequences.split(large, pieces)
    assert [piece.numbers.base_sequence for piece in pieces] == [1, 3]
    for each in (large, later):
        sequences.returned(each)
    assert sequences.failed(later, OUT_OF_ORDER) is Remedy.RETRY
    send(sequences, pieces[0])
    assert not sequences.may_send(pieces[1])


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_what_no_number_can_mend_fails(code):
    sequences = known()
    one = batch()
    send(sequences, one)
    assert sequences.failed(one, code) is Remedy.FAIL


@pytest.mark.parametrize("is_transactional", [False, True])
def test_what_a_restarted_broker_does_not_know_again_is_proven_by_the_next_one(is_transactional):
    sequences = known(is_transactional=is_transactional)
    first, second, third = batch(2), batch(), batch()
    send(sequences, first, second, third)
    for each in (first, second, third):
        sequences.returned(each)
        each.is_in_log_perhaps = True
    send(sequences, first)
    sequences.returned(first)
    assert sequences.failed(first, OUT_OF_ORDER) is Remedy.SET_ASIDE
    assert not sequences.may_send(first)
    assert sequences.take_back() == []
    send(sequences, second)
    sequences.returned(second)
    sequences.acked(second, 9)
    assert sequences.take_proven() == [first]
    assert sequences.identity == Identity(7, 0)
    send(sequences, third)


def test_where_none_of_them_is_known_the_log_has_lost_records():
    sequences = known()
    first, second = batch(2), batch()
    send(sequences, first, second)
    for each in (first, second):
        sequences.returned(each)
        each.is_in_log_perhaps = True
    send(sequences, first)
    sequences.returned(first)
    assert sequences.failed(first, OUT_OF_ORDER) is Remedy.SET_ASIDE
    send(sequences, second)
    sequences.returned(second)
    assert sequences.failed(second, OUT_OF_ORDER) is Remedy.RESTART
    assert sequences.take_back() == [first]
    send(sequences, first)
    assert first.numbers == Numbers(7, 1, 0)
    assert second.numbers == Numbers(7, 1, 2)


def test_what_is_set_aside_goes_again_when_there_is_nothing_left_to_ask():
    sequences = known()
    first, second = batch(2), batch()
    send(sequences, first, second)
    for each in (first, second):
        sequences.returned(each)
    first.is_in_log_perhaps = True
    assert sequences.failed(first, OUT_OF_ORDER) is Remedy.SET_ASIDE
    sequences.gave_up(second, is_in_log_perhaps=True)
    assert sequences.take_back() == [first]
