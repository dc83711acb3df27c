"""A shard of transactions run by hand: decisions are applied at once, and the log can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.decisions import CoordinatorRecord, Decision
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS, decode_key, decode_value, encode_key, encode_value
from ottla.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from ottla.transactions.coordinator import DueMarkers, TransactionShard
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.state import ProducerIdAndEpoch, Transaction


@dataclass
class Driver:
    """Asks a shard and carries out what it decides."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 1_000_000
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    marker_calls: int = 0
    fails_with: ErrorCode | None = None
    next_producer_id: int = 100

    def __post_init__(self) -> None:
        self.shard = TransactionShard(lambda: self.settings)
        self.shard.loaded(self.now_ms)

    # -- running -------------------------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> Any:
        """The reply to the ticket "asked", if there is one."""
        if decision.records and self.fails_with is not None:
            decision = self.shard.refused(decision, self.fails_with, self.now_ms)
            assert not decision.records
        for record in decision.records:
            self.log.append(
                (
                    encode_key(record.key),
                    None if record.value is None else encode_value(record.value, record.value_version),
                )
            )
            self.shard.apply(record)
        self.marker_calls += len(decision.effects)
        return next((reply for _, reply in decision.replies), None)

    def ask(self, decide: Callable[..., Decision], *arguments: Any) -> Any:
        return self.carry_out(decide(*arguments, "asked", self.now_ms))

    def restart(self) -> None:
        """A coordinator that knows nothing but the log takes over."""
        self.shard = self.replayed()
        self.carry_out(self.shard.loaded(self.now_ms))

    def replayed(self, *, only_last: bool = False) -> TransactionShard:
        """What the log alone makes, whole or as compaction leaves it."""
        shard = TransactionShard(lambda: self.settings)
        shard.wall_ahead_ms = self.shard.wall_ahead_ms
        for key, value in dict(self.log).items() if only_last else self.log:
            decoded = None if value is None else decode_value(TRANSACTION_RECORDS[0], value)
            shard.apply(CoordinatorRecord(decode_key(TRANSACTION_RECORDS, key), decoded))
        return shard

    def state(self, transactional_id: str = "tx") -> Transaction:
        found = self.shard.transaction(transactional_id)
        assert found is not None
        return found

    # -- requests ------------------------------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def init(
        self,
        transactional_id: str = "tx",
        *,
        timeout_ms: int = 60_000,
        expected: ProducerIdAndEpoch = ProducerIdAndEpoch(-1, -1),  # noqa: B008 (a frozen value)
        two_phase: bool = False,
        keep: bool = False,
    ) -> Any:
        """The pair that the producer gets, or an error code."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        fresh = self.new_producer_id() if self.shard.wants_producer_id(transactional_id) else None
        answer = self.ask(self.shard.init_producer_id, request, fresh)
        return (
            answer if isinstance(answer, ErrorCode) else ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        )

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: int, transactional_id: str = "tx", version: int = 2
    ) -> Any:
        wanted = [TopicPartition("t", partition) for partition in partitions]
        return self.ask(self.shard.add_partitions, transactional_id, producer, wanted, version)

    def verify(self, producer: ProducerIdAndEpoch, *partitions: int, transactional_id: str = "tx") -> Any:
        wanted = [TopicPartition("t", partition) for partition in partitions]
        return self.ask(self.shard.verify_partitions, transactional_id, producer, wanted)

    def end(
        self, producer: ProducerIdAndEpoch, *, commit: bool = True, transactional_id: str = "tx", version: int = 2
    ) -> Any:
        """The pair to go on with, or an error code."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        fresh = self.new_producer_id() if self.shard.is_exhausted(transactional_id) else None
        answer = self.ask(self.shard.end_transaction, request, version, fresh)
        return (
            answer if isinstance(answer, ErrorCode) else ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        )

    def due(self) -> list[DueMarkers]:
        found: list[DueMarkers] = self.ask(self.shard.due_markers)
        return found

    def write_markers(self) -> list[DueMarkers]:
        """Every partition hears of every end."""
        due = self.due()
        for one in due:
            self.report(one, one.partitions)
        return due

    def report(self, due: DueMarkers, partitions: Collection[TopicPartition]) -> None:
        """So many partitions have their markers."""
        self.carry_out(self.shard.markers_written(due, partitions, self.now_ms))

    def expire(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.carry_out(self.shard.expire(self.now_ms))


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def new_driver() -> Callable[..., Driver]:
    """A driver with other settings."""
    return Driver
