"""InitProducerId: an id of its own for every producer; one with a transactional id fences those that had it before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.transaction_requests import without_fenced
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.transactions.coordinator import TransactionShard

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NONE = -1  # what a producer without an id, and without an epoch, sends
FIRST_FENCED_VERSION = 4  # earlier clients do not know PRODUCER_FENCED


async def handle(broker: Broker, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refused(context, ErrorCode.INVALID_REQUEST)
    refuse = partial(_refused, context)
    transactional_id, new_producer_id = request.transactional_id, None
    try:
        if transactional_id is None:
            # One that lost count asks with its old id; it gets a new one, whose sequences start at 0.
            return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
        if broker.transactions.runner_of(transactional_id).machine.wants_producer_id(transactional_id):
            new_producer_id = await broker.producer_ids.next()
    except ApiError as error:
        return refuse(error.code)
    return await broker.transactions.ask(
        transactional_id, refuse, TransactionShard.init_producer_id, request, new_producer_id
    )


def _refused(context: Context, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=without_fenced(code, context.version, FIRST_FENCED_VERSION), producer_epoch=-1
    )
