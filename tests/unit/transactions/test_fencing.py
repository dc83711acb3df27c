"""Who may do what in which state, at every distance: one, two and many epochs behind, and ahead.

The rules stand here once more as tables, in other words than in the coordinator (KIP-890 has them): each request either
is one of the few that are meant, or is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.transactions.state import PRODUCER_EPOCH_MAX, ProducerIdAndEpoch, TransactionState

FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE, UNKNOWN = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
STATES = (EMPTY, ONGOING, *PREPARED, *COMPLETE)
VERSIONS = (1, 2)
FIRST_EPOCH = 20  # far enough from 0 that there is much behind it


def brought_to(driver: Any, state: TransactionState, version: int) -> ProducerIdAndEpoch:
    """A transactional id in that state, by ends of that version; who may go on with it."""
    for _ in range(FIRST_EPOCH + 1):
        producer = driver.init()
    if state != EMPTY:
        driver.add(producer, 0, 1, version=version)
    if state in (*PREPARED, *COMPLETE):
        commits = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        producer = driver.end(producer, commit=commits, version=version)
    if state in COMPLETE:
        driver.write_markers()
    assert driver.state().state == state
    return driver.state().own


def epochs_around(epoch: int) -> Iterator[int]:
    yield from (0, 1, epoch - 7, epoch - 3, epoch - 2, epoch - 1, epoch, epoch + 1, epoch + 2, PRODUCER_EPOCH_MAX)


def end_expected(state: TransactionState, behind: int, *, commit: bool, version: int) -> ErrorCode | str:
    """What an EndTxn is answered: an error, or `ends`, or `again`: as it was answered before."""
    outcome = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    if version == 1:
        if behind != 0:
            return FENCED
        if state in PREPARED:
            return CONCURRENT
        return "ends" if state == ONGOING else "again" if state == outcome else INVALID_STATE
    if state in PREPARED:
        return CONCURRENT if behind in (0, 1) else FENCED
    if state in COMPLETE and behind == 1:
        return "again" if state == outcome else INVALID_STATE
    if behind != 0:
        return FENCED
    return "ends" if state == ONGOING or not commit else INVALID_STATE


def unchanged(driver: Any, ask: Callable[[], Any]) -> Any:
    """The answer to what must leave everything as it is."""
    before, length = driver.state(), len(driver.log)
    answer = ask()
    assert (driver.state(), len(driver.log)) == (before, length), "what was refused has changed something"
    return answer


@pytest.mark.parametrize("made_by", VERSIONS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_an_end_is_for_who_has_the_transaction(
    new_driver: Any, state: TransactionState, commit: bool, version: int, made_by: int
) -> None:
    for epoch in epochs_around(FIRST_EPOCH + 1):
        driver = new_driver()
        own = brought_to(driver, state, made_by)
        presented = own._replace(epoch=epoch)
        expected = end_expected(state, own.epoch - epoch, commit=commit, version=version)

        def end(driver: Any = driver, presented: ProducerIdAndEpoch = presented) -> Any:
            return driver.end(presented, commit=commit, version=version)

        if expected == "ends":
            assert end() == own._replace(epoch=own.epoch + version - 1)
            assert driver.state().state in (*PREPARED, *COMPLETE)
        elif expected == "again":
            assert unchanged(driver, end) == own
        else:
            assert unchanged(driver, end) == expected, f"{own.epoch - epoch} behind"
        stranger = presented._replace(producer_id=own.producer_id + 1000)
        assert unchanged(driver, partial(driver.end, stranger, commit=commit, version=version)) == UNKNOWN


@pytest.mark.parametrize("made_by", VERSIONS)
@pytest.mark.parametrize("state", STATES)
def test_partitions_are_added_and_verified_for_who_has_the_transaction(
    new_driver: Any, state: TransactionState, made_by: int
) -> None:
    for epoch in epochs_around(FIRST_EPOCH + 1):
        driver = new_driver()
        own = brought_to(driver, state, made_by)
        presented = own._replace(epoch=epoch)
        if epoch != own.epoch or state in PREPARED:
            expected = FENCED if epoch != own.epoch else CONCURRENT
            assert unchanged(driver, partial(driver.add, presented, 5)) == expected
            assert unchanged(driver, partial(driver.verify, presented, 0)) == expected
        else:
            assert driver.add(presented, 5) is None
        stranger = presented._replace(producer_id=own.producer_id + 1000)
        assert unchanged(driver, partial(driver.add, stranger, 6)) == UNKNOWN


@pytest.mark.parametrize("made_by", VERSIONS)
@pytest.mark.parametrize("state", [EMPTY, *COMPLETE])
def test_an_introduction_with_an_earlier_epoch_is_for_who_had_the_last(
    new_driver: Any, state: TransactionState, made_by: int
) -> None:
    for epoch in epochs_around(FIRST_EPOCH + 1):
        driver = new_driver()
        own = brought_to(driver, state, made_by)
        presented = own._replace(epoch=epoch)
        was_raised_by_itself = state in COMPLETE and made_by == 2
        if epoch == own.epoch:
            assert driver.init(expected=presented) == own._replace(epoch=epoch + 1)
            assert driver.init(expected=presented) == own._replace(epoch=epoch + 1), "its answer was lost"
        elif epoch == own.epoch - 1 and was_raised_by_itself:
            assert driver.init(expected=presented) == own
        else:
            assert unchanged(driver, partial(driver.init, expected=presented)) == FENCED


@pytest.mark.parametrize("ends", [(2, 1), (2, 1, 1), (1, 2), (2, 2, 1)])
def test_an_end_that_raises_no_epoch_leaves_the_one_before_it_known(driver: Any, ends: tuple[int, ...]) -> None:
    producer = driver.init()
    before = producer
    for version in ends:
        driver.add(producer, 0, version=version)
        ended = driver.end(producer, version=version)
        driver.write_markers()
        before = producer if version == 2 else before
        producer = ended
    assert driver.init(expected=before) == producer
    assert driver.init(expected=producer) == producer._replace(epoch=producer.epoch + 1)
    assert driver.init(expected=before) == FENCED
