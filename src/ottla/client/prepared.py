"""Transactions whose end is somebody else's decision: one process writes them, another one ends them.

    opened = await begin(cluster, "copy-7", timeout_ms=900_000, two_phase=await has_two_phase(cluster))
    producer = ClusterProducer(cluster, transaction=opened)             # writes, and never commits
    ...
    await end(cluster, opened, commits=True)                            # anywhere, by anybody who holds the value

With a two-phase transaction (KIP-939) only an explicit end ends it. Without, its time does too: brokers abort it after
`timeout_ms`, whatever was decided.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, raise_if, retrying
from ottla.client.transaction_requests import (
    ADD_PARTITIONS_VERSION_MAX,
    END_V1_MAX,
    INIT_VERSION_MAX,
    TWO_PHASE_VERSION,
    add_partitions_request,
    added_partition_codes,
    end_request,
    uses_implicit_partitions,
)
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

INIT_PRODUCER_ID: Final = 22
# What an end is answered with where the transaction is not there any more: somebody else has ended it.
_NOT_ITS_OWN: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class EndedOtherwiseError(OttlaError):
    """A transaction that was to be ended has ended in another way: by its timeout, or by an administrator."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction by what ends it. Everything in it is written and acknowledged once it leaves its writer's hands."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    raises_epochs: bool  # the version of the protocol that it was begun with (KIP-890), which its end must have too


async def has_two_phase(cluster: Cluster) -> bool:
    """Whether brokers have transactions that no timeout ends; they announce it only where they allow it."""
    versions = (await cluster.any_connection()).versions.get(INIT_PRODUCER_ID)
    return versions is not None and versions.last >= TWO_PHASE_VERSION


async def begin(cluster: Cluster, transactional_id: str, timeout_ms: int, *, two_phase: bool) -> Prepared:
    """A transaction to write in. What is open under that id is aborted, and whoever wrote it is fenced."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase
    )

    async def attempt() -> Prepared:
        response = await ask_coordinator(
            cluster,
            CoordinatorType.TRANSACTION,
            transactional_id,
            request,
            InitProducerIdResponse,
            lambda answer: (answer.error_code,),
            version_max=None if two_phase else INIT_VERSION_MAX,
        )
        raise_if(_error(response.error_code, transactional_id))
        raises_epochs = uses_implicit_partitions(await cluster.any_connection())
        return Prepared(transactional_id, response.producer_id, response.producer_epoch, raises_epochs)

    return await retrying(attempt, cluster.deadline(), cluster.options.pauses)


async def add_partitions(cluster: Cluster, transaction: Prepared, partitions: Collection[TopicPartition]) -> None:
    """By the old rules partitions are added before they are written to; by the new ones writing adds them."""
    request = add_partitions_request(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, partitions
    )

    async def attempt() -> None:
        response = await ask_coordinator(
            cluster,
            CoordinatorType.TRANSACTION,
            transaction.transactional_id,
            request,
            AddPartitionsToTxnResponse,
            added_partition_codes,
            version_max=ADD_PARTITIONS_VERSION_MAX,
        )
        for code in added_partition_codes(response):
            raise_if(_error(code, transaction.transactional_id))

    await retrying(attempt, cluster.deadline(), cluster.options.pauses)


async def end(cluster: Cluster, transaction: Prepared, *, commits: bool) -> Prepared:
    """Ends a transaction, which may be asked for again and again; the identity of the next one.

    EndedOtherwiseError where it was ended in another way, or its transactional id has a newer one.
    """
    request = end_request(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, commits=commits
    )

    async def attempt() -> EndTxnResponse:
        response = await ask_coordinator(
            cluster,
            CoordinatorType.TRANSACTION,
            transaction.transactional_id,
            request,
            EndTxnResponse,
            lambda answer: (answer.error_code,),
            version_max=None if transaction.raises_epochs else END_V1_MAX,
        )
        raise_if(_error(response.error_code, transaction.transactional_id))
        return response

    try:
        response = await retrying(attempt, cluster.deadline(), cluster.options.pauses)
    except ApiError as error:
        if error.code in _NOT_ITS_OWN:
            raise EndedOtherwiseError(str(error)) from error
        raise
    if not transaction.raises_epochs:
        return transaction
    return replace(transaction, producer_id=response.producer_id, producer_epoch=response.producer_epoch)


def _error(code: int, transactional_id: str) -> ApiError | None:
    return error_of(code, None, CoordinatorType.TRANSACTION.of(transactional_id))
