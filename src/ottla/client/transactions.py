"""Transactions as an administrator sees them: which are open, what they hold up, and how to end one that nobody ends.

In the manner of `admin`: a `Cluster` and values in, values out; what is wrong with one of several transactional ids is
in the answer beside those that went well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client import admin
from ottla.client.coordinators import CoordinatorType, ask_coordinator, find_coordinator
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, retrying
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Of the producer that is let in to end another one's transaction, and that begins none itself.
ABORT_TIMEOUT_MS: Final = 60_000
INIT_VERSION_MAX: Final = 5  # the next one is for two-phase commits
ONGOING: Final = "Ongoing"


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # -1: none has begun
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction as a partition sees it: readers of committed data stop where it begins."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


# -- seeing ------------------------------------------------------------------------------------------------------------


async def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all brokers, by name. ApiError where a state is one that no broker knows."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    found = []
    for node_id in (await cluster.refresh(())).nodes:
        response = await cluster.ask_node(
            node_id, request, ListTransactionsResponse, lambda answer: (answer.error_code,)
        )
        error = error_of(response.error_code, None, f"the transactions of broker {node_id}")
        if error is not None:
            raise error
        if response.unknown_state_filters:
            names = ", ".join(response.unknown_state_filters)
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {node_id} knows no such state: {names}")
        found += [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in response.transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


async def describe_transactions(cluster: Cluster, names: Iterable[str]) -> dict[str, TransactionDescription | ApiError]:
    return {name: await _describe(cluster, name) for name in names}


async def _describe(cluster: Cluster, name: str) -> TransactionDescription | ApiError:
    kind = CoordinatorType.TRANSACTION
    coordinator = await retrying(
        lambda: find_coordinator(cluster, kind, name), cluster.deadline(), cluster.options.pauses
    )
    response = await ask_coordinator(
        cluster,
        kind,
        name,
        DescribeTransactionsRequest(transactional_ids=[name]),
        DescribeTransactionsResponse,
        lambda answer: (each.error_code for each in answer.transaction_states),
    )
    (found,) = response.transaction_states
    return error_of(found.error_code, None, kind.of(name)) or TransactionDescription(
        transactional_id=name,
        coordinator=coordinator,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=found.transaction_start_time_ms,
        partitions=tuple(TopicPartition(each.topic, number) for each in found.topics for number in each.partitions),
    )


async def open_transactions(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
    """The transactions that are open in these partitions, whether a coordinator knows of them or not."""
    producers = await admin.describe_producers(cluster, partitions)
    return [
        OpenTransaction(
            partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
            each.last_timestamp,
        )
        for partition in sorted(producers)
        for each in producers[partition]
        if each.current_txn_start_offset >= 0
    ]


async def hanging_transactions(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
    """Those of the open transactions that no coordinator will end: it does not know that the partition takes part."""
    found = await open_transactions(cluster, partitions)
    if not found:
        return []
    listed = await list_transactions(cluster, producer_ids={each.producer_id for each in found})
    described = await describe_transactions(cluster, [each.transactional_id for each in listed])
    will_end = {
        (partition, each.producer_id)
        for each in described.values()
        if isinstance(each, TransactionDescription)
        for partition in each.partitions
    }
    return [each for each in found if (each.partition, each.producer_id) not in will_end]


# -- ending ------------------------------------------------------------------------------------------------------------


async def abort_transaction(cluster: Cluster, transactional_id: str) -> bool:
    """Aborts what is open under a transactional id; whether anything was.

    Its producer is fenced, so it can only go on by starting anew. When this returns every partition knows.
    """
    described = await _describe(cluster, transactional_id)
    if isinstance(described, ApiError):
        raise described
    if described.state != ONGOING:
        return False
    kind = CoordinatorType.TRANSACTION
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=ABORT_TIMEOUT_MS)

    async def attempt() -> None:
        """Introduces a new producer: the old one's transaction is aborted first, which takes a moment."""
        response = await ask_coordinator(
            cluster,
            kind,
            transactional_id,
            request,
            InitProducerIdResponse,
            lambda answer: (answer.error_code,),
            version_max=INIT_VERSION_MAX,
        )
        error = error_of(response.error_code, None, kind.of(transactional_id))
        if error is not None:
            raise error

    await retrying(attempt, cluster.deadline(), cluster.options.pauses)
    return True


async def abort_in_partition(cluster: Cluster, transaction: OpenTransaction) -> None:
    """Aborts a hanging transaction where it hangs, by a marker that no coordinator has sent."""
    partition = transaction.partition
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )

    async def ask(node_id: int, asked: Collection[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
        connection = await cluster.connection(node_id)
        response = await connection.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        (result,) = response.markers[0].topics[0].partitions
        return {partition: error_of(result.error_code, None, f"the transaction in {partition}")}

    await admin.ask_leaders(cluster, [partition], ask)
