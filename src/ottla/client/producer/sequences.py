"""The numbers by which brokers know batches again: of each partition, in order, without gaps.

A broker remembers the last five batches of a producer in a partition: it drops what it has already, and refuses what
is not next. So several batches may be in flight at once and still arrive in order, each once. All of this is pure: the
sender tells what it sent and what came back, and asks what may be sent next and what to do about a failure.

Two rules go beyond "the next number":
- A log that knows nothing of a producer takes any number from it. So the first batch of a partition goes alone.
- When numbers are lost for good (a batch that failed after it was sent) the producer takes the next epoch and the
  partition starts again at 0, once nothing of it is on the wire. Other partitions follow when they are empty.
- A broker that was restarted knows only the last batch of a producer again. One before it, whose answer was lost, it
  refuses as out of order. Sending it under new numbers would write it twice. So it is set aside and the next one goes:
  if that is taken, or known, all before it are in the log; if none is, the log has lost records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.client.producer.batch import Numbers, ProducerBatch
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.records.layout import INT32_MAX

IN_FLIGHT_MAX: Final = 5
EPOCH_MAX: Final = 32767
NO_LOG_START: Final = -1


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Remedy(Enum):
    """What to do about a batch that a broker refused."""

    RETRY = auto()
    RESTART = auto()  # numbers from 0 under the next epoch, then again
    RENUMBER = auto()  # numbers from 0 under the same epoch, then again
    SET_ASIDE = auto()  # whether it is in the log follows from the outcome of the next one: see `resolve`
    FAIL = auto()


@dataclass(eq=False, slots=True)
class _Partition:
    identity: Identity
    next_sequence: int = 0
    acked_sequence: int = -1  # the last one that is acknowledged
    acked_offset: int = -1
    in_flight: list[ProducerBatch] = field(default_factory=list)  # numbered and not done: sent, or to be sent again
    on_wire: set[ProducerBatch] = field(default_factory=set)
    aside: list[ProducerBatch] = field(default_factory=list)  # the first of those in flight, not to be sent for now
    restarts_as: Identity | None = None  # when nothing is on the wire any more
    is_unresolved: bool = False  # a batch expired that may be in the log or not

    @property
    def first(self) -> ProducerBatch | None:
        """The one that may be sent again."""
        return self.in_flight[len(self.aside)] if len(self.in_flight) > len(self.aside) else None

    @property
    def expected_sequence(self) -> int:
        return (self.acked_sequence + 1) & INT32_MAX


class Sequences:
    """Of one producer. Without an identity nothing may be sent."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.identity: Identity | None = None
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._proven: list[ProducerBatch] = []

    def start(self, identity: Identity) -> None:
        """A new producer id, or the epoch of the next transaction: partitions begin at 0 when they are empty."""
        self.identity = identity

    # -- sending -------------------------------------------------------------------------------------------------------

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the first of its partition's queue, may go now."""
        if self.identity is None:
            return False
        state = self._state(batch.partition)
        if state.restarts_as is not None and not self._restart(state):
            return False
        if batch.has_numbers:
            return batch is state.first
        if state.identity != self.identity:
            if state.in_flight:
                return False
            self._partitions[batch.partition] = state = _Partition(self.identity)
        if state.is_unresolved or any(each not in state.on_wire for each in state.in_flight):
            return False
        is_known = state.acked_sequence >= 0
        return len(state.in_flight) < (IN_FLIGHT_MAX if is_known else 1)

    def sent(self, batch: ProducerBatch) -> None:
        """It goes out: with new numbers, or with those that it has."""
        state = self._state(batch.partition)
        if not batch.has_numbers:
            batch.renumber(Numbers(*state.identity, state.next_sequence))
            state.next_sequence = batch.next_sequence
            state.in_flight.append(batch)
        state.on_wire.add(batch)

    def returned(self, batch: ProducerBatch) -> None:
        """Its request is over, well or not."""
        if (state := self._partitions.get(batch.partition)) is not None:
            state.on_wire.discard(batch)

    # -- what became of it ---------------------------------------------------------------------------------------------

    def acked(self, batch: ProducerBatch, base_offset: int) -> None:
        state = self._state(batch.partition)
        if batch not in state.in_flight:
            return
        self._prove(state, batch)
        state.in_flight.remove(batch)
        if batch.numbers[:2] == state.identity:
            state.acked_sequence = max(state.acked_sequence, (batch.next_sequence - 1) & INT32_MAX)
            if base_offset >= 0:
                state.acked_offset = base_offset + batch.record_count - 1

    def _prove(self, state: _Partition, batch: ProducerBatch) -> None:
        """A broker takes a batch only behind those before it: what was set aside is in the log."""
        if state.aside and batch not in state.aside:
            self._proven += state.aside
            state.in_flight = [each for each in state.in_flight if each not in state.aside]
            state.aside = []

    def failed(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int = NO_LOG_START) -> Remedy:
        """What a refusal calls for. Nothing changes yet, but for a restart, which is decided here."""
        state = self._state(batch.partition)
        match code:
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                remedy = self._out_of_order(state, batch)
            case ErrorCode.UNKNOWN_PRODUCER_ID:
                remedy = self._unknown_producer(state, batch, log_start_offset)
            case _:
                return Remedy.RETRY if code.retriable else Remedy.FAIL
        if remedy is Remedy.RESTART:
            self._bump(state)
        elif remedy is Remedy.RENUMBER:
            state.restarts_as = state.identity
        return remedy

    def _out_of_order(self, state: _Partition, batch: ProducerBatch) -> Remedy:
        if batch is not state.first or state.restarts_as is not None or batch.numbers[:2] != state.identity:
            return Remedy.RETRY  # its predecessor is not there yet, or it has other numbers by now
        has_next = batch is not state.in_flight[-1]
        if has_next and (batch.is_in_log_perhaps or state.aside):
            state.aside.append(batch)
            return Remedy.SET_ASIDE
        # All before it are acknowledged or given up, and still the broker misses one.
        return Remedy.FAIL if self._is_transactional else Remedy.RESTART

    def _unknown_producer(self, state: _Partition, batch: ProducerBatch, log_start_offset: int) -> Remedy:
        if log_start_offset == NO_LOG_START or batch.numbers[:2] != state.identity or state.restarts_as is not None:
            return Remedy.RETRY
        if self._is_transactional:
            # Retention took everything that this producer had written: the log has forgotten it, and nothing is lost.
            return Remedy.RENUMBER if 0 <= state.acked_offset < log_start_offset else Remedy.FAIL
        return Remedy.RESTART

    def gave_up(self, batch: ProducerBatch, *, is_in_log_perhaps: bool) -> None:
        """A batch is not tried again. `is_in_log_perhaps`: nobody knows whether a broker took it."""
        state = self._partitions.get(batch.partition)
        if state is None or batch not in state.in_flight:
            return
        at = state.in_flight.index(batch)
        state.in_flight.remove(batch)
        if batch in state.aside:
            state.aside.remove(batch)
        if is_in_log_perhaps:
            state.is_unresolved = True
        elif not self._is_transactional:
            self._bump(state)
        else:
            self._close_gap(state, at, batch.record_count)

    def _close_gap(self, state: _Partition, at: int, lost_count: int) -> None:
        """Later batches move up: the broker has not taken them, since their predecessor is missing."""
        for each in state.in_flight[at:]:
            sequence = (each.numbers.base_sequence - lost_count) & INT32_MAX
            each.renumber(each.numbers._replace(base_sequence=sequence))
        state.next_sequence = (state.next_sequence - lost_count) & INT32_MAX

    def split(self, batch: ProducerBatch, pieces: Iterable[ProducerBatch]) -> None:
        """A batch that was too large has become several, with its numbers."""
        state = self._state(batch.partition)
        at = state.in_flight.index(batch)
        state.in_flight[at : at + 1] = list(pieces)

    def take_proven(self) -> list[ProducerBatch]:
        """What was set aside and is in the log after all, at unknown offsets."""
        proven, self._proven = self._proven, []
        return proven

    def take_back(self) -> list[ProducerBatch]:
        """What was set aside and is to be sent again, since nothing behind it can tell any more where it is."""
        back: list[ProducerBatch] = []
        for state in self._partitions.values():
            if state.aside and (state.first is None or state.restarts_as is not None):
                back += state.aside
                state.aside = []
        return back

    def resolve(self) -> list[TopicPartition]:
        """Looks at partitions where a batch expired and nothing is in flight any more.

        Where all numbers are acknowledged after all there is no gap. Else the producer takes the next epoch; in a
        transaction that is not possible, and the partitions are returned: the transaction has to be aborted.
        """
        torn = []
        for partition, state in self._partitions.items():
            if not state.is_unresolved or state.in_flight:
                continue
            state.is_unresolved = False
            if state.expected_sequence == state.next_sequence:
                continue
            if self._is_transactional:
                torn.append(partition)
            else:
                self._bump(state)
        return torn

    def forget(self) -> None:
        """A transaction is over: nothing is in flight, and the partitions start again."""
        self._partitions.clear()

    # -- restarting ----------------------------------------------------------------------------------------------------

    def _bump(self, state: _Partition) -> None:
        """The next epoch. A used up one means a new producer id, for which the sender asks."""
        if state.restarts_as is not None or self.identity is None:
            return
        if state.identity == self.identity:
            if self.identity.epoch >= EPOCH_MAX:
                self.identity = None
                return
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        state.restarts_as = self.identity

    def _restart(self, state: _Partition) -> bool:
        """Numbers what is to be sent again from 0 on; not while something of the partition is on the wire."""
        assert state.restarts_as is not None
        if state.on_wire:
            return False
        state.identity, state.restarts_as = state.restarts_as, None
        state.next_sequence, state.acked_sequence, state.acked_offset = 0, -1, -1
        state.is_unresolved = False
        for each in state.in_flight:
            each.renumber(Numbers(*state.identity, state.next_sequence))
            state.next_sequence = each.next_sequence
        return True

    def _state(self, partition: TopicPartition) -> _Partition:
        if partition not in self._partitions:
            assert self.identity is not None
            self._partitions[partition] = _Partition(self.identity)
        return self._partitions[partition]
