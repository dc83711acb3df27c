"""AddOffsetsToTxn: the offsets of a group take part in a transaction: the partition that keeps them is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.transaction_requests import without_fenced
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_FENCED_VERSION = 2
FIRST_TRANSACTIONS_VERSION = 0  # how records name the first generation; the second does not ask this


async def handle(broker: Broker, request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not broker.groups.is_ready:
        # A producer asks this before it looks for the group's coordinator, whose topic may not be there yet.
        try:
            await broker.carried_out(broker.groups.create_topic())
        except ApiError:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def refuse(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=without_fenced(code, context.version, FIRST_FENCED_VERSION))

    refused = await broker.transactions.ask(
        request.transactional_id,
        refuse,
        TransactionShard.add_partitions,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(broker.groups.topic, broker.groups.partition_of(request.group_id))],
        FIRST_TRANSACTIONS_VERSION,
    )
    return refused or AddOffsetsToTxnResponse()
