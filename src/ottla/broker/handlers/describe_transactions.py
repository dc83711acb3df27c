"""DescribeTransactions: the state of transactional ids, and the partitions of what is open."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.answer_room import AnswerRoom
from ottla.broker.coordinators import together
from ottla.errors import ErrorCode
from ottla.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from ottla.runtime.turns import Steps, in_turns
from ottla.transactions.coordinator import TransactionShard

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(broker: Broker, request: DescribeTransactionsRequest, context: Context) -> Steps[Any]:
    answers = []
    room = AnswerRoom()
    for name in request.transactional_ids:
        answer = _describe(broker, name)
        if type(answer) is DescribeTransactionsResponseTransactionState:
            room.take(sum(len(topic.partitions) for topic in answer.topics))
        answers.append(answer)
        yield
    return together(answers, lambda states: DescribeTransactionsResponse(transaction_states=list(states)))


def _describe(broker: Broker, transactional_id: str) -> Any:
    refuse = partial(_refused, transactional_id)
    if not transactional_id:
        return refuse(ErrorCode.INVALID_REQUEST)
    return broker.transactions.ask(transactional_id, refuse, TransactionShard.describe, transactional_id)


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
