"""Transactions in a world of chance: clients, a coordinator that crashes, partitions, and messages that get lost.

The coordinator is the real machine and the partitions keep the real producer states; what lies between them is a seeded
rng. Requests arrive or not, answers arrive or not, markers are written and not reported, time passes, the wall clock
is set forward and back. After each step and at the end the world is asked what must hold:

- a transaction is visible in all of its partitions or in none, as the response to its producer said;
- the log alone makes the same coordinator again, whole or compacted;
- no transaction stays open for longer than it may, whatever the wall clock says;
- once everything has calmed down, every transaction has ended and every partition is stable to its end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from ottla.decisions import CoordinatorRecord, Decision
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.coordinator_records import TRANSACTION_RECORDS, decode_key, decode_value, encode_key, encode_value
from ottla.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from ottla.records.batch import BatchHeader
from ottla.records.control import EndTransactionMarker
from ottla.records.layout import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT
from ottla.storage.producer_state import ProducerStates
from ottla.transactions.coordinator import RETRY_MS, DueMarkers, TransactionShard
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.state import IDLE, LAST_CLIENT_EPOCH, ProducerIdAndEpoch, Transaction, TransactionState

ASKED = "asked"
LOST = object()  # in place of an answer
HOUR_MS = 3_600_000
WALL_CLOCKS_MS = (-365 * 24 * HOUR_MS, -HOUR_MS, 0, HOUR_MS, 365 * 24 * HOUR_MS)  # ahead of steady time


@dataclass(eq=False)
class Attempt:
    """One transaction as its producer sees it."""

    values: list[tuple[TopicPartition, str]] = field(default_factory=list)
    wants_commit: bool | None = None
    outcome: bool | None = None  # committed or aborted, if the producer got a response


class PartitionLog:
    """A partition that keeps values, markers, and what it knows of producers."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.entries: list[tuple[ProducerIdAndEpoch, str | bool]] = []  # a value, or how a transaction ended

    def _header(self, producer: ProducerIdAndEpoch, sequence: int, attributes: int) -> BatchHeader:
        return BatchHeader(
            len(self.entries), 0, 0, MAGIC, 0, attributes, 0, 0, 0, producer.producer_id, producer.epoch, sequence, 1
        )

    def append(self, producer: ProducerIdAndEpoch, sequence: int, value: str) -> None:
        header = self._header(producer, sequence, TRANSACTIONAL_BIT)
        if self.states.check(header) is None:
            self.states.record(header, 0)
            self.entries.append((producer, value))

    def append_marker(self, due: DueMarkers, coordinator_epoch: int) -> None:
        header = self._header(due.producer, -1, TRANSACTIONAL_BIT | CONTROL_BIT)
        marker = EndTransactionMarker(due.is_commit, coordinator_epoch)
        if due.client_version >= 2:
            self.states.check_raised_epoch(*due.producer)
        self.states.check_marker(header, marker)
        self.states.record_marker(header, marker)
        self.entries.append((due.producer, due.is_commit))
        self.states.passed_high_watermark(len(self.entries))

    def visible(self) -> set[str]:
        """What a reader of committed data sees."""
        seen: set[str] = set()
        open_values: dict[int, list[str]] = {}
        for (producer_id, _), entry in self.entries:
            if isinstance(entry, str):
                open_values.setdefault(producer_id, []).append(entry)
            else:
                values = open_values.pop(producer_id, [])
                seen.update(values if entry else ())
        return seen


class Client:
    """A producer that does one thing after the other and knows only its responses."""

    def __init__(self, transactional_id: str, version: int) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.producer: ProducerIdAndEpoch | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.attempt = Attempt()
        self.is_lost = False  # somebody else has taken over


class World:
    """Everything that a seed decides about."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.settings = TransactionSettings(transactional_id_expiration_ms=10**12)
        self.wall_ahead_ms = 0
        self._open_since: dict[tuple[str, int, int], int] = {}  # or since the coordinator began, if that is later
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self._new_shard()
        self.shard.loaded(self.now_ms)
        self.coordinator_epoch = 0
        self.partitions = {TopicPartition("t", index): PartitionLog() for index in range(3)}
        self.clients = [Client(f"tx-{index % 2}", self.rng.choice((1, 2))) for index in range(3)]
        self.attempts: list[Attempt] = []
        self._next_producer_id = 0
        self._next_value = 0
        self.steps = 0

    def _new_shard(self) -> TransactionShard:
        shard = TransactionShard(lambda: self.settings)
        shard.wall_ahead_ms = self.wall_ahead_ms
        return shard

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> Any:
        if decision.records and self.rng.random() < 0.03:
            decision = self.shard.refused(decision, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms)
        for record in decision.records:
            value = None if record.value is None else encode_value(record.value, record.value_version)
            self.log.append((encode_key(record.key), value))
            self.shard.apply(record)
        for transaction in self._known():
            if transaction.state == TransactionState.ONGOING:
                self._open_since.setdefault(_name_of(transaction), self.now_ms)
        return next((reply for ticket, reply in decision.replies if ticket == ASKED), None)

    def _ask(self, decide: Any, *arguments: Any) -> Any:
        """The answer, unless the question or the answer gets lost on the way."""
        if self.rng.random() < 0.05:
            return LOST
        answer = self._carry_out(decide(*arguments, ASKED, self.now_ms))
        return LOST if self.rng.random() < 0.05 else answer

    def restart_coordinator(self) -> None:
        self.coordinator_epoch += 1
        self.shard = self._replayed(self.log)
        self._open_since.clear()
        self._carry_out(self.shard.loaded(self.now_ms))

    def _replayed(self, log: Any) -> TransactionShard:
        shard = self._new_shard()
        for key, value in log:
            decoded = None if value is None else decode_value(TRANSACTION_RECORDS[0], value)
            shard.apply(CoordinatorRecord(decode_key(TRANSACTION_RECORDS, key), decoded))
        return shard

    def _fresh_id(self, is_wanted: bool) -> int | None:
        if not is_wanted:
            return None
        self._next_producer_id += 1
        return self._next_producer_id

    # -- what clients do -----------------------------------------------------------------------------------------------

    def init(self, client: Client) -> None:
        """A producer begins its life, or a new one under the same transactional id."""
        request = InitProducerIdRequest(
            transactional_id=client.transactional_id, transaction_timeout_ms=self.rng.choice((500, 60_000))
        )
        fresh = self._fresh_id(self.shard.wants_producer_id(client.transactional_id))
        answer = self._ask(self.shard.init_producer_id, request, fresh)
        if answer is LOST or isinstance(answer, ErrorCode):
            return
        client.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        client.sequences.clear()
        self._new_attempt(client)
        client.is_lost = False

    def _new_attempt(self, client: Client) -> None:
        client.attempt = Attempt()
        self.attempts.append(client.attempt)

    def send(self, client: Client) -> None:
        """Adds a partition to the transaction and writes a value to it, as the client's version does."""
        producer = client.producer
        if producer is None or client.attempt.wants_commit is not None:
            return
        name = self.rng.choice(list(self.partitions))
        partition = self.partitions[name]
        added = self._ask(
            self.shard.add_partitions, client.transactional_id, producer, [name], 2 if client.version == 2 else 0
        )
        if added is not None:
            self._note_refusal(client, added)
            return
        self._next_value += 1
        value = f"v{self._next_value}"
        sequence = client.sequences.get(name, 0)
        for _ in range(self.rng.choice((1, 1, 2))):  # sent again, as if the first answer had been lost
            try:
                partition.append(producer, sequence, value)
            except ApiError as error:
                self._note_refusal(client, error.code)
                return
        client.sequences[name] = sequence + 1
        client.attempt.values.append((name, value))

    def _note_refusal(self, client: Client, answer: Any) -> None:
        if answer in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ):
            client.is_lost = True
            client.producer = None

    def end(self, client: Client) -> None:
        """Commits or aborts; without an answer, asks the same again later."""
        producer = client.producer
        if producer is None or (not client.attempt.values and client.version == 1):
            return
        if client.attempt.wants_commit is None:
            client.attempt.wants_commit = bool(client.attempt.values) and self.rng.random() < 0.7
        request = EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=client.attempt.wants_commit,
        )
        fresh = self._fresh_id(self.shard.is_exhausted(client.transactional_id))
        answer = self._ask(self.shard.end_transaction, request, 2 if client.version == 2 else 0, fresh)
        if isinstance(answer, ErrorCode):
            if answer == ErrorCode.INVALID_TXN_STATE:  # aborted by the coordinator, whose epoch we never saw
                client.producer = None
            self._note_refusal(client, answer)
        elif answer is not LOST:
            client.attempt.outcome = client.attempt.wants_commit
            if client.version == 2:
                client.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                client.sequences.clear()
            self._new_attempt(client)

    # -- what the coordinator does -------------------------------------------------------------------------------------

    def write_some_markers(self, share: float = 0.5) -> None:
        """Some partitions get their marker; of those, some are reported."""
        for due in self._carry_out(self.shard.due_markers(ASKED, self.now_ms)):
            marked = [name for name in due.partitions if self.rng.random() < share]
            for name in marked:
                try:
                    self.partitions[name].append_marker(due, self.coordinator_epoch)
                except ApiError as error:
                    if error.code != ErrorCode.INVALID_PRODUCER_EPOCH:
                        raise AssertionError(f"{name} does not take the end of {due}") from error
            if self.rng.random() < share:
                self._carry_out(self.shard.markers_written(due, marked, self.now_ms))

    def let_time_pass(self, ms: int) -> None:
        self.now_ms += ms
        self._carry_out(self.shard.expire(self.now_ms))
        for transaction in self._known():
            deadline_ms = self.shard.next_deadline_ms
            is_retried = deadline_ms is not None and deadline_ms <= self.now_ms + RETRY_MS
            if transaction.state == TransactionState.ONGOING and not is_retried:
                open_ms = self.now_ms - self._open_since[_name_of(transaction)]
                assert open_ms < transaction.timeout_ms, f"open for {open_ms} ms: {transaction}"

    def set_wall_clock(self) -> None:
        self.wall_ahead_ms = self.shard.wall_ahead_ms = self.rng.choice(WALL_CLOCKS_MS)

    def use_up_epochs(self) -> None:
        """Brings a transactional id at rest close to the end of its epochs: the log says so."""
        transaction = self.shard.transaction(self.rng.choice(self.clients).transactional_id)
        if transaction is not None and transaction.state in IDLE and transaction.producer_epoch < 100:
            value = transaction.record().value
            assert value is not None
            value.producer_epoch = LAST_CLIENT_EPOCH - self.rng.randrange(3)  # type: ignore[attr-defined]
            self._carry_out(Decision([CoordinatorRecord(transaction.record().key, value, 1)]))

    # -- running and judging -------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        client = self.rng.choice(self.clients)
        roll = self.rng.random()
        if roll < 0.08 or client.producer is None:
            self.init(client)
        elif roll < 0.5:
            self.send(client)
        elif roll < 0.7:
            self.end(client)
        elif roll < 0.9:
            self.write_some_markers()
        elif roll < 0.94:
            self.let_time_pass(self.rng.choice((1, 100, 600, 61_000)))
        elif roll < 0.95:
            self.use_up_epochs()
        elif roll < 0.97:
            self.set_wall_clock()
        else:
            self.restart_coordinator()
        if self.steps % 20 == 0:
            self.check_replay()

    def drain(self) -> None:
        """Everybody goes away; what is open runs into its timeout."""
        for _ in range(100):
            self.let_time_pass(61_000)
            self.write_some_markers(share=1.0)
            transactions = self._known()
            if all(transaction.state in IDLE for transaction in transactions):
                return
        raise AssertionError(f"these never end: {[one for one in transactions if one.state not in IDLE]}")

    def _known(self, shard: TransactionShard | None = None) -> list[Transaction]:
        shard = shard or self.shard
        found = (shard.transaction(name) for name in sorted({client.transactional_id for client in self.clients}))
        return [transaction for transaction in found if transaction is not None]

    def check_replay(self) -> None:
        """The log makes the same state, whether all of it is read or only what compaction keeps."""
        states = [transaction.record() for transaction in self._known()]
        assert [one.record() for one in self._known(self._replayed(self.log))] == states
        assert [one.record() for one in self._known(self._replayed(dict(self.log).items()))] == states

    def check_outcome(self) -> None:
        """All or nothing, and as the responses said."""
        visible = {name: partition.visible() for name, partition in self.partitions.items()}
        for attempt in self.attempts:
            seen = [value in visible[name] for name, value in attempt.values]
            assert all(seen) or not any(seen), f"a part of a transaction is visible: {attempt} {seen}"
            if attempt.outcome is not None and attempt.values:
                assert seen[0] == attempt.outcome, f"not as the response to its producer said: {attempt}"
        for name, partition in self.partitions.items():
            assert partition.states.first_unstable_offset is None, f"{name} is not stable to its end"
            values = [entry for _, entry in partition.entries if isinstance(entry, str)]
            assert len(values) == len(set(values)), f"{name} holds a value twice"


def _name_of(transaction: Transaction) -> tuple[str, int, int]:
    return transaction.transactional_id, transaction.producer_epoch, transaction.start_ms


def run(seed: int, steps: int = 150) -> World:
    """One world from beginning to end; AssertionError names what did not hold."""
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.drain()
    world.check_replay()
    world.check_outcome()
    return world
