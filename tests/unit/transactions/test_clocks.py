"""A transaction has its time, whatever becomes of the wall clock."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.ids import TopicPartition
from ottla.transactions.state import TransactionState

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
TIMEOUT_MS = 60_000
JUMPS_MS = (-YEAR_MS, -HOUR_MS, HOUR_MS, YEAR_MS)


def begin(driver: Any) -> None:
    producer = driver.init(timeout_ms=TIMEOUT_MS)
    driver.ask(driver.shard.add_partitions, "tx", producer, [TopicPartition("t", 0)], 0)


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_an_open_transaction_has_its_time_by_a_clock_that_nobody_sets(driver: Any, jump_ms: int) -> None:
    producer = driver.init(timeout_ms=TIMEOUT_MS)
    driver.ask(driver.shard.add_partitions, "tx", producer, [TopicPartition("t", 0)], 0)
    driver.shard.wall_ahead_ms = jump_ms
    driver.now_ms += TIMEOUT_MS // 2
    driver.ask(driver.shard.add_partitions, "tx", producer, [TopicPartition("t", 1)], 0)
    driver.expire(TIMEOUT_MS // 2 - 1)
    assert driver.state().state == TransactionState.ONGOING
    driver.expire(1)
    assert driver.state().state == TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("jump_ms", [-YEAR_MS, -HOUR_MS])
def test_one_that_began_in_the_future_has_all_of_its_time_from_a_load_on(driver: Any, jump_ms: int) -> None:
    begin(driver)
    driver.shard.wall_ahead_ms = jump_ms
    driver.restart()
    driver.expire(TIMEOUT_MS - 1)
    assert driver.state().state == TransactionState.ONGOING
    driver.expire(1)
    assert driver.state().state == TransactionState.PREPARE_ABORT
