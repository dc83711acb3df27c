"""AddPartitionsToTxn: partitions take part in a transaction. Producers ask for one, brokers for many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.transaction_requests import unknown_partitions, without_fenced
from ottla.cluster.image import INTERNAL_TOPICS, ClusterImage
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.runtime.stepping import all_of
from ottla.runtime.turns import STEP, Steps
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import FIRST_VERSION_WITH_BUMPS, ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_FENCED_VERSION = 2
PARTITIONS_PER_STEP = 1000
FIRST_BATCHED_VERSION = 4
FIRST_VERSION_2_VERSION = 5  # a broker asks for a producer that does not ask itself

Codes = Mapping[TopicPartition, ErrorCode]


async def handle(broker: Broker, request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_BATCHED_VERSION:
        asked = (_add(broker, transaction, context.version) for transaction in request.transactions)
        answers = await all_of(asked, broker.turns)
        return await broker.turns.finish(_batched(request, answers))
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _add(broker, transaction, context.version)
    results = await broker.turns.finish(_results(transaction.topics, codes))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add(broker: Broker, transaction: AddPartitionsToTxnTransaction, version: int) -> Codes:
    """A code for each partition; all of them are added or none."""
    partitions = await broker.turns.finish(_partitions(transaction.topics))
    refused = await broker.turns.finish(_refused(broker.image, partitions, version))
    if refused is not None:
        return refused
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    client_version = FIRST_VERSION_WITH_BUMPS if version >= FIRST_VERSION_2_VERSION else 0

    def refuse(code: ErrorCode) -> Codes | None:
        return dict.fromkeys(partitions, without_fenced(code, version, FIRST_FENCED_VERSION))

    ask = partial(broker.transactions.ask, transaction.transactional_id, refuse)
    if transaction.verify_only:
        codes = await ask(TransactionShard.verify_partitions, transaction.transactional_id, producer, partitions)
    else:
        codes = await ask(
            TransactionShard.add_partitions, transaction.transactional_id, producer, partitions, client_version
        )
    return dict.fromkeys(partitions, ErrorCode.NONE) if codes is None else codes


def _refused(image: ClusterImage, partitions: list[TopicPartition], version: int) -> Steps[Codes | None]:
    """The codes where some cannot be added; None where all can."""
    codes: dict[TopicPartition, ErrorCode] = {}
    is_refused = False
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        piece = partitions[start : start + PARTITIONS_PER_STEP]
        found = dict.fromkeys(unknown_partitions(image, piece), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if version < FIRST_BATCHED_VERSION:  # a client's: brokers add the offsets of a transaction's group
            internal = [name for name in piece if name.topic in INTERNAL_TOPICS]
            found |= dict.fromkeys(internal, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        is_refused = is_refused or bool(found)
        codes |= dict.fromkeys(piece, ErrorCode.OPERATION_NOT_ATTEMPTED) | found
        yield
    return codes if is_refused else None


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> Steps[list[TopicPartition]]:
    partitions: list[TopicPartition] = []
    for topic in topics:
        partitions += [TopicPartition(topic.name, index) for index in topic.partitions]
        yield
    return partitions


def _results(topics: list[AddPartitionsToTxnTopic], codes: Codes) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        of_topic = []
        for index in topic.partitions:
            code = codes[TopicPartition(topic.name, index)]
            of_topic.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            if len(of_topic) % STEP == 0:
                yield
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=of_topic))
        yield
    return results


def _batched(request: AddPartitionsToTxnRequest, answers: list[Codes]) -> Steps[AddPartitionsToTxnResponse]:
    results = []
    for transaction, codes in zip(request.transactions, answers, strict=True):
        topics = yield from _results(transaction.topics, codes)
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics))
        yield
    return AddPartitionsToTxnResponse(results_by_transaction=results)
