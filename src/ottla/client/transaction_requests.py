"""The requests of a transaction: of a producer for its own, or of whoever holds a `Prepared` one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from ottla.client.leaders import by_topic
from ottla.ids import TopicPartition
from ottla.net.client import BrokerConnection
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)

TWO_PHASE_VERSION: Final = 6  # of InitProducerId (KIP-939)
INIT_VERSION_MAX: Final = TWO_PHASE_VERSION - 1
ADD_PARTITIONS_VERSION_MAX: Final = 3  # later ones are for brokers
END_V1_MAX: Final = 4
TRANSACTION_VERSION: Final = "transaction.version"
IMPLICIT_PARTITIONS: Final = 2  # of that feature (KIP-890)


def uses_implicit_partitions(connection: BrokerConnection) -> bool:
    """Whether writing adds partitions to a transaction, and its end raises the epoch: version 2 of the protocol."""
    return connection.features.get(TRANSACTION_VERSION, 0) >= IMPLICIT_PARTITIONS


def add_partitions_request(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in by_topic(sorted(partitions)).items()
        ],
    )


def added_partition_codes(response: AddPartitionsToTxnResponse) -> Iterable[int]:
    return [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def end_request(transactional_id: str, producer_id: int, producer_epoch: int, *, commits: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commits,
    )
