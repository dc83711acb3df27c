"""How the ends of transactions reach their partitions: what the coordinator decided is performed here.

Where every partition is on this broker and commits at once, its marker is written in the turn in which the end was
decided, before the producer is answered: its next transaction need not wait. What cannot be done at once goes on in a
task until every partition has its marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from ottla.broker.commits import PendingCommit, committed
from ottla.broker.coordinators import CoordinatorParts, CoordinatorShard
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.markers import write_marker
from ottla.broker.remote_markers import RemoteMarkers, RemoteOutcome
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.records.control import EndTransactionMarker
from ottla.transactions.coordinator import DueMarkers, TransactionShard
from ottla.transactions.state import PREPARED

logger = logging.getLogger(__name__)

MARKERS_AT_ONCE_MAX = 64  # written in the turn of the decision
MARKERS_PER_TURN = 8  # of larger transactions; a marker may have to begin a new segment, which takes milliseconds
RETRY_S = 0.1  # until partitions that could not take a marker are tried again; twice as long each time
RETRY_S_MAX = 5.0
# These need no marker: the partition is gone, or knows of a later transaction of the producer.
SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)


class MarkerDelivery:
    """Performs the ends that one shard has decided."""

    def __init__(
        self,
        shard: CoordinatorShard[TransactionShard],
        parts: CoordinatorParts,
        groups: GroupCoordinator,
        remote: RemoteMarkers | None,
    ) -> None:
        self._shard = shard
        self._parts = parts
        self._groups = groups
        self._remote = remote  # None without a cluster
        # The transactional ids that have a task which writes their markers: one that has to wait delays no other.
        self._in_progress: set[str] = set()

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
        """Whether some ends are committed is not known yet: the runner replies once it is."""
        if self._shard.partition.is_leader:
            self._parts.in_background(f"decisions of {self._shard.partition.name}", self._write_decided())

    def _commits_at_once(self, name: TopicPartition) -> bool:
        try:
            return self._parts.replicas.find(name.topic, name.partition).is_led_alone
        except ApiError as error:
            # In a cluster a topic of which nothing is known yet may be there all the same.
            return self._remote is None and error.code in SETTLED

    # -- in the background ---------------------------------------------------------------------------------------------

    def _write_in_background(self, transactional_id: str) -> None:
        if transactional_id not in self._in_progress:
            self._in_progress.add(transactional_id)
            self._parts.in_background(f"markers of {transactional_id}", self._write_until_complete(transactional_id))

    async def _write_decided(self) -> None:
        """Goes on with every end that turns out to be committed."""
        runner = self._shard.runner
        if runner is None:
            return
        try:
            due: list[DueMarkers] = await runner.ask(TransactionShard.due_markers)
            for one in due:
                self._write_in_background(one.transactional_id)
        except ApiError as error:
            name = self._shard.partition.name
            logger.warning("%s: the outcome of transactions is not known: %s", name, error)

    async def _write_until_complete(self, transactional_id: str) -> None:
        """Goes on until every partition of a transaction has its marker, or somebody else coordinates."""
        pause_s = RETRY_S
        try:
            while (runner := self._shard.runner) is not None and not runner.is_over:
                due: DueMarkers | None = await runner.ask(TransactionShard.due_markers_of, transactional_id)
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
            self._in_progress.discard(transactional_id)

    async def _write_all(self, due: DueMarkers) -> bool:
        """Tries every partition of one transaction; whether any has its marker by it."""
        if not due.partitions:  # all have theirs; what could not be written is that they do
            self._report(due, ())
        is_progress = False
        for start in range(0, len(due.partitions), MARKERS_PER_TURN):
            some = due.partitions[start : start + MARKERS_PER_TURN]
            elsewhere, marked = await self._write_elsewhere(due, some)
            if self._is_over:
                return is_progress  # the next leader finds it in the log
            written, unwritten = self._write(due, [name for name in some if name not in elsewhere])
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in unwritten.values():
                # Trying again would not help: partitions listen to a coordinator of a later epoch.
                raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "another coordinator has ended transactions")
            deadline = asyncio.get_running_loop().time() + self._parts.config().request_timeout_ms / 1000
            await committed(list(written.values()), deadline)
            here = (name for name in some if name not in elsewhere and name not in unwritten)
            marked.update(name for name in here if _is_settled(written.get(name)))
            done = [name for name in some if name in marked]
            if done:
                is_progress = True
                self._report(due, done)
            await self._parts.turns.yield_turn()
        return is_progress

    async def _write_elsewhere(self, due: DueMarkers, partitions: Collection[TopicPartition]) -> RemoteOutcome:
        if self._remote is None:
            return RemoteOutcome(set(), set())
        return await self._remote.write(due, self._shard.partition.leader_epoch, partitions)

    # -- one partition -------------------------------------------------------------------------------------------------

    def _write(
        self, due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, PendingCommit], dict[TopicPartition, ErrorCode]]:
        """The markers that stand in their logs now, and the partitions that could not take theirs, with the reason."""
        parts, written, unwritten = self._parts, {}, {}
        now_ms = parts.clock.now_ms()
        marker = EndTransactionMarker(due.is_commit, self._shard.partition.leader.epoch)
        for name in partitions:
            try:
                written[name] = write_marker(
                    parts.replicas,
                    self._groups,
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
        return not self._parts.replicas.find(*name).log.producers.is_in_transaction(due.producer.producer_id)

    @property
    def _is_over(self) -> bool:
        """Whether somebody else coordinates, or this broker does again, from the log: there it is written by then."""
        runner = self._shard.runner
        return runner is None or runner.is_over or not self._shard.partition.is_leader

    def _report(self, due: DueMarkers, partitions: Collection[TopicPartition]) -> None:
        """Reports to the shard which partitions have their markers; with the last one the transaction is complete."""
        runner = self._shard.runner
        if runner is not None and not self._is_over:
            now_ms = runner.now_ms()
            runner.carry_out(self._shard.machine.markers_written(due, partitions, now_ms), now_ms)


def _is_settled(marker: PendingCommit | None) -> bool:
    """Whether nothing is left to do for a partition: its marker is committed, or it needs none."""
    return marker is None or marker.is_committed
