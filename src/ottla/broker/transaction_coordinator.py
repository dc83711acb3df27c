"""The coordinator of transactions: which topic keeps them, and how their ends reach the partitions.

Where everything is on this broker and committed at once, a transaction's end is told to its partitions in the turn in
which it was decided, before the producer hears of it: its next transaction need not wait. What cannot be done at once
goes on in the background until every partition knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from types import CoroutineType
from typing import TYPE_CHECKING

from ottla.broker.controller import NewTopic
from ottla.broker.coordinators import Coordinator, Shard
from ottla.broker.journal import Replay, decoding
from ottla.broker.markers import WrittenMarker, write_marker
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS
from ottla.records.control import EndTransactionMarker
from ottla.runtime.signal import wait_any
from ottla.transactions.coordinator import DueMarkers, TransactionShard
from ottla.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
MARKERS_AT_ONCE_MAX = 64  # written in one turn; others have theirs in between
RETRY_S = 0.1  # until partitions that could not take a marker are tried again; twice as long each time
RETRY_S_MAX = 5.0
# Nothing is left to tell these: the partition is gone, or knows of a later transaction of the producer.
SETTLED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)


class Bell:
    """The ticket of a machine that has markers to send: rings, whatever the reply."""

    __slots__ = ("ring",)

    def __init__(self) -> None:
        self.ring: Callable[[], None] = lambda: None

    def fill(self, reply: object) -> None:
        self.ring()


class Unheard:
    """The ticket of a request that nobody asked."""

    def fill(self, reply: object) -> None:
        if isinstance(reply, ErrorCode):
            logger.warning("the end of a transaction was not written down: %s; it will be tried again", reply.name)


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
        self._in_background: set[int] = set()  # partitions of the topic whose markers a task is sending

    def configure(self, config: BrokerConfig) -> None:
        """Settings changed: machines take them at once."""
        self._settings = TransactionSettings.of(config)

    def _start(self, shard: Shard[TransactionShard]) -> None:
        bell = shard.machine.marker_ticket
        assert isinstance(bell, Bell)
        bell.ring = lambda: self._markers_due(shard)
        super()._start(shard)

    # -- markers -------------------------------------------------------------------------------------------------------

    def _markers_due(self, shard: Shard[TransactionShard]) -> None:
        """Tells what can be told at once, and leaves the rest to a task."""
        index = shard.partition.name.partition
        if shard.runner is None or not shard.partition.is_leader or index in self._in_background:
            return
        due = shard.runner.ask(TransactionShard.due_markers)
        if type(due) is CoroutineType:
            due.close()  # a task will ask again
        elif self._can_tell_at_once(due):
            unwritten: set[TopicPartition] = set()
            for one in due:
                _, failed = self._write(shard, one, one.partitions)
                self._written(shard, one, [name for name in one.partitions if name not in failed])
                unwritten |= failed
            if not unwritten:
                return
        self._in_background.add(index)
        self._broker.in_background(f"markers of {shard.partition.name}", self._tell_all(shard))

    def _can_tell_at_once(self, due: list[DueMarkers]) -> bool:
        """Whether all partitions are few, here, and commit what they are given."""
        if sum(len(one.partitions) for one in due) > MARKERS_AT_ONCE_MAX:
            return False
        for one in due:
            for name in one.partitions:
                try:
                    partition = self._broker.replicas.find(name.topic, name.partition)
                except ApiError as error:
                    if error.code not in SETTLED:
                        return False
                else:
                    if not partition.is_led_alone:
                        return False
        return True

    async def _tell_all(self, shard: Shard[TransactionShard]) -> None:
        """Goes on until every partition knows, or somebody else coordinates."""
        index = shard.partition.name.partition
        pause_s = RETRY_S
        try:
            while self._shards.get(index) is shard and shard.runner is not None:
                due = shard.runner.ask(TransactionShard.due_markers)
                if type(due) is CoroutineType:
                    due = await due
                if not due:
                    return
                is_progress = False
                for one in due:
                    is_progress |= await self._tell(shard, one)
                if is_progress:
                    pause_s = RETRY_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, RETRY_S_MAX)
        except ApiError as error:
            logger.info("%s: the markers of transactions are left to the next leader: %s", shard.partition.name, error)
        finally:
            self._in_background.discard(index)

    async def _tell(self, shard: Shard[TransactionShard], due: DueMarkers) -> bool:
        """Tells the partitions of one transaction; whether any of them has heard."""
        is_progress = False
        for start in range(0, len(due.partitions), MARKERS_AT_ONCE_MAX):
            some = due.partitions[start : start + MARKERS_AT_ONCE_MAX]
            written, unwritten = self._write(shard, due, some)
            await self._wait_until_committed(written)
            done = [name for name in some if name not in unwritten and _is_told(written.get(name))]
            if done:
                is_progress = True
                self._written(shard, due, done)
            await asyncio.sleep(0)
        return is_progress

    def _write(
        self, shard: Shard[TransactionShard], due: DueMarkers, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, WrittenMarker], set[TopicPartition]]:
        """The markers that stand in their logs now, and the partitions that could not take theirs."""
        written, unwritten = {}, set()
        marker = EndTransactionMarker(due.is_commit, shard.partition.leader.epoch)
        for name in partitions:
            try:
                written[name] = write_marker(self._broker, name, due.producer, marker, due.client_version)
            except ApiError as error:
                if error.code not in SETTLED:
                    unwritten.add(name)
                    logger.warning("the marker of %s was not written to %s: %s", due.transactional_id, name, error)
        return written, unwritten

    async def _wait_until_committed(self, written: dict[TopicPartition, WrittenMarker]) -> None:
        deadline = self._broker.loop.time() + self._broker.config.request_timeout_ms / 1000
        while waiting := [one for one in written.values() if one.partition.is_leader and not one.is_committed]:
            left_s = deadline - self._broker.loop.time()
            if left_s <= 0:
                return
            await wait_any([one.partition.moved for one in waiting], left_s)

    def _written(self, shard: Shard[TransactionShard], due: DueMarkers, partitions: Collection[TopicPartition]) -> None:
        if shard.runner is not None:
            now_ms = self._broker.clock.now_ms()
            shard.runner.carry_out(shard.machine.markers_written(due, partitions, Unheard(), now_ms), now_ms)


def _is_told(marker: WrittenMarker | None) -> bool:
    """Whether a partition knows: its marker is committed, or there was nothing to tell it."""
    return marker is None or marker.is_committed


def _no_transactions_here(producer_id: int, committed: bool) -> None:
    logger.warning("a marker of producer %d stands in %s, which has no transactions", producer_id, TRANSACTIONS_TOPIC)


def transactions_topic(config: BrokerConfig) -> NewTopic:
    factor = config.transaction_state_log_replication_factor
    return NewTopic(
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
