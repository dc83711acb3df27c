"""ListTransactions: the transactions that this broker coordinates, by state, producer, duration and name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.groups.patterns import TopicPattern
from ottla.protocol.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)
from ottla.runtime.stepping import all_of
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import STATES_BY_TITLE

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

Found = list[ListTransactionsResponseTransactionState]


async def handle(broker: Broker, request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    known = {STATES_BY_TITLE[title] for title in request.state_filters if title in STATES_BY_TITLE}
    states = known if request.state_filters else None
    producer_ids = frozenset(request.producer_id_filters)
    try:
        shards = await all_of(
            (
                runner.ask(TransactionShard.list_transactions, states, producer_ids, request.duration_filter)
                for runner in broker.transactions.runners()
            ),
            broker.turns,
        )
    except ApiError as error:
        return _refused(request, error.code)
    found = [one for steps in shards for one in await broker.turns.finish(steps)]
    if request.transactional_id_pattern:
        try:
            found = _matching(request.transactional_id_pattern, found)
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])
    return ListTransactionsResponse(unknown_state_filters=_unknown(request), transaction_states=found)


def _matching(pattern: str, found: Found) -> Found:
    """Those whose transactional id matches as a whole; ApiError where the pattern is none, or takes too long."""
    names = [one.transactional_id for one in found]
    matching = TopicPattern(pattern, frozenset().union(*names)).matching(names)
    return [one for one in found if one.transactional_id in matching]


def _refused(request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=_unknown(request), transaction_states=[])


def _unknown(request: ListTransactionsRequest) -> list[str]:
    return list(dict.fromkeys(title for title in request.state_filters if title not in STATES_BY_TITLE))
