"""EndTxn: a producer commits or aborts its transaction. Answered once the decision stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.transaction_requests import without_fenced
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import FIRST_VERSION_WITH_BUMPS

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_FENCED_VERSION = 2
FIRST_VERSION_2_VERSION = 5


async def handle(broker: Broker, request: EndTxnRequest, context: Context) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    client_version = FIRST_VERSION_WITH_BUMPS if context.version >= FIRST_VERSION_2_VERSION else 0
    new_producer_id = None
    try:
        runner = broker.transactions.runner_of(request.transactional_id)
        if client_version and runner.machine.is_exhausted(request.transactional_id):
            # The producer's epochs are used up: it goes on under another id.
            new_producer_id = await broker.producer_ids.next()
        response: EndTxnResponse = await runner.ask(
            TransactionShard.end_transaction, request, client_version, new_producer_id
        )
    except ApiError as error:
        return EndTxnResponse(error_code=without_fenced(error.code, context.version, FIRST_FENCED_VERSION))
    return response
