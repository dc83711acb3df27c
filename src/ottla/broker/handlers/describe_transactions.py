"""DescribeTransactions: the state of transactional ids, and the partitions of what is open."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.response_budget import ResponseBudget
from ottla.errors import ErrorCode
from ottla.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from ottla.runtime.stepping import all_of
from ottla.transactions.coordinator import TransactionShard

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    budget = ResponseBudget()

    def note(state: DescribeTransactionsResponseTransactionState) -> None:
        budget.spend(sum(len(topic.partitions) for topic in state.topics))

    states = await all_of((_describe(broker, name) for name in request.transactional_ids), broker.turns, note)
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(broker: Broker, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
    refuse = partial(_refused, transactional_id)
    if not transactional_id:
        return refuse(ErrorCode.INVALID_REQUEST)
    return await broker.transactions.ask(transactional_id, refuse, TransactionShard.describe, transactional_id)


def _refused(transactional_id: str, code: ErrorCode) -> DescribeTransactionsResponseTransactionState:
    return DescribeTransactionsResponseTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
