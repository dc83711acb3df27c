"""One transactional id: its state as a value, and that value as the record of `__transaction_state`.

A record says everything about its transactional id, so the last one is enough to go on from. What a client must present
is not always what stands in `producer_id` and `producer_epoch`: those belong to the transaction that is open or being
ended, and `latest` to whoever asked last (KIP-890 on overflow, KIP-939 for prepared transactions that were kept).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.decisions import CoordinatorRecord
from ottla.errors import ErrorCode, ProtocolError
from ottla.ids import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
# The last epoch that a client gets: one is left, so that the coordinator can always fence it.
LAST_CLIENT_EPOCH = PRODUCER_EPOCH_MAX - 1
NO_TIMEOUT_MS = 2**31 - 1  # of a participant in a two-phase commit: only its own coordinator ends the transaction

VALUE_VERSION = 1
FIRST_VERSION_WITH_BUMPS = 2  # of transactions: every end raises the epoch (KIP-890)


class TransactionState(IntEnum):
    """The states with their numbers in records. The last two are never written down: see `Transaction`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name by which tools and requests call it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


STATES_BY_TITLE = {state.title: state for state in TransactionState}
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
# Nothing is open: a new transaction may begin, and a silent transactional id may be forgotten.
IDLE = (TransactionState.EMPTY, *COMPLETE)


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch would be one that no client may have."""
        return self.epoch >= LAST_CLIENT_EPOCH


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id.

    Dead and PrepareEpochFence are names of moments that are one step here: a forgotten id is a tombstone, and fencing a
    producer is a part of PrepareAbort.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    # The epoch before the last rise, by which a repeated request is known. No record holds it: see `of_record`.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a prepared transaction waits for the decision of whoever came back for it (KIP-939)."""
        return self.state == TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def own(self) -> ProducerIdAndEpoch:
        """The id and epoch of the transaction itself, which its records or its markers carry."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def latest(self) -> ProducerIdAndEpoch:
        """The id and epoch that were given out last; once the transaction is over they are its own."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.own
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    def is_repeated_end(self, presented: ProducerIdAndEpoch) -> bool:
        """Whether somebody who ended this transaction and got no answer asks again."""
        latest = self.latest
        if presented.producer_id == latest.producer_id:
            return presented.epoch + 1 == latest.epoch
        return (
            presented.producer_id == self.previous_producer_id
            and presented.epoch == LAST_CLIENT_EPOCH
            and latest.epoch == 0
        )

    def may_end(self, presented: ProducerIdAndEpoch, is_bumping: bool) -> bool:
        """Whether this producer may end the transaction, or may ask again whether it did.

        Where each end raises the epoch, an equal one after the end is that of the next transaction. While the markers
        are on their way, that one waits for them: Kafka fences its producer, which did nothing wrong.
        """
        if not is_bumping:
            return presented == (self.latest if self.is_kept else self.own)
        has_ended = self.state in PREPARED or self.state in COMPLETE
        return presented == self.latest or (has_ended and self.is_repeated_end(presented))

    def may_continue(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether the transactional id still belongs to a producer that lost its way (KIP-360); epochs aside."""
        if expected.producer_id == self.latest.producer_id:
            return True
        return expected.producer_id == self.previous_producer_id and expected.is_exhausted

    def why_not_add(self, producer: ProducerIdAndEpoch) -> ErrorCode | None:
        """Why a producer may not add partitions, or write to those it has added."""
        holders = (self.own, self.latest) if self.state in PREPARED else (self.latest,)
        if producer.producer_id not in (self.producer_id, self.latest.producer_id):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer not in holders:
            return ErrorCode.PRODUCER_FENCED
        if self.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        # What was prepared is closed: its markers carry another epoch than what would be written to it now.
        return ErrorCode.INVALID_TXN_STATE if self.is_kept else None

    @property
    def allowed_ms(self) -> int | None:
        """How long the open transaction may take; None where nothing is open, or it may take for ever."""
        return None if self.state != TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS else self.timeout_ms

    @property
    def counted_from_ms(self) -> int:
        """The wall time from which on its time counts: its start while it is open, else the last change."""
        return self.start_ms if self.state == TransactionState.ONGOING else self.last_update_ms

    def continues(self, before: Transaction) -> bool:
        """Whether it is the same open transaction as before."""
        return (self.state, self.start_ms) == (TransactionState.ONGOING, before.start_ms) and before.state == self.state

    def record(self) -> CoordinatorRecord:
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            partitions.setdefault(topic, []).append(partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            next_producer_epoch=self.next_producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state == TransactionState.EMPTY
            else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in partitions.items()],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), value, VALUE_VERSION)

    @staticmethod
    def of_record(transactional_id: str, value: TransactionLogValue) -> Transaction:
        try:
            state = TransactionState(value.transaction_status)
        except ValueError as error:
            raise ProtocolError(
                f"transactional id {transactional_id} is in state {value.transaction_status}, which is unknown"
            ) from error
        last_epoch = NO_PRODUCER_EPOCH
        if value.client_transaction_version >= FIRST_VERSION_WITH_BUMPS and (state in PREPARED or state in COMPLETE):
            last_epoch = value.producer_epoch - 1 if value.producer_epoch else LAST_CLIENT_EPOCH
        return Transaction(
            transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            partitions=frozenset(
                TopicPartition(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            next_producer_id=value.next_producer_id,
            next_producer_epoch=value.next_producer_epoch,
            client_version=value.client_transaction_version,
            last_producer_epoch=last_epoch,
        )


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Forgets a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None, VALUE_VERSION)
