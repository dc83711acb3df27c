"""ListTransactions: the transactions that this broker coordinates, by state, producer, duration and name."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators import together
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import STATES_BY_TITLE

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(
    broker: Broker, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse | Coroutine[Any, Any, ListTransactionsResponse]:
    known = [title for title in request.state_filters if title in STATES_BY_TITLE]
    unknown = [title for title in request.state_filters if title not in STATES_BY_TITLE]
    states = {STATES_BY_TITLE[title] for title in known} if request.state_filters else None
    try:
        matches = _pattern(request.transactional_id_pattern)
        answers = [
            runner.ask(
                TransactionShard.list_transactions,
                states,
                frozenset(request.producer_id_filters),
                request.duration_filter,
                matches,
            )
            for runner in broker.transactions.runners()
        ]
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=unknown, transaction_states=[])
    return together(
        answers,
        lambda shards: ListTransactionsResponse(
            unknown_state_filters=unknown, transaction_states=[found for shard in shards for found in shard]
        ),
    )


def _pattern(pattern: str | None) -> Callable[[str], object] | None:
    if not pattern:
        return None
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression: {error}"
        ) from error
