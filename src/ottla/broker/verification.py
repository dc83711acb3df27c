"""Whether what is written for a transaction belongs to one: its coordinator is asked before the first batch (KIP-890).

Producers of version 2 do not add their partitions to the transaction beforehand; asking the coordinator adds them.
Older ones add them, and asking checks whether they did. In both cases every partition that is written to gets a marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from ottla.broker.broker_connections import BrokerConnections
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.cluster.image import NO_LEADER
from ottla.config.broker import BrokerConfig
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

FIRST_VERIFYING_VERSION = 4  # of AddPartitionsToTxn

# By partition; NONE where it may be written to.
Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]


class TransactionVerifier:
    """Asks the coordinator of a transaction, here or on another broker of the cluster."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        node_id: int,
        config: Callable[[], BrokerConfig],
        connections: BrokerConnections | None,
    ) -> None:
        """`connections`: to the other brokers of the cluster; None without one."""
        self._transactions = transactions
        self._node_id = node_id
        self._config = config
        self._connections = connections

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        begin_again: Callable[[TopicPartition], bool],
    ) -> Verdicts:
        """Asks the coordinator, in the codes of the coordinator. `adds`: the partitions take part from here on.

        The end of the transaction before is a matter of moments, so it is asked again. Its markers may come only now:
        `begin_again` begins the verification of a partition again if one has, and says whether; that one is asked about
        once more. A marker that comes after the partition was added ends this transaction, and no other.
        """
        verdicts = await self._ask_until_free(transactional_id, producer, partitions, adds)
        if not adds:
            return verdicts
        outdated = [name for name, verdict in verdicts.items() if not verdict and begin_again(name)]
        if not outdated:
            return verdicts
        return {**verdicts, **await self._ask_until_free(transactional_id, producer, outdated, adds)}

    async def _ask_until_free(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], adds: bool
    ) -> Verdicts:
        """Waits for the end of the transaction before, if it does not take too long."""
        verdicts = await self._ask(transactional_id, producer, partitions, adds)
        if adds and _is_busy(verdicts):
            config, time = self._config(), asyncio.get_running_loop().time
            deadline = time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
            pause_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
            while _is_busy(verdicts) and time() + pause_s <= deadline:
                await asyncio.sleep(pause_s)
                verdicts = await self._ask(transactional_id, producer, partitions, adds)
        return verdicts

    async def _ask(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], adds: bool
    ) -> Verdicts:
        try:
            runner = self._transactions.runner_of(transactional_id)
            if adds:
                await runner.ask(
                    TransactionShard.add_partitions, transactional_id, producer, partitions, FIRST_VERSION_WITH_BUMPS
                )
                return dict.fromkeys(partitions, ErrorCode.NONE)
            verdicts: Verdicts = await runner.ask(
                TransactionShard.verify_partitions, transactional_id, producer, partitions
            )
        except ApiError as error:
            if self._connections is not None and error.code == ErrorCode.NOT_COORDINATOR:
                return await self._ask_elsewhere(self._connections, transactional_id, producer, partitions, adds)
            return dict.fromkeys(partitions, error.code)
        return verdicts

    async def _ask_elsewhere(
        self,
        connections: BrokerConnections,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        adds: bool,
    ) -> Verdicts:
        """The coordinator is another broker: AddPartitionsToTxn, as brokers send it to each other."""
        try:
            node_id = self._transactions.node_of(transactional_id)
            if node_id in (NO_LEADER, self._node_id):
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates {transactional_id} now")
            request = _request(transactional_id, producer, partitions, adds)
            response = await connections.ask(
                node_id, request, AddPartitionsToTxnResponse, version_min=FIRST_VERIFYING_VERSION
            )
            if response.error_code:
                raise ApiError(ErrorCode.of(response.error_code))
        except ApiError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION and not adds:
                # The coordinator is on Kafka before 3.5: nothing can be verified there, and nothing was.
                return dict.fromkeys(partitions, ErrorCode.NONE)
            # The writer need not know how the request failed: it tries again.
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error.code == ErrorCode.NETWORK_EXCEPTION else error.code
            return dict.fromkeys(partitions, code)
        verdicts = {
            TopicPartition(topic_result.name, each.partition_index): ErrorCode.of(each.partition_error_code)
            for result in response.results_by_transaction
            for topic_result in result.topic_results
            for each in topic_result.results_by_partition
        }
        return {name: verdicts.get(name, ErrorCode.COORDINATOR_NOT_AVAILABLE) for name in partitions}


def code_for_writer(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """A verdict of the coordinator in the words of whoever writes records or offsets."""
    match code:
        case ErrorCode.PRODUCER_FENCED:  # fatal at the coordinator; a writer may still abort and go on
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if not knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        case _:
            return code


def _is_busy(verdicts: Verdicts) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()


def _request(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], adds: bool
) -> AddPartitionsToTxnRequest:
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
    return AddPartitionsToTxnRequest(transactions=[transaction])
