"""What an error means for a transaction, by Java's table; which calls fit where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.client.error_codes import ProducerFencedError, TransactionAbortableError
from ottla.client.errors import AbortableError, UsageError
from ottla.client.producer.transaction_state import Request, State, TransactionState, Verdict, verdict_of
from ottla.errors import ErrorCode

TABLE = Path(__file__).parents[5] / "shared" / "protocol" / "clients" / "client_errors.json"
COLUMNS = {
    "find_coordinator": [Request.FIND_COORDINATOR],
    "init_producer_id": [Request.INIT_PRODUCER_ID],
    "add_partitions_to_txn": [Request.ADD_PARTITIONS],
    "add_offsets_to_txn": [Request.ADD_OFFSETS],
    "txn_offset_commit": [Request.OFFSET_COMMIT],
    "end_txn": [Request.COMMIT, Request.ABORT],
}


def meaning(text: str, request: Request) -> Verdict:
    if text == "abortable on commit, fatal on abort":
        return Verdict.ABORTABLE if request is Request.COMMIT else Verdict.FATAL
    if text.startswith("find "):
        return Verdict.LOOK_UP
    if text == "abortable, then back to uninitialised":
        return Verdict.UNINITIALIZE
    return {"retry": Verdict.RETRY, "abortable": Verdict.ABORTABLE, "fatal": Verdict.FATAL}[text.split(" ")[0]]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_code_means_what_it_means_to_java(column):
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} of Java's client is not here")
    for entry in json.loads(TABLE.read_text())["errors"]:
        if entry["code"]:
            for request in COLUMNS[column]:
                expected = meaning(entry["transactional_producer"][column], request)
                assert verdict_of(request, ErrorCode(entry["code"])) is expected, (request, entry["name"])


def test_a_produce_that_failed_for_good_is_abortable_but_for_what_java_calls_fatal():
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} of Java's client is not here")
    for entry in json.loads(TABLE.read_text())["errors"]:
        if entry["code"]:
            is_fatal = entry["transactional_producer"]["produce"] == "fatal"
            expected = Verdict.FATAL if is_fatal else Verdict.ABORTABLE
            assert verdict_of(Request.PRODUCE, ErrorCode(entry["code"])) is expected, entry["name"]


def state_at(*steps: State) -> TransactionState:
    state = TransactionState()
    for step in steps:
        state.move(step)
    return state


READY = (State.INITIALIZING, State.READY)


@pytest.mark.parametrize(
    ("steps", "to", "message"),
    [
        ((), State.IN_TRANSACTION, "has not been initialized: call init_transactions"),
        (READY, State.COMMITTING, "has no transaction open: call begin_transaction"),
        (READY, State.ABORTING, "has no transaction open"),
        (READY, State.INITIALIZING, "has no transaction open"),
        ((*READY, State.IN_TRANSACTION), State.IN_TRANSACTION, "has a transaction open"),
    ],
)
def test_a_call_that_does_not_fit_says_so_and_changes_nothing(steps, to, message):
    state = state_at(*steps)
    before = state.now
    with pytest.raises(UsageError, match=message):
        state.move(to)
    assert state.now is before


def test_an_abortable_error_leaves_only_the_abort():
    state = state_at(*READY, State.IN_TRANSACTION)
    state.abortable(ValueError("lost"))
    with pytest.raises(TransactionAbortableError, match="has to be aborted: lost"):
        state.check_may_send()
    with pytest.raises(AbortableError):
        state.move(State.COMMITTING)
    state.move(State.ABORTING)
    state.move(State.READY)
    assert state.error is None


def test_a_fatal_error_stays():
    state = state_at(*READY, State.IN_TRANSACTION)
    state.fatal(ProducerFencedError("another one"))
    state.abortable(ValueError("later"))
    with pytest.raises(ProducerFencedError):
        state.move(State.ABORTING)
    with pytest.raises(ProducerFencedError):
        state.check_may_send()


def test_without_a_transaction_there_is_nothing_to_abort():
    state = state_at(*READY)
    state.abortable(ValueError("late"))
    assert state.now is State.READY
