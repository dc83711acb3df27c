"""The coordinator of transactions: which topic keeps them, and what its machines are made of."""

from __future__ import annotations

import logging

from ottla.broker.coordinators import Coordinator, CoordinatorParts, CoordinatorShard
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.journal import Replay, decoding
from ottla.broker.marker_delivery import MarkerDelivery
from ottla.broker.metadata_changes import RequestedTopic
from ottla.broker.remote_markers import RemoteMarkers
from ottla.config.broker import BrokerConfig
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS
from ottla.transactions.coordinator import TransactionShard
from ottla.transactions.settings import TransactionSettings

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"


class TransactionCoordinator(Coordinator[TransactionShard]):
    """The transactions that this broker coordinates."""

    def __init__(self, parts: CoordinatorParts, groups: GroupCoordinator, remote_markers: RemoteMarkers | None) -> None:
        """`groups` take part in transactions as the keepers of offsets. `remote_markers`: None without a cluster."""
        super().__init__(
            parts,
            TRANSACTIONS_TOPIC,
            make_machine=lambda: TransactionShard(lambda: self._settings),
            make_replay=lambda machine: Replay(decoding(TRANSACTION_RECORDS, machine.apply), _no_transactions_here),
            new_topic=transactions_topic,
        )
        self._groups = groups
        self._remote_markers = remote_markers
        self._settings = TransactionSettings.of(parts.config())

    def configure(self, config: BrokerConfig) -> None:
        """Settings changed: machines take them at once."""
        self._settings = TransactionSettings.of(config)

    def _performer_of(self, shard: CoordinatorShard[TransactionShard]) -> MarkerDelivery:
        return MarkerDelivery(shard, self._parts, self._groups, self._remote_markers)


def _no_transactions_here(producer_id: int, committed: bool) -> None:
    logger.warning("there is a marker of producer %d in %s, which has no transactions", producer_id, TRANSACTIONS_TOPIC)


def transactions_topic(config: BrokerConfig) -> RequestedTopic:
    factor = config.transaction_state_log_replication_factor
    return RequestedTopic(
        TRANSACTIONS_TOPIC,
        partition_count=config.transaction_state_log_num_partitions,
        replication_factor=factor,
        config={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
