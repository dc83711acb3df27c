"""The coordinator of transactions: who may do what when, and what stands in its log afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.decisions import Decision
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.testing.steps import finished
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.state import (
    LAST_CLIENT_EPOCH,
    PRODUCER_EPOCH_MAX,
    ProducerIdAndEpoch,
    TransactionState,
)

V1 = 0  # how records name the first generation of transactions
V2 = 2


def at(producer: ProducerIdAndEpoch, epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, epoch)


def exhausted(driver: Any, **how: Any) -> ProducerIdAndEpoch:
    """A producer at the last epoch that its id has: the log says so."""
    driver.init(**how)
    driver.carry_out(Decision([replace(driver.state(), producer_epoch=LAST_CLIENT_EPOCH).record()]))
    own: ProducerIdAndEpoch = driver.state().own
    return own


# -- producers come ----------------------------------------------------------------------------------------------------


def test_the_first_producer_gets_a_new_id_and_each_later_one_the_next_epoch(driver: Any) -> None:
    first = driver.init()
    assert first == ProducerIdAndEpoch(101, 0)
    assert driver.init() == at(first, 1)
    assert driver.state().state == TransactionState.EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(driver: Any, timeout_ms: int) -> None:
    assert driver.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert driver.log == []


def test_an_empty_transactional_id_is_refused_everywhere(driver: Any) -> None:
    nobody = ProducerIdAndEpoch(1, 1)
    assert driver.init("") == ErrorCode.INVALID_REQUEST
    assert driver.add(nobody, 0, transactional_id="") == ErrorCode.INVALID_REQUEST
    assert driver.verify(nobody, 0, transactional_id="") == ErrorCode.INVALID_REQUEST
    assert driver.end(nobody, transactional_id="") == ErrorCode.INVALID_REQUEST
    assert driver.ask(driver.shard.describe, "") == ErrorCode.INVALID_REQUEST


def test_an_id_without_an_epoch_or_the_other_way_round_is_refused(driver: Any) -> None:
    assert driver.init(expected=ProducerIdAndEpoch(5, -1)) == ErrorCode.INVALID_REQUEST
    assert driver.init(expected=ProducerIdAndEpoch(-1, 5)) == ErrorCode.INVALID_REQUEST


def test_a_producer_that_lost_count_gets_the_next_epoch_and_hears_the_same_when_it_asks_again(driver: Any) -> None:
    first = driver.init()
    bumped = driver.init(expected=first)
    assert bumped == at(first, 1)
    assert driver.init(expected=first) == bumped


def test_a_producer_that_lost_count_is_fenced_by_one_that_came_meanwhile(driver: Any) -> None:
    first = driver.init()
    driver.init()
    assert driver.init(expected=first) == ErrorCode.PRODUCER_FENCED
    assert driver.init(expected=ProducerIdAndEpoch(999, 0)) == ErrorCode.PRODUCER_FENCED


def test_whoever_claims_an_id_that_nobody_remembers_gets_a_new_one(driver: Any) -> None:
    assert driver.init(expected=ProducerIdAndEpoch(5, 3)) == ProducerIdAndEpoch(101, 0)


def test_after_the_last_epoch_comes_a_new_producer_id(driver: Any) -> None:
    last = exhausted(driver)
    fresh = driver.init(expected=last)
    assert fresh == ProducerIdAndEpoch(last.producer_id + 1, 0)
    assert driver.init(expected=last) == fresh, "asked again"
    assert driver.init() == at(fresh, 1)


def test_an_open_transaction_is_aborted_before_another_producer_may_begin(driver: Any) -> None:
    first = driver.init()
    driver.add(first, 0, 1)
    assert driver.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.state().state == TransactionState.PREPARE_ABORT
    assert driver.init() == ErrorCode.CONCURRENT_TRANSACTIONS, "markers are on their way"
    (due,) = driver.write_markers()
    assert not due.is_commit
    assert due.producer == at(first, 1), "the markers fence the old producer"
    assert driver.init() == at(first, 2)


# -- partitions join ---------------------------------------------------------------------------------------------------


def test_the_first_partition_opens_the_transaction_and_later_ones_join_it(driver: Any) -> None:
    producer = driver.init()
    assert driver.add(producer, 0) is None
    began = driver.now_ms
    driver.now_ms += 500
    assert driver.add(producer, 1) is None
    state = driver.state()
    assert state.state == TransactionState.ONGOING
    assert state.start_ms == began
    assert state.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}


def test_partitions_that_are_there_already_need_no_record(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0, 1)
    length = len(driver.log)
    assert driver.add(producer, 1) is None
    assert len(driver.log) == length


def test_only_the_current_producer_may_add_partitions(driver: Any) -> None:
    producer = driver.init()
    assert driver.add(at(producer, 1), 0) == ErrorCode.PRODUCER_FENCED
    assert driver.add(ProducerIdAndEpoch(999, 0), 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(producer, 0, transactional_id="other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_partitions_have_to_wait_for_the_end_of_the_transaction_before(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    following = driver.end(producer)
    assert driver.add(following, 1) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.verify(following, 0) == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.add(following, 1) is None


def test_verification_names_the_partitions_that_do_not_take_part(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    assert driver.verify(producer, 0, 1) == {
        TopicPartition("t", 0): ErrorCode.NONE,
        TopicPartition("t", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert driver.verify(at(producer, 3), 0) == ErrorCode.PRODUCER_FENCED
    assert driver.verify(producer, 0, transactional_id="other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_decided_then_told_to_every_partition_then_complete(driver: Any, commit: bool) -> None:
    producer = driver.init()
    driver.add(producer, 0, 1)
    assert driver.end(producer, commit=commit) == at(producer, 1)
    assert driver.marker_calls == 1
    (due,) = driver.due()
    assert (due.is_commit, due.producer) == (commit, at(producer, 1))
    driver.report(due, [TopicPartition("t", 0)])
    assert driver.state().state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    assert [one.partitions for one in driver.due()] == [(TopicPartition("t", 1),)]
    assert driver.ask(driver.shard.due_markers_of, due.transactional_id) == driver.due()[0]
    driver.report(due, [TopicPartition("t", 1)])
    assert driver.state().state == (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert driver.due() == []
    assert driver.ask(driver.shard.due_markers_of, due.transactional_id) is None
    assert not driver.state().partitions


def test_in_version_1_the_epoch_stays(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0, version=V1)
    assert driver.end(producer, version=V1) == producer
    driver.write_markers()
    assert driver.state().own == producer
    assert driver.end(producer, version=V1) == producer, "asked again"
    assert driver.end(producer, commit=False, version=V1) == ErrorCode.INVALID_TXN_STATE


def test_in_version_1_nothing_is_ended_that_was_not_begun(driver: Any) -> None:
    producer = driver.init()
    assert driver.end(producer, version=V1) == ErrorCode.INVALID_TXN_STATE
    assert driver.end(producer, commit=False, version=V1) == ErrorCode.INVALID_TXN_STATE


def test_in_version_2_a_repeated_end_is_answered_with_the_same_epoch(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    driver.end(producer)
    assert driver.end(producer) == ErrorCode.CONCURRENT_TRANSACTIONS, "not complete yet"
    assert driver.end(producer, commit=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.end(producer) == at(producer, 1)
    assert driver.end(producer, commit=False) == ErrorCode.INVALID_TXN_STATE


def test_in_version_2_what_was_never_sent_may_be_aborted_and_not_committed(driver: Any) -> None:
    producer = driver.init()
    assert driver.end(producer) == ErrorCode.INVALID_TXN_STATE
    aborted = driver.end(producer, commit=False)
    assert aborted == at(producer, 1)
    assert driver.state().state == TransactionState.COMPLETE_ABORT
    again = driver.end(aborted, commit=False)
    assert again == at(producer, 2)
    assert driver.end(again) == ErrorCode.INVALID_TXN_STATE
    assert driver.marker_calls == 0, "there is nobody to tell"


@pytest.mark.parametrize("version", [V1, V2])
def test_a_stranger_or_a_stale_producer_ends_nothing(driver: Any, version: int) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    assert driver.end(at(producer, 7), version=version) == ErrorCode.PRODUCER_FENCED
    assert driver.end(ProducerIdAndEpoch(999, 0), version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.end(producer, transactional_id="other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.state().state == TransactionState.ONGOING


def test_a_late_repetition_does_not_end_the_next_transaction(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    following = driver.end(producer)
    driver.write_markers()
    driver.add(following, 0)
    assert driver.end(producer) == ErrorCode.PRODUCER_FENCED


def test_a_transaction_that_is_given_up_before_the_markers_of_the_one_before_waits_for_them(driver: Any) -> None:
    """Its records were told to wait, and its producer aborts: it has the latest epoch, and nobody has replaced it."""
    producer = driver.init()
    driver.add(producer, 0)
    following = driver.end(producer)
    assert driver.end(following, commit=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    last = driver.end(following, commit=False)
    assert last == at(following, following.epoch + 1)
    driver.write_markers()
    assert driver.add(last, 0) is None


@pytest.mark.parametrize("commit", [True, False])
def test_after_the_last_epoch_the_end_brings_a_new_producer_id(driver: Any, commit: bool) -> None:
    last = exhausted(driver)
    driver.add(last, 0)
    fresh = driver.end(last, commit=commit)
    assert fresh == ProducerIdAndEpoch(last.producer_id + 1, 0)
    assert driver.end(last, commit=commit) == ErrorCode.CONCURRENT_TRANSACTIONS
    (due,) = driver.write_markers()
    assert due.producer == at(last, PRODUCER_EPOCH_MAX)
    assert driver.state().own == fresh
    assert driver.end(last, commit=commit) == fresh, "asked again"
    assert driver.add(fresh, 0) is None


def test_markers_of_an_earlier_end_complete_nothing(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    following = driver.end(producer)
    (due,) = driver.write_markers()
    driver.add(following, 0)
    driver.end(following)
    driver.report(due, due.partitions)
    assert driver.state().state == TransactionState.PREPARE_COMMIT


# -- two-phase commit --------------------------------------------------------------------------------------------------


@pytest.fixture
def two_phase(new_driver: Any) -> Any:
    return new_driver(TransactionSettings(two_phase_commit_enable=True))


def test_two_phase_commit_must_be_allowed_by_the_broker(driver: Any) -> None:
    assert driver.init(two_phase=True) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_participant_in_a_two_phase_commit_has_all_the_time_in_the_world(two_phase: Any) -> None:
    producer = two_phase.init(two_phase=True, timeout_ms=0)
    two_phase.add(producer, 0)
    assert two_phase.shard.next_deadline_ms is None
    two_phase.expire(10**12)
    assert two_phase.state().state == TransactionState.ONGOING


def keep(driver: Any) -> Any:
    return driver.ask(
        driver.shard.init_producer_id,
        InitProducerIdRequest(
            transactional_id="tx", transaction_timeout_ms=1000, enable2_pc=True, keep_prepared_txn=True
        ),
        driver.new_producer_id() if driver.shard.wants_producer_id("tx") else None,
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_kept_transaction_is_ended_by_whoever_came_back_for_it(two_phase: Any, commit: bool) -> None:
    producer = two_phase.init(two_phase=True)
    two_phase.add(producer, 0)
    for attempt in (1, 2):
        answer = keep(two_phase)
        assert (answer.producer_id, answer.producer_epoch) == at(producer, attempt)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == producer
    assert two_phase.end(producer, commit=commit) == ErrorCode.PRODUCER_FENCED, "the one that crashed is fenced"
    assert two_phase.end(at(producer, 1), commit=commit) == ErrorCode.PRODUCER_FENCED
    following = two_phase.end(at(producer, 2), commit=commit)
    assert following == at(producer, 3)
    assert two_phase.end(at(producer, 2), commit=commit) == ErrorCode.CONCURRENT_TRANSACTIONS
    (due,) = two_phase.write_markers()
    assert (due.producer, due.is_commit) == (at(producer, 1), commit), "one epoch after that of its records"
    assert two_phase.state().own == following
    assert two_phase.end(at(producer, 2), commit=commit) == following, "asked again"
    assert two_phase.add(following, 0) is None


def test_a_kept_transaction_takes_no_more_partitions(two_phase: Any) -> None:
    producer = two_phase.init(two_phase=True)
    two_phase.add(producer, 0)
    keep(two_phase)
    assert two_phase.add(producer, 1) == ErrorCode.PRODUCER_FENCED
    assert two_phase.verify(producer, 0) == ErrorCode.PRODUCER_FENCED
    assert two_phase.add(at(producer, 1), 1) == ErrorCode.INVALID_TXN_STATE


def test_a_kept_transaction_survives_a_restart_and_the_end_of_epochs(two_phase: Any) -> None:
    last = exhausted(two_phase, two_phase=True)
    two_phase.add(last, 0)
    answer = keep(two_phase)
    assert answer.producer_epoch == 0
    assert answer.producer_id > last.producer_id
    assert ProducerIdAndEpoch(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == last
    two_phase.restart()
    kept = ProducerIdAndEpoch(answer.producer_id, 0)
    assert two_phase.end(last) == ErrorCode.PRODUCER_FENCED
    assert two_phase.end(kept) == at(kept, 1)
    two_phase.restart()
    (due,) = two_phase.write_markers()
    assert due.producer == at(last, PRODUCER_EPOCH_MAX)
    assert two_phase.state().own == at(kept, 1)


def test_keeping_where_nothing_is_open_is_an_ordinary_beginning(two_phase: Any) -> None:
    two_phase.init(two_phase=True)
    answer = keep(two_phase)
    assert answer.producer_epoch == 1
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)


def test_a_kept_transaction_is_aborted_by_whoever_comes_to_begin_anew(two_phase: Any) -> None:
    producer = two_phase.init(two_phase=True)
    two_phase.add(producer, 0)
    keep(two_phase)
    assert two_phase.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    (due,) = two_phase.write_markers()
    assert not due.is_commit
    assert two_phase.init() == at(producer, 3)


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(driver: Any) -> None:
    producer = driver.init(timeout_ms=1000)
    driver.add(producer, 0, version=V1)
    assert driver.shard.next_deadline_ms == driver.now_ms + 1000
    driver.expire(999)
    assert driver.state().state == TransactionState.ONGOING
    driver.expire(1)
    assert driver.state().state == TransactionState.PREPARE_ABORT
    assert driver.marker_calls == 1
    (due,) = driver.write_markers()
    assert due.producer == at(producer, 1)
    assert driver.add(producer, 1) == ErrorCode.PRODUCER_FENCED
    assert driver.end(producer, version=V1) == ErrorCode.PRODUCER_FENCED
    assert driver.end(producer, version=V2) == ErrorCode.INVALID_TXN_STATE
    assert driver.end(producer, commit=False, version=V2) == at(producer, 1)


def test_a_timeout_at_the_last_epoch_uses_up_the_id(driver: Any) -> None:
    last = exhausted(driver)
    driver.add(last, 0)
    driver.expire(60_000)
    driver.write_markers()
    assert driver.state().producer_epoch == PRODUCER_EPOCH_MAX
    fresh = driver.init(expected=last)
    assert (fresh.producer_id > last.producer_id, fresh.epoch) == (True, 0)


def test_a_silent_transactional_id_is_forgotten_with_a_tombstone(driver: Any) -> None:
    driver.init()
    week_ms = driver.settings.transactional_id_expiration_ms
    driver.expire(week_ms - 1)
    assert len(driver.shard) == 1
    driver.expire(1)
    assert len(driver.shard) == 0
    assert driver.log[-1][1] is None
    assert driver.shard.next_deadline_ms is None
    assert driver.ask(driver.shard.describe, "tx") == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_what_is_open_or_not_told_yet_is_never_forgotten(new_driver: Any) -> None:
    driver = new_driver(TransactionSettings(transactional_id_expiration_ms=10, two_phase_commit_enable=True))
    producer = driver.init(two_phase=True)
    driver.add(producer, 0)
    driver.expire(1000)
    driver.end(producer)
    driver.expire(1000)
    assert driver.state().state == TransactionState.PREPARE_COMMIT
    driver.write_markers()
    driver.expire(10)
    assert len(driver.shard) == 0


def test_what_time_decided_and_the_disk_refused_is_tried_again(driver: Any) -> None:
    producer = driver.init(timeout_ms=1000)
    driver.add(producer, 0)
    driver.fails_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.expire(1000)
    assert driver.state().state == TransactionState.ONGOING
    driver.fails_with = None
    assert driver.shard.next_deadline_ms is not None
    driver.expire(driver.shard.next_deadline_ms - driver.now_ms)
    assert driver.state().state == TransactionState.PREPARE_ABORT


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_what_could_not_be_written_has_not_happened(driver: Any) -> None:
    producer = driver.init()
    driver.fails_with = ErrorCode.NOT_COORDINATOR
    assert driver.init() == ErrorCode.NOT_COORDINATOR
    assert driver.add(producer, 0) == ErrorCode.NOT_COORDINATOR
    driver.fails_with = None
    assert driver.state().own == producer
    assert driver.add(producer, 0) is None
    driver.fails_with = ErrorCode.NOT_COORDINATOR
    assert driver.end(producer) == ErrorCode.NOT_COORDINATOR
    assert driver.due() == []
    driver.fails_with = None
    assert driver.end(producer) == at(producer, 1)


def test_a_completion_that_could_not_be_written_is_written_when_markers_are_reported_again(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    driver.end(producer)
    driver.fails_with = ErrorCode.NOT_COORDINATOR
    (due,) = driver.write_markers()
    assert driver.state().state == TransactionState.PREPARE_COMMIT
    driver.fails_with = None
    driver.report(due, due.partitions)
    assert driver.state().state == TransactionState.COMPLETE_COMMIT


def test_a_coordinator_that_crashed_after_its_decision_carries_it_out(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0, 1)
    driver.end(producer)
    driver.marker_calls = 0
    driver.restart()
    assert driver.marker_calls == 1
    (due,) = driver.write_markers()
    assert due.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert driver.state().state == TransactionState.COMPLETE_COMMIT


def test_a_restart_keeps_the_time_at_which_a_transaction_is_over(driver: Any) -> None:
    producer = driver.init(timeout_ms=1000)
    driver.add(producer, 0)
    deadline_ms = driver.shard.next_deadline_ms
    driver.now_ms += 400
    driver.restart()
    assert driver.shard.next_deadline_ms == deadline_ms


def test_a_repeated_end_is_known_after_a_restart(driver: Any) -> None:
    producer = driver.init()
    driver.add(producer, 0)
    driver.end(producer)
    driver.write_markers()
    driver.restart()
    assert driver.end(producer) == at(producer, 1)
    assert driver.init(expected=producer) == at(producer, 1), "and so is a producer that never heard of it"


def test_a_prepared_transaction_without_partitions_is_completed_by_the_load(driver: Any) -> None:
    producer = driver.init()
    driver.end(producer, commit=False)
    del driver.log[-1]
    driver.restart()
    assert driver.state().state == TransactionState.COMPLETE_ABORT


# -- telling -----------------------------------------------------------------------------------------------------------


def test_a_description_tells_who_what_and_since_when(driver: Any) -> None:
    producer = driver.init(timeout_ms=1234)
    driver.add(producer, 2, 0)
    told = driver.ask(driver.shard.describe, "tx")
    assert (told.transaction_state, told.transaction_timeout_ms, told.transaction_start_time_ms) == (
        "Ongoing",
        1234,
        driver.now_ms,
    )
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("t", [0, 2])]


def listed(driver: Any, *, states: Any = None, producers: Any = (), longer_than_ms: int = -1) -> Any:
    answer = driver.ask(driver.shard.list_transactions, states, producers, longer_than_ms)
    return [one.transactional_id for one in finished(answer)]


def test_a_list_is_filtered_by_state_producer_and_duration(driver: Any) -> None:
    driver.init("resting")
    producer = driver.init("busy")
    driver.add(producer, 0, transactional_id="busy")
    driver.now_ms += 100
    assert listed(driver) == ["resting", "busy"]
    assert listed(driver, states={TransactionState.ONGOING}) == ["busy"]
    assert listed(driver, states=set()) == []
    assert listed(driver, producers={producer.producer_id}) == ["busy"]
    assert listed(driver, longer_than_ms=100) == ["resting"], "what has not begun counts as begun long ago, as in Kafka"
    assert listed(driver, longer_than_ms=99) == ["resting", "busy"]


def test_very_many_transactions_are_listed_in_steps(driver: Any) -> None:
    for number in range(200):
        driver.init(f"tx{number}")
    assert sum(1 for _ in driver.ask(driver.shard.list_transactions, None, (), -1)) >= 3
    assert len(listed(driver)) == 200
