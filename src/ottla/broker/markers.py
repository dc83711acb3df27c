"""Markers: they end a transaction in the partitions of this broker."""

from __future__ import annotations

from ottla.broker.commits import PendingCommit
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from ottla.broker.replicas import Replicas
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.records.control import EndTransactionMarker
from ottla.transactions.state import FIRST_VERSION_WITH_BUMPS, ProducerIdAndEpoch


def write_marker(
    replicas: Replicas,
    groups: GroupCoordinator,
    name: TopicPartition,
    producer: ProducerIdAndEpoch,
    marker: EndTransactionMarker,
    client_version: int,
    now_ms: int,
) -> PendingCommit:
    """Ends a transaction in a partition of this broker, once that is committed; ApiError says why it cannot.

    Offsets that were committed in the transaction count from here on, or never.
    """
    partition = replicas.find(name.topic, name.partition)
    partition.log.producers.check_epoch(producer.producer_id, producer.epoch)
    if producer.producer_id < 0 or producer.epoch < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{producer.producer_id} with epoch {producer.epoch} is not a producer"
        )
    appended = partition.append_marker(
        producer.producer_id,
        producer.epoch,
        marker,
        raises_epoch=client_version >= FIRST_VERSION_WITH_BUMPS,
        now_ms=now_ms,
    )
    if name.topic == OFFSETS_TOPIC:
        groups.transaction_ended(name.partition, producer.producer_id, committed=marker.commit)
    return PendingCommit(partition, appended.last_offset + 1, partition.leadership)
