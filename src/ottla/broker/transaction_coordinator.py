"""The coordinator of transactions: which topic keeps them, and how their ends reach the partitions.

Where everything is on this broker and committed at once, a transaction's end is told to its partitions in the turn in
which it was decided, before the producer hears of it: its next transaction need not wait. What cannot be done at once
goes on in the background until every partition knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ottla.broker.commits import PendingCommit, committed
from ottla.broker.coordinators import Coordinator, CoordinatorShard
from ottla.broker.journal import Replay, decoding
from ottla.broker.markers import write_marker
from ottla.broker.metadata_changes import RequestedTopic
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.control import EndTransactionMarker
from ottla.transactions.coordinator import DueMarkers, TransactionShard
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.state import PREPARED

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.cluster_member import ClusterMember

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
MARKERS_AT_ONCE_MAX = 64  # written in the turn of the decision
MARKERS_PER_TURN = 8  # of larger transactions; a marker may have to begin a new segment, which takes milliseconds
RETRY_S = 0.1  # until partitions that could not take a marker are tried again; twice as long each time
RETRY_S_MAX = 5.0
# Nothing is left to tell these: the partition is gone, or knows of a later transaction of the producer.
SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)


class Bell:
    """The ticket for the ends of transactions: rings with the markers that are due, or with an error."""

    __slots__ = ("ring",)

    def __init__(self) -> None:
        self.ring: Callable[[Any], None] = lambda reply: None

    def fill(self, reply: object) -> None:
        self.ring(reply)


class Unheard:
    """The ticket of a request whose answer nobody needs: whether it worked is seen from the state."""

    def fill(self, reply: object) -> None: ...


class TransactionCoordinator(Coordinator[TransactionShard]):
    """The transactions that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(
            broker,
            TRANSACTIONS_TOPIC,
            make_machine=lambda: TransactionShard(lambda: self._settings, Bell()),
            make_replay=lambda machine: Replay(decoding(TRANSACTION_RECORDS, machine.apply), _no_transactions_here),
            new_topic=transactions_topic,
        )
        self._settings = TransactionSettings.of(broker.config)
        # The transactional ids whose markers a task is sending: one that has to wait holds up no other.
        self._told_later: set[str] = set()

    def configure(self, config: BrokerConfig) -> None:
        """Settings changed: machines take them at once."""
        self._settings = TransactionSettings.of(config)

    def _start(self, shard: CoordinatorShard[TransactionShard]) -> None:
        bell = shard.machine.marker_ticket
        assert isinstance(bell, Bell)
        bell.ring = lambda reply: self._end_decided(shard, reply)
        super()._start(shard)

    # -- markers -------------------------------------------------------------------------------------------------------

    def _end_decided(self, shard: CoordinatorShard[TransactionShard], due: DueMarkers | ErrorCode) -> None:
        """The end of a transaction stands: tells what can be told at once, and leaves the rest to a task."""
        if not shard.partition.is_leader:
            return  # the next leader finds it in the log
        if isinstance(due, ErrorCode):
            # Nobody can say yet whether it stands: whoever asks for what is due waits until that is known.
            self._broker.in_background(f"decisions of {shard.partition.name}", self._tell_decided(shard))
        elif not self._is_told_at_once(shard, due):
            self._tell_later(shard, due.transactional_id)

    def _is_told_at_once(self, shard: CoordinatorShard[TransactionShard], due: DueMarkers) -> bool:
        """Whether the transaction is complete already: its partitions are few, here, and commit what they are given."""
        if len(due.partitions) > MARKERS_AT_ONCE_MAX or not all(map(self._commits_at_once, due.partitions)):
            return False
        _, unwritten = self._write(shard, due, due.partitions)
        self._written(shard, due, [name for name in due.partitions if name not in unwritten])
        transaction = shard.machine.transaction(due.transactional_id)
        return transaction is None or transaction.state not in PREPARED

    def _commits_at_once(self, name: TopicPartition) -> bool:
        try:
            return self._broker.replicas.find(name.topic, name.partition).is_led_alone
        except ApiError as error:
            # In a cluster a topic of which nothing is known yet may be there all the same.
            return self._broker.cluster is None and error.code in SETTLED

    def _tell_later(self, shard: CoordinatorShard[TransactionShard], transactional_id: str) -> None:
        if transactional_id not in self._told_later:
            self._told_later.add(transactional_id)
            self._broker.in_background(f"markers of {transactional_id}", self._tell_all(shard, transactional_id))

    async def _tell_decided(self, shard: CoordinatorShard[TransactionShard]) -> None:
        try:
            for due in await self._due(shard):
                self._tell_later(shard, due.transactional_id)
        except ApiError as error:
            logger.warning("%s: the outcome of transactions is not known: %s", shard.partition.name, error)

    @staticmethod
    async def _due(shard: CoordinatorShard[TransactionShard]) -> list[DueMarkers]:
        """Everything that stands and is not told, once it is known to stand."""
        if shard.runner is None:
            return []
        due: list[DueMarkers] = await shard.runner.ask(TransactionShard.due_markers)
        return due

    async def _tell_all(self, shard: CoordinatorShard[TransactionShard], transactional_id: str) -> None:
        """Goes on until every partition of a transaction knows, or somebody else coordinates."""
        pause_s = RETRY_S
        try:
            while self._shards.get(shard.partition.name.partition) is shard:
                due = next((one for one in await self._due(shard) if one.transactional_id == transactional_id), None)
                if due is None:
                    return
                if await self._tell(shard, due):
                    pause_s = RETRY_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, RETRY_S_MAX)
        except ApiError as error:
            logger.info("the markers of %s are left to the next leader: %s", transactional_id, error)
        finally:
            self._told_later.discard(transactional_id)

    async def _tell(self, shard: CoordinatorShard[TransactionShard], due: DueMarkers) -> bool:
        """Tells the partitions of one transaction; whether any of them has heard."""
        if not due.partitions:  # all know; what could not be written is that they do
            self._written(shard, due, ())
        is_progress = False
        for start in range(0, len(due.partitions), MARKERS_PER_TURN):
            some = due.partitions[start : start + MARKERS_PER_TURN]
            elsewhere, heard = await self._tell_elsewhere(shard, due, some)
            if not shard.partition.is_leader:
                return is_progress  # the next leader finds it in the log
            written, unwritten = self._write(shard, due, [name for name in some if name not in elsewhere])
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in unwritten.values():
                # Trying again would not help: partitions listen to a coordinator of a later epoch.
                raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "another coordinator has ended transactions")
            deadline = self._broker.loop.time() + self._broker.config.request_timeout_ms / 1000
            await committed(list(written.values()), deadline)
            done = [
                name
                for name in some
                if name in heard or (name not in elsewhere and name not in unwritten and _is_told(written.get(name)))
            ]
            if done:
                is_progress = True
                self._written(shard, due, done)
            await self._broker.turns.give_way()
        return is_progress

    async def _tell_elsewhere(
        self, shard: CoordinatorShard[TransactionShard], due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Partitions of other brokers in a cluster, which their leaders are told: all of them, and those that know."""
        cluster = self._broker.cluster
        if cluster is None:
            return set(), set()
        image = self._broker.image
        elsewhere: set[TopicPartition] = set()
        heard: set[TopicPartition] = set()
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            state = image.partition(name)
            if state is None:
                elsewhere.add(name)
                if await cluster.is_topic_gone(name.topic):
                    heard.add(name)  # nothing is left to tell
            elif state.leader != self._broker.node_id:
                elsewhere.add(name)
                by_leader.setdefault(state.leader, []).append(name)
        for told in await asyncio.gather(
            *(self._tell_leader(cluster, shard, due, leader, names) for leader, names in by_leader.items())
        ):
            heard |= told
        return elsewhere, heard

    async def _tell_leader(
        self,
        cluster: ClusterMember,
        shard: CoordinatorShard[TransactionShard],
        due: DueMarkers,
        leader: int,
        names: Collection[TopicPartition],
    ) -> set[TopicPartition]:
        """WriteTxnMarkers to one broker; the partitions in which the marker is committed now."""
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for name in names:
            topic = topics.setdefault(name.topic, WritableTxnMarkerTopic(name=name.topic, partition_indexes=[]))
            topic.partition_indexes.append(name.partition)
        marker = WritableTxnMarker(
            producer_id=due.producer.producer_id,
            producer_epoch=due.producer.epoch,
            transaction_result=due.is_commit,
            topics=list(topics.values()),
            coordinator_epoch=shard.partition.leader_epoch,
            transaction_version=due.client_version,
        )
        try:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await cluster.others.ask(leader, request, WriteTxnMarkersResponse)
        except ApiError as error:
            logger.info("the markers of %s do not reach broker %d: %s", due.transactional_id, leader, error)
            return set()
        heard = set()
        for result in response.markers:
            for topic_result in result.topics:
                for each in topic_result.partitions:
                    name, code = TopicPartition(topic_result.name, each.partition_index), ErrorCode(each.error_code)
                    if code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
                        heard.add(name)
                    elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                        raise ApiError(code, "another coordinator has ended transactions")
                    else:
                        logger.info("the marker of %s was not written to %s: %s", due.transactional_id, name, code.name)
        return heard

    def _write(
        self, shard: CoordinatorShard[TransactionShard], due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, PendingCommit], dict[TopicPartition, ErrorCode]]:
        """The markers that stand in their logs now, and the partitions that could not take theirs, with the reason."""
        written, unwritten = {}, {}
        marker = EndTransactionMarker(due.is_commit, shard.partition.leader.epoch)
        for name in partitions:
            try:
                written[name] = write_marker(self._broker, name, due.producer, marker, due.client_version)
            except ApiError as error:
                if error.code not in SETTLED and not self._was_ended_by_another(name, due, error.code):
                    unwritten[name] = error.code
                    logger.warning("the marker of %s was not written to %s: %s", due.transactional_id, name, error)
        return written, unwritten

    def _was_ended_by_another(self, name: TopicPartition, due: DueMarkers, code: ErrorCode) -> bool:
        """Whether a later coordinator, or who spoke for one, has ended what was open there: then nothing is left."""
        if code != ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return False
        return not self._broker.replicas.find(*name).log.producers.is_in_transaction(due.producer.producer_id)

    def _written(
        self, shard: CoordinatorShard[TransactionShard], due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> None:
        if shard.runner is not None:
            now_ms = shard.runner.now_ms()
            shard.runner.carry_out(shard.machine.markers_written(due, partitions, Unheard(), now_ms), now_ms)


def _is_told(marker: PendingCommit | None) -> bool:
    """Whether a partition knows: its marker is committed, or there was nothing to tell it."""
    return marker is None or marker.is_committed


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
