"""Transactions as an administrator sees them: which are open, what they hold up, and ending one that nobody ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import only
from ottla.client.admin.partitions import PartitionCalls
from ottla.client.coordinators import CoordinatorType, ask_coordinator, known_coordinator
from ottla.client.error_codes import InvalidRequestError
from ottla.client.retrying import Deadline, error_of, raise_if, retrying
from ottla.errors import ApiError
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
FENCE_TIMEOUT_MS: Final = 60_000
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


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that a transactional id has now: whoever had it before is fenced."""

    producer_id: int
    producer_epoch: int


class TransactionCalls(PartitionCalls):
    # -- seeing --------------------------------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, by name: in these states, of these producers, open for so long."""
        deadline = self._deadline(timeout_s)
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node_id: int) -> list[TransactionListing]:
            response = await self._cluster.ask_node(
                node_id, request, ListTransactionsResponse, lambda answer: (answer.error_code,), deadline
            )
            raise_if(error_of(response.error_code, None, f"the transactions of broker {node_id}"))
            if response.unknown_state_filters:
                names = ", ".join(response.unknown_state_filters)
                raise InvalidRequestError(f"broker {node_id} knows no such state: {names}")
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
                for each in response.transaction_states
            ]

        found: list[TransactionListing] = []
        for listed in (await self._from_every_broker(ask, deadline)).values():
            if not isinstance(listed, list):
                raise listed  # a list that lacks a broker's transactions would look whole
            found += listed
        return sorted(found, key=lambda each: each.transactional_id)

    async def describe_transaction(
        self, transactional_id: str, *, timeout_s: float | None = None
    ) -> TransactionDescription:
        """State, producer and partitions of a transactional id."""
        return only(await self.describe_transactions([transactional_id], timeout_s=timeout_s))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | ApiError]:
        """State, producer and partitions of transactional ids."""
        deadline = self._deadline(timeout_s)
        return await self._for_each(transactional_ids, lambda name: self._describe_transaction(name, deadline))

    async def _describe_transaction(self, name: str, deadline: Deadline) -> TransactionDescription:
        kind = CoordinatorType.TRANSACTION
        response = await ask_coordinator(
            self._cluster,
            kind,
            name,
            DescribeTransactionsRequest(transactional_ids=[name]),
            DescribeTransactionsResponse,
            lambda answer: (each.error_code for each in answer.transaction_states),
            deadline=deadline,
        )
        (found,) = response.transaction_states
        raise_if(error_of(found.error_code, None, kind.of(name)))
        return TransactionDescription(
            transactional_id=name,
            coordinator=await known_coordinator(self._cluster, kind, name),
            state=found.transaction_state,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            start_ms=found.transaction_start_time_ms,
            partitions=tuple(TopicPartition(each.topic, number) for each in found.topics for number in each.partitions),
        )

    async def open_transactions(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, whether a coordinator knows of them or not."""
        producers = await self.describe_producers(partitions, timeout_s=timeout_s)
        found = []
        for partition in sorted(producers):
            remembered = producers[partition]
            if isinstance(remembered, ApiError):
                raise remembered
            found += [
                OpenTransaction(
                    partition,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.transaction_start_offset,
                    each.last_timestamp_ms,
                )
                for each in remembered
                if each.transaction_start_offset >= 0
            ]
        return found

    async def hanging_transactions(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> list[OpenTransaction]:
        """Those of the open transactions that no coordinator will end: it does not know that the partition takes part.

        Readers of committed records wait for them for ever; `abort_open_transaction` ends one.
        """
        deadline = self._deadline(timeout_s)
        found = await self.open_transactions(partitions, timeout_s=deadline.left_s)
        if not found:
            return []
        producer_ids = {each.producer_id for each in found}
        listed = await self.list_transactions(producer_ids=producer_ids, timeout_s=deadline.left_s)
        names = [each.transactional_id for each in listed]
        described = await self.describe_transactions(names, timeout_s=deadline.left_s)
        will_end = {
            (partition, each.producer_id)
            for each in described.values()
            if isinstance(each, TransactionDescription)
            for partition in each.partitions
        }
        return [each for each in found if (each.partition, each.producer_id) not in will_end]

    # -- ending --------------------------------------------------------------------------------------------------------

    async def fence_producer(self, transactional_id: str, *, timeout_s: float | None = None) -> FencedProducer:
        """Fences whoever has a transactional id; what it left open is aborted, and every partition knows."""
        return only(await self.fence_producers([transactional_id], timeout_s=timeout_s))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, FencedProducer | ApiError]:
        """Fences whoever has these transactional ids; what they left open is aborted."""
        deadline = self._deadline(timeout_s)
        return await self._for_each(transactional_ids, lambda name: self._fence(name, deadline))

    async def _fence(self, transactional_id: str, deadline: Deadline) -> FencedProducer:
        kind = CoordinatorType.TRANSACTION
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)

        async def attempt() -> FencedProducer:
            """Introduces a new producer: the old one's transaction is aborted first, which takes a moment."""
            response = await ask_coordinator(
                self._cluster,
                kind,
                transactional_id,
                request,
                InitProducerIdResponse,
                lambda answer: (answer.error_code,),
                version_max=INIT_VERSION_MAX,
                deadline=deadline,
            )
            raise_if(error_of(response.error_code, None, kind.of(transactional_id)))
            return FencedProducer(response.producer_id, response.producer_epoch)

        return await retrying(attempt, deadline, self._cluster.options.pauses)

    async def abort_transaction(self, transactional_id: str, *, timeout_s: float | None = None) -> bool:
        """Aborts what is open under a transactional id; whether anything was.

        Its producer is fenced, so it has to start again. When this returns every partition knows.
        """
        deadline = self._deadline(timeout_s)
        described = await self._describe_transaction(transactional_id, deadline)
        if described.state != ONGOING:
            return False
        await self._fence(transactional_id, deadline)
        return True

    async def abort_open_transaction(self, transaction: OpenTransaction, *, timeout_s: float | None = None) -> None:
        """Aborts a hanging transaction where it hangs, by a marker that no coordinator has sent."""
        partition = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )

        async def ask(node_id: int, asked: Sequence[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
            connection = await self._cluster.leader_connection(node_id)
            response = await connection.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
            (result,) = response.markers[0].topics[0].partitions
            return {partition: error_of(result.error_code, None, f"the transaction in {partition}")}

        only(await self._ask_leaders([partition], ask, self._deadline(timeout_s)))
