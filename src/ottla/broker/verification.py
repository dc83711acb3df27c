"""Whether what is written for a transaction belongs to one: its coordinator is asked before the first batch (KIP-890).

Producers of version 2 do not tell the coordinator beforehand which partitions they write to; asking adds the partition.
Older ones did tell, and asking finds out whether they did. In both cases nothing is written that no end would reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.broker_connections import BrokerConnections
from ottla.cluster.image import NO_LEADER
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.state import FIRST_VERSION_WITH_BUMPS, ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# By partition; NONE where it may be written to.
Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]


def verify(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    *,
    adds: bool,
) -> Verdicts | Coroutine[Any, Any, Verdicts]:
    """Asks the coordinator, in the codes of the coordinator. `adds`: the partitions take part from here on."""
    answer: Any = _ask(broker, transactional_id, producer, partitions, adds)
    if type(answer) is not CoroutineType and not (adds and _is_busy(answer)):
        verdicts: Verdicts = answer
        return verdicts
    return _verified_later(broker, transactional_id, producer, partitions, adds, answer)


def as_told_to(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """A verdict of the coordinator in the words of whoever writes records or offsets."""
    match code:
        case ErrorCode.PRODUCER_FENCED:  # fatal at the coordinator; a writer may still abort and go on
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if not knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        case _:
            return code


async def _verified_later(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    adds: bool,
    answer: Any,
) -> Verdicts:
    """Waits for the coordinator. The end of the transaction before is a matter of moments, so it is asked again."""
    deadline = broker.loop.time() + broker.config.add_partitions_to_txn_retry_backoff_max_ms / 1000
    while True:
        verdicts: Verdicts = await answer if type(answer) is CoroutineType else answer
        pause_s = broker.config.add_partitions_to_txn_retry_backoff_ms / 1000
        if not (adds and _is_busy(verdicts)) or broker.loop.time() + pause_s > deadline:
            return verdicts
        await asyncio.sleep(pause_s)
        answer = _ask(broker, transactional_id, producer, partitions, adds)


def _is_busy(verdicts: Verdicts) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()


def _ask(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    adds: bool,
) -> Any:
    try:
        runner = broker.transactions.runner_of(transactional_id)
        if adds:
            answer = runner.ask(
                TransactionShard.add_partitions, transactional_id, producer, partitions, FIRST_VERSION_WITH_BUMPS
            )
        else:
            answer = runner.ask(TransactionShard.verify_partitions, transactional_id, producer, partitions)
    except ApiError as error:
        if broker.cluster is not None and error.code == ErrorCode.NOT_COORDINATOR:
            return _ask_elsewhere(broker, broker.cluster.others, transactional_id, producer, partitions, adds)
        return dict.fromkeys(partitions, error.code)
    return _later(answer, partitions) if type(answer) is CoroutineType else _verdicts(answer, partitions)


async def _ask_elsewhere(
    broker: Broker,
    others: BrokerConnections,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    adds: bool,
) -> Verdicts:
    """The coordinator is another broker: AddPartitionsToTxn, as brokers send it to each other."""
    try:
        node_id = broker.transactions.node_of(transactional_id)
        if node_id in (NO_LEADER, broker.node_id):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates {transactional_id} now")
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name in partitions:
            topic = topics.setdefault(name.topic, AddPartitionsToTxnTopic(name=name.topic, partitions=[]))
            topic.partitions.append(name.partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=not adds,
            topics=list(topics.values()),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = await others.ask(node_id, request, AddPartitionsToTxnResponse)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        verdicts = {
            TopicPartition(topic_result.name, each.partition_index): ErrorCode(each.partition_error_code)
            for result in response.results_by_transaction
            for topic_result in result.topic_results
            for each in topic_result.results_by_partition
        }
        return {name: verdicts.get(name, ErrorCode.COORDINATOR_NOT_AVAILABLE) for name in partitions}
    except ApiError as error:
        # Of what the way to it failed by, a writer need not know: it tries again.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error.code == ErrorCode.NETWORK_EXCEPTION else error.code
        return dict.fromkeys(partitions, code)


async def _later(answer: Coroutine[Any, Any, Any], partitions: Collection[TopicPartition]) -> Verdicts:
    try:
        return _verdicts(await answer, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)


def _verdicts(answer: Any, partitions: Collection[TopicPartition]) -> Verdicts:
    """What was added is fine, without a word; what was looked for has a word for each."""
    return dict.fromkeys(partitions, ErrorCode.NONE) if answer is None else answer
