"""InitProducerId: an id of its own for every producer; one with a transactional id fences those that had it before."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.transaction_requests import waited_for, without_fenced
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.transactions.coordinator import TransactionShard

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NONE = -1  # what a producer without an id, and without an epoch, sends
FIRST_FENCED_VERSION = 4  # earlier clients do not know PRODUCER_FENCED


def handle(
    broker: Broker, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refused(context, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        # One that lost count asks with its old id; it gets a new one, whose sequences start at 0.
        return _with_new_id(broker, context)
    refuse = partial(_refused, context)
    try:
        runner = broker.transactions.runner_of(request.transactional_id)
    except ApiError as error:
        return refuse(error.code)
    if runner.machine.wants_producer_id(request.transactional_id):
        return _with_transactions_of_new_id(broker, request.transactional_id, request, context)
    return broker.transactions.ask(request.transactional_id, refuse, TransactionShard.init_producer_id, request, None)


async def _with_new_id(broker: Broker, context: Context) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.next()
    except ApiError as error:
        return _refused(context, error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _with_transactions_of_new_id(
    broker: Broker, transactional_id: str, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.next()
    except ApiError as error:
        return _refused(context, error.code)
    return await waited_for(
        broker.transactions.ask(
            transactional_id, partial(_refused, context), TransactionShard.init_producer_id, request, producer_id
        )
    )


def _refused(context: Context, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=without_fenced(code, context.version, FIRST_FENCED_VERSION), producer_epoch=-1
    )
