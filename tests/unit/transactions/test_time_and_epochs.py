"""How long a transaction may take, and who is too late to end it, however late."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.transactions.state import ProducerIdAndEpoch, TransactionState

TIMEOUT_MS = 60_000
ENDS = 5


@pytest.mark.parametrize("restarts", [False, True])
def test_the_time_of_a_transaction_runs_from_its_first_partition_whatever_joins_later(
    driver: Any, restarts: bool
) -> None:
    producer = driver.init(timeout_ms=TIMEOUT_MS)
    driver.add(producer, 0)
    for partition in range(1, 6):
        driver.expire(TIMEOUT_MS // 6)
        assert driver.state().state == TransactionState.ONGOING
        driver.add(producer, partition)
        if restarts:
            driver.restart()
    driver.expire(TIMEOUT_MS // 6)
    assert driver.state().state == TransactionState.PREPARE_ABORT


def test_each_transaction_has_its_whole_time(driver: Any) -> None:
    producer = driver.init(timeout_ms=TIMEOUT_MS)
    for partition in range(3):
        driver.add(producer, partition)
        driver.expire(TIMEOUT_MS * 9 // 10)
        assert driver.state().state == TransactionState.ONGOING
        producer = driver.end(producer)
        driver.write_markers()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_next_begun", [True, False])
def test_an_end_of_any_epoch_before_the_last_is_fenced(driver: Any, commit: bool, is_next_begun: bool) -> None:
    """The last one may be asked for again, because its answer may have been lost; no other ever."""
    latest = driver.init()
    for _ in range(ENDS):
        driver.add(latest, 0)
        latest = driver.end(latest, commit=commit)
        driver.write_markers()
    if is_next_begun:
        driver.add(latest, 0)
    before = driver.state()
    for behind in range(2, ENDS + 1):
        late = ProducerIdAndEpoch(latest.producer_id, latest.epoch - behind)
        for asked in (True, False):
            assert driver.end(late, commit=asked) == ErrorCode.PRODUCER_FENCED, f"{behind} epochs behind"
        assert driver.add(late, 0) == ErrorCode.PRODUCER_FENCED
    assert driver.state() == before
    again = driver.end(ProducerIdAndEpoch(latest.producer_id, latest.epoch - 1), commit=commit)
    assert again == (ErrorCode.PRODUCER_FENCED if is_next_begun else latest)
