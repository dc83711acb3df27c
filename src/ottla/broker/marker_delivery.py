"""How the ends of transactions reach their partitions: what the coordinator decided is performed here.

Where every partition is on this broker and commits at once, its marker is written in the turn in which the end was
decided, before the producer hears of it: its next transaction need not wait. What cannot be done at once goes on in a
task until every partition has its marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.commits import PendingCommit, committed
from ottla.broker.coordinators import CoordinatorShard
from ottla.broker.markers import write_marker
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.control import EndTransactionMarker
from ottla.transactions.coordinator import DueMarkers, TransactionShard
from ottla.transactions.state import PREPARED

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.cluster_member import ClusterMember

logger = logging.getLogger(__name__)

MARKERS_AT_ONCE_MAX = 64  # written in the turn of the decision
MARKERS_PER_TURN = 8  # of larger transactions; a marker may have to begin a new segment, which takes milliseconds
RETRY_S = 0.1  # until partitions that could not take a marker are tried again; twice as long each time
RETRY_S_MAX = 5.0
# These need no marker: the partition is gone, or knows of a later transaction of the producer.
SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)


class MarkerDelivery:
    """Performs the ends that one shard has decided."""

    def __init__(self, broker: Broker, shard: CoordinatorShard[TransactionShard]) -> None:
        self._broker = broker
        self._shard = shard
        # The transactional ids whose markers a task is writing: one that has to wait holds up no other.
        self._under_way: set[str] = set()

    def perform(self, due: DueMarkers) -> None:
        """The end of a transaction is committed: writes its markers, at once if possible, or else in a task."""
        if not self._shard.partition.is_leader:
            return  # the next leader finds it in the log
        if len(due.partitions) <= MARKERS_AT_ONCE_MAX and all(map(self._commits_at_once, due.partitions)):
            _, unwritten = self._write(due, due.partitions)
            self._report(due, [name for name in due.partitions if name not in unwritten])
        transaction = self._shard.machine.transaction(due.transactional_id)
        if transaction is not None and transaction.state in PREPARED:
            self._write_in_background(due.transactional_id)

    def commits_unknown(self) -> None:
        """Whether some ends are committed is not known yet: `_due` waits until it is."""
        if self._shard.partition.is_leader:
            self._broker.in_background(f"decisions of {self._shard.partition.name}", self._write_decided())

    def _commits_at_once(self, name: TopicPartition) -> bool:
        try:
            return self._broker.replicas.find(name.topic, name.partition).is_led_alone
        except ApiError as error:
            # In a cluster a topic of which nothing is known yet may be there all the same.
            return self._broker.cluster is None and error.code in SETTLED

    # -- in the background ---------------------------------------------------------------------------------------------

    def _write_in_background(self, transactional_id: str) -> None:
        if transactional_id not in self._under_way:
            self._under_way.add(transactional_id)
            self._broker.in_background(f"markers of {transactional_id}", self._write_until_complete(transactional_id))

    async def _write_decided(self) -> None:
        try:
            for due in await self._due():
                self._write_in_background(due.transactional_id)
        except ApiError as error:
            name = self._shard.partition.name
            logger.warning("%s: the outcome of transactions is not known: %s", name, error)

    async def _due(self) -> list[DueMarkers]:
        """Every committed end of which markers are missing, once it is known to be committed."""
        if self._shard.runner is None:
            return []
        due: list[DueMarkers] = await self._shard.runner.ask(TransactionShard.due_markers)
        return due

    async def _write_until_complete(self, transactional_id: str) -> None:
        """Goes on until every partition of a transaction has its marker, or somebody else coordinates."""
        pause_s = RETRY_S
        try:
            while self._shard.is_running:
                due = next((one for one in await self._due() if one.transactional_id == transactional_id), None)
                if due is None:
                    return
                if await self._write_all(due):
                    pause_s = RETRY_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, RETRY_S_MAX)
        except ApiError as error:
            logger.info("the markers of %s are left to the next leader: %s", transactional_id, error)
        finally:
            self._under_way.discard(transactional_id)

    async def _write_all(self, due: DueMarkers) -> bool:
        """Tries every partition of one transaction; whether any has its marker by it."""
        if not due.partitions:  # all have theirs; what could not be written is that they do
            self._report(due, ())
        is_progress = False
        for start in range(0, len(due.partitions), MARKERS_PER_TURN):
            some = due.partitions[start : start + MARKERS_PER_TURN]
            elsewhere, marked = await self._write_elsewhere(due, some)
            if not self._shard.partition.is_leader:
                return is_progress  # the next leader finds it in the log
            written, unwritten = self._write(due, [name for name in some if name not in elsewhere])
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in unwritten.values():
                # Trying again would not help: partitions listen to a coordinator of a later epoch.
                raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "another coordinator has ended transactions")
            deadline = self._broker.loop.time() + self._broker.config.request_timeout_ms / 1000
            await committed(list(written.values()), deadline)
            here = (name for name in some if name not in elsewhere and name not in unwritten)
            marked.update(name for name in here if _is_settled(written.get(name)))
            done = [name for name in some if name in marked]
            if done:
                is_progress = True
                self._report(due, done)
            await self._broker.turns.yield_turn()
        return is_progress

    async def _write_elsewhere(
        self, due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Partitions that other brokers of a cluster lead: all of them, and those that have their marker now."""
        cluster = self._broker.cluster
        if cluster is None:
            return set(), set()
        image = self._broker.image
        elsewhere: set[TopicPartition] = set()
        marked: set[TopicPartition] = set()
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            state = image.partition(name)
            if state is None:
                elsewhere.add(name)
                if await cluster.is_topic_gone(name.topic):
                    marked.add(name)  # nothing is left to do
            elif state.leader != self._broker.node_id:
                elsewhere.add(name)
                by_leader.setdefault(state.leader, []).append(name)
        for written in await asyncio.gather(
            *(self._write_by_leader(cluster, due, leader, names) for leader, names in by_leader.items())
        ):
            marked |= written
        return elsewhere, marked

    async def _write_by_leader(
        self,
        cluster: ClusterMember,
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
            coordinator_epoch=self._shard.partition.leader_epoch,
            transaction_version=due.client_version,
        )
        try:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await cluster.others.ask(leader, request, WriteTxnMarkersResponse)
        except ApiError as error:
            logger.info("the markers of %s do not reach broker %d: %s", due.transactional_id, leader, error)
            return set()
        marked = set()
        for result in response.markers:
            for topic_result in result.topics:
                for each in topic_result.partitions:
                    name, code = TopicPartition(topic_result.name, each.partition_index), ErrorCode(each.error_code)
                    if code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
                        marked.add(name)
                    elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                        raise ApiError(code, "another coordinator has ended transactions")
                    else:
                        logger.info("the marker of %s was not written to %s: %s", due.transactional_id, name, code.name)
        return marked

    # -- one partition -------------------------------------------------------------------------------------------------

    def _write(
        self, due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, PendingCommit], dict[TopicPartition, ErrorCode]]:
        """The markers that stand in their logs now, and the partitions that could not take theirs, with the reason."""
        broker, written, unwritten = self._broker, {}, {}
        now_ms = broker.clock.now_ms()
        marker = EndTransactionMarker(due.is_commit, self._shard.partition.leader.epoch)
        for name in partitions:
            try:
                written[name] = write_marker(
                    broker.replicas,
                    broker.groups,
                    name,
                    due.producer,
                    marker,
                    due.client_version,
                    now_ms,
                )
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

    def _report(self, due: DueMarkers, partitions: Collection[TopicPartition]) -> None:
        """The coordinator hears which partitions have their markers; with the last one the transaction is complete."""
        runner = self._shard.runner
        if runner is not None:
            now_ms = runner.now_ms()
            runner.carry_out(self._shard.machine.markers_written(due, partitions, now_ms), now_ms)


def _is_settled(marker: PendingCommit | None) -> bool:
    """Whether nothing is left to do for a partition: its marker is committed, or it needs none."""
    return marker is None or marker.is_committed
