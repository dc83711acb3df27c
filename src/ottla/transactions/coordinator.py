"""The transactions of one partition of `__transaction_state`: a decide/apply machine.

What is decided about a transaction is written before it is answered, and then carried out: markers go to every
partition that took part, and the last of them completes it. Which markers are still due follows from the state alone:
a coordinator that crashed in between goes on where it stopped. The DueMarkers of an end are an effect of its decision,
and again of the load.

New producer ids come from the outside: ask `wants_producer_id` or `is_exhausted` first and pass one in. One that turns
out not to be needed is lost, which harms nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ErrorCode
from ottla.ids import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.messages.transactions import (
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsResponseTransactionState,
    TopicData,
)
from ottla.timers import Timers
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.state import (
    FIRST_VERSION_WITH_BUMPS,
    IDLE,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIMEOUT_MS,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    tombstone,
)

EXPIRED_AT_ONCE_MAX = 1000  # transactional ids forgotten in one batch
LISTED_PER_STEP = 64
RETRY_MS = 1000  # until what could not be written is tried again


@dataclass(frozen=True, slots=True)
class DueMarkers:
    """The end of a transaction, and the partitions that do not know of it yet."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_commit: bool
    client_version: int
    partitions: tuple[TopicPartition, ...]


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        """`settings` are asked for each time: some change while the broker runs."""
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}
        # Volatile, both rebuilt by a replay: markers that partitions still lack, and when transactions time out.
        self._unmarked: dict[str, set[TopicPartition]] = {}
        self._timers: Timers[str] = Timers()
        # When the time of each id began to count, by steady time; as long as a replay lasts, none does.
        self._since: dict[str, int] = {}
        self._is_loaded = False
        self.wall_ahead_ms = 0
        # What an InitProducerId in progress is known by when it is asked again; taken over by `apply`.
        self._repeatable: dict[str, int] = {}

    # -- life ----------------------------------------------------------------------------------------------------------

    def apply_all(self, records: Sequence[CoordinatorRecord], producer_id: int) -> None:
        assert producer_id < 0, "no record of a coordinator of transactions is itself in one"
        for record in records:
            self.apply(record)

    def apply(self, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, TransactionLogKey), f"{type(record.key).__name__} is not a key of this topic"
        transactional_id = record.key.transactional_id
        self._unmarked.pop(transactional_id, None)
        repeatable_epoch = self._repeatable.pop(transactional_id, NO_PRODUCER_EPOCH)
        before = self._transactions.get(transactional_id)
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._since.pop(transactional_id, None)
            self._timers.cancel(transactional_id)
            return
        assert isinstance(record.value, TransactionLogValue)
        transaction = Transaction.of_record(transactional_id, record.value)
        if transaction.state == TransactionState.EMPTY:
            transaction = replace(transaction, last_producer_epoch=repeatable_epoch)
        elif transaction.last_producer_epoch == NO_PRODUCER_EPOCH and before is not None:
            # What raises no epoch leaves it: a transaction of version 1, from its begin to its end.
            transaction = replace(transaction, last_producer_epoch=before.last_producer_epoch)
        if transaction.state in PREPARED:
            self._unmarked[transactional_id] = set(transaction.partitions)
        self._transactions[transactional_id] = transaction
        if self._is_loaded:
            # An open transaction goes on counting from where it began, whatever became of the wall clock since.
            if before is None or not transaction.continues(before):
                self._since[transactional_id] = transaction.counted_from_ms - self.wall_ahead_ms
            self._set_timer(transaction)

    def loaded(self, now_ms: int) -> Decision:
        """Goes on with the ends that were decided and not carried out, and starts the deadlines.

        How much of its time a transaction has used follows from the wall time in its record, this once; one that began
        in the future, for the clock was set back, begins now.
        """
        wall_ms = self._wall_ms(now_ms)
        self._is_loaded = True
        for transaction in self._transactions.values():
            self._since[transaction.transactional_id] = now_ms - max(0, wall_ms - transaction.counted_from_ms)
            self._set_timer(transaction)
        without_partitions = [tid for tid, partitions in self._unmarked.items() if not partitions]
        decision = Decision([self._completed(self._transactions[tid], wall_ms).record() for tid in without_partitions])
        decision.effects += [
            _due(self._transactions[tid], partitions) for tid, partitions in self._unmarked.items() if partitions
        ]
        return decision

    def refused(self, decision: Decision, error_code: ErrorCode, now_ms: int) -> Decision:
        """Nothing has changed, so everybody may ask again; what time had brought about is tried again soon."""
        for record in decision.records:
            assert isinstance(record.key, TransactionLogKey)
            transactional_id = record.key.transactional_id
            self._repeatable.pop(transactional_id, None)
            if transactional_id in self._transactions and transactional_id not in self._timers:
                self._set_timer(self._transactions[transactional_id], not_before_ms=now_ms + RETRY_MS)
        return Decision(replies=[(ticket, error_code) for ticket, _ in decision.replies])

    def unloaded(self) -> list[tuple[Ticket, object]]:
        return []  # nobody is ever kept waiting

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms

    def expire(self, now_ms: int) -> Decision:
        """Aborts what has been open for too long and forgets transactional ids that have been silent for too long."""
        decision = Decision()
        wall_ms = self._wall_ms(now_ms)
        while len(decision.records) < EXPIRED_AT_ONCE_MAX:
            transactional_id = self._timers.pop_due(now_ms)
            if transactional_id is None:
                break
            transaction = self._transactions[transactional_id]
            if transaction.state == TransactionState.ONGOING:
                self._end(decision, transaction, commits=False, version=FIRST_VERSION_WITH_BUMPS, wall_ms=wall_ms)
            else:
                decision.records.append(tombstone(transactional_id))
        return decision

    def _set_timer(self, transaction: Transaction, not_before_ms: int = 0) -> None:
        allowed_ms = transaction.allowed_ms
        if transaction.state in IDLE:
            allowed_ms = self._settings().transactional_id_expiration_ms
        transactional_id = transaction.transactional_id
        if allowed_ms is None:
            self._timers.cancel(transactional_id)
        else:
            self._timers.set(transactional_id, max(self._since[transactional_id] + allowed_ms, not_before_ms))

    def _wall_ms(self, now_ms: int) -> int:
        return now_ms + self.wall_ahead_ms

    # -- producers come ------------------------------------------------------------------------------------------------

    def wants_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id` needs a new one."""
        return transactional_id not in self._transactions or self.is_exhausted(transactional_id)

    def is_exhausted(self, transactional_id: str) -> bool:
        """Whether the epochs of the producer id are used up, so that ending a transaction needs a new one."""
        transaction = self._transactions.get(transactional_id)
        return transaction is not None and transaction.latest.is_exhausted

    def init_producer_id(
        self, request: InitProducerIdRequest, new_producer_id: int | None, ticket: Ticket, now_ms: int
    ) -> Decision:
        """A producer introduces itself: it gets an epoch that fences those before it."""
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error = self._why_not_init(request, expected)
        if error is not None:
            return _refuse(ticket, error)
        transactional_id = request.transactional_id or ""
        wall_ms = self._wall_ms(now_ms)
        timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            assert new_producer_id is not None, "ask wants_producer_id first"
            first = Transaction(
                transactional_id,
                new_producer_id,
                0,
                previous_producer_id=new_producer_id,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                last_update_ms=wall_ms,
            )
            return _with_producer(first, ticket)
        if transaction.state in PREPARED:
            return _refuse(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected != NO_PRODUCER and not transaction.may_continue(expected):
            return _refuse(ticket, ErrorCode.PRODUCER_FENCED)
        if transaction.state == TransactionState.ONGOING:
            if request.keep_prepared_txn:
                return self._keep(transaction, expected, timeout_ms, new_producer_id, ticket, wall_ms)
            decision = Decision()
            self._end(decision, transaction, commits=False, version=FIRST_VERSION_WITH_BUMPS, wall_ms=wall_ms)
            decision.replies.append((ticket, ErrorCode.CONCURRENT_TRANSACTIONS))
            return decision
        return self._raise_epoch(transaction, expected, timeout_ms, new_producer_id, ticket, wall_ms)

    def _why_not_init(self, request: InitProducerIdRequest, expected: ProducerIdAndEpoch) -> ErrorCode | None:
        settings = self._settings()
        if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if request.enable2_pc:
            if not settings.two_phase_commit_enable:
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not 0 < request.transaction_timeout_ms <= settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return None

    def _raise_epoch(
        self,
        transaction: Transaction,
        expected: ProducerIdAndEpoch,
        timeout_ms: int,
        new_producer_id: int | None,
        ticket: Ticket,
        wall_ms: int,
    ) -> Decision:
        """The next epoch; the same once more if the answer was lost (KIP-360); a new producer id after the last."""
        current = transaction.own
        is_repeated = expected != NO_PRODUCER and expected.epoch == transaction.last_producer_epoch
        producer = ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
        repeatable_epoch = NO_PRODUCER_EPOCH if expected == NO_PRODUCER else current.epoch
        if expected not in (NO_PRODUCER, current) and not is_repeated:
            return _refuse(ticket, ErrorCode.PRODUCER_FENCED)
        if current.epoch == PRODUCER_EPOCH_MAX or (current.is_exhausted and not is_repeated):
            assert new_producer_id is not None, "ask wants_producer_id first"
            producer = ProducerIdAndEpoch(new_producer_id, 0)
        elif is_repeated:
            producer, repeatable_epoch = current, transaction.last_producer_epoch
        after = replace(
            transaction,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            previous_producer_id=current.producer_id,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=wall_ms,
        )
        self._repeatable[transaction.transactional_id] = repeatable_epoch
        return _with_producer(after, ticket)

    @staticmethod
    def _keep(
        transaction: Transaction,
        expected: ProducerIdAndEpoch,
        timeout_ms: int,
        new_producer_id: int | None,
        ticket: Ticket,
        wall_ms: int,
    ) -> Decision:
        """Leaves a prepared transaction open and gives its next owner the right to end it, and nobody else."""
        latest = transaction.latest
        if expected not in (NO_PRODUCER, latest):
            return _refuse(ticket, ErrorCode.PRODUCER_FENCED)
        if latest.is_exhausted:
            assert new_producer_id is not None, "ask wants_producer_id first"
            producer = ProducerIdAndEpoch(new_producer_id, 0)
        else:
            producer = ProducerIdAndEpoch(latest.producer_id, latest.epoch + 1)
        after = replace(
            transaction,
            previous_producer_id=latest.producer_id,
            next_producer_id=producer.producer_id,
            next_producer_epoch=producer.epoch,
            timeout_ms=timeout_ms,
            last_update_ms=wall_ms,
        )
        return _with_producer(after, ticket)

    # -- partitions join -----------------------------------------------------------------------------------------------

    def _open_to(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction | ErrorCode:
        """The transaction that a producer may add to, or why it may not."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return transaction.why_not_add(producer) or transaction

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        ticket: Ticket,
        now_ms: int,
    ) -> Decision:
        """Partitions take part in a transaction, which begins with the first. The reply is None, or an error."""
        transaction = self._open_to(transactional_id, producer)
        if isinstance(transaction, ErrorCode):
            return _refuse(ticket, transaction)
        if transaction.state == TransactionState.ONGOING and transaction.partitions.issuperset(partitions):
            return Decision(replies=[(ticket, None)])
        wall_ms = self._wall_ms(now_ms)
        after = replace(
            transaction,
            previous_producer_id=transaction.producer_id,
            state=TransactionState.ONGOING,
            partitions=transaction.partitions.union(partitions),
            start_ms=transaction.start_ms if transaction.state == TransactionState.ONGOING else wall_ms,
            last_update_ms=wall_ms,
            client_version=client_version,
        )
        return Decision([after.record()], [(ticket, None)])

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        now_ms: int,
    ) -> Decision:
        """Whether these partitions take part in a transaction of that producer: an error code for each."""
        transaction = self._open_to(transactional_id, producer)
        if isinstance(transaction, ErrorCode):
            return _refuse(ticket, transaction)
        codes = {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }
        return Decision(replies=[(ticket, codes)])

    # -- the end -------------------------------------------------------------------------------------------------------

    def end_transaction(
        self, request: EndTxnRequest, client_version: int, new_producer_id: int | None, ticket: Ticket, now_ms: int
    ) -> Decision:
        """A producer commits or aborts: the decision stands from here on. Asked again, it is answered the same."""
        if not request.transactional_id:
            return _refuse(ticket, ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            return _refuse(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        presented = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        is_bumping = client_version >= FIRST_VERSION_WITH_BUMPS
        is_repeated = is_bumping and transaction.is_repeated_end(presented)
        known_ids = (transaction.producer_id, transaction.latest.producer_id)
        if presented.producer_id not in known_ids and not is_repeated:
            return _refuse(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not transaction.may_end(presented, is_bumping):
            return _refuse(ticket, ErrorCode.PRODUCER_FENCED)
        if transaction.state in PREPARED:
            return _refuse(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state != TransactionState.ONGOING:
            outcome = TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT
            if transaction.state == outcome and (is_repeated or not is_bumping):
                return Decision(replies=[(ticket, _end_response(transaction.latest))])
            # From version 2 on partitions join without asking, so a producer may abort what it never sent.
            if request.committed or not is_bumping or is_repeated:
                return _refuse(ticket, ErrorCode.INVALID_TXN_STATE)
        decision = Decision()
        prepared = self._end(
            decision,
            transaction,
            request.committed,
            client_version,
            wall_ms=self._wall_ms(now_ms),
            new_producer_id=new_producer_id,
        )
        decision.replies.append((ticket, _end_response(prepared.latest)))
        return decision

    def _end(
        self,
        decision: Decision,
        transaction: Transaction,
        commits: bool,
        version: int,
        *,
        wall_ms: int,
        new_producer_id: int | None = None,
    ) -> Transaction:
        """Adds the end of a transaction to a decision; with `version` 2 the epoch of its markers fences the producer.

        Returns the prepared transaction, whose `latest` goes on after it.
        """
        epoch = transaction.producer_epoch
        current = latest = transaction.latest
        next_producer = NO_PRODUCER
        if version >= FIRST_VERSION_WITH_BUMPS:
            epoch = min(epoch + 1, PRODUCER_EPOCH_MAX)
            latest = ProducerIdAndEpoch(current.producer_id, min(current.epoch + 1, PRODUCER_EPOCH_MAX))
            if current.is_exhausted and new_producer_id is not None:
                latest = ProducerIdAndEpoch(new_producer_id, 0)
                next_producer = ProducerIdAndEpoch(new_producer_id, NO_PRODUCER_EPOCH)  # as Kafka writes an overflow
        if transaction.is_kept:
            next_producer = latest
        has_begun = transaction.state == TransactionState.ONGOING
        prepared = replace(
            transaction,
            producer_epoch=epoch,
            previous_producer_id=current.producer_id,
            next_producer_id=next_producer.producer_id,
            next_producer_epoch=next_producer.epoch,
            state=TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            start_ms=transaction.start_ms if has_begun else wall_ms,
            last_update_ms=wall_ms,
            client_version=version,
        )
        decision.records.append(prepared.record())
        if prepared.partitions:
            decision.effects.append(_due(prepared, prepared.partitions))
        else:
            decision.records.append(self._completed(prepared, wall_ms).record())
        return prepared

    @staticmethod
    def _completed(prepared: Transaction, wall_ms: int) -> Transaction:
        is_commit = prepared.state == TransactionState.PREPARE_COMMIT
        producer_id, epoch = prepared.latest
        return replace(
            prepared,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=wall_ms,
        )

    def due_markers(self, ticket: Ticket, now_ms: int) -> Decision:
        """The reply: a list of DueMarkers, for every decided end of which markers are missing."""
        due = [_due(self._transactions[tid], partitions) for tid, partitions in self._unmarked.items()]
        return Decision(replies=[(ticket, due)])

    def due_markers_of(self, transactional_id: str, ticket: Ticket, now_ms: int) -> Decision:
        """The reply: the DueMarkers of one transactional id; None where its last end is complete."""
        partitions = self._unmarked.get(transactional_id)
        due = None if partitions is None else _due(self._transactions[transactional_id], partitions)
        return Decision(replies=[(ticket, due)])

    def markers_written(self, due: DueMarkers, partitions: Collection[TopicPartition], now_ms: int) -> Decision:
        """Some partitions know of the end, or are gone; with the last one the transaction is complete."""
        transaction = self._transactions.get(due.transactional_id)
        unmarked = self._unmarked.get(due.transactional_id)
        decision = Decision()
        if transaction is None or unmarked is None or transaction.own != due.producer:
            return decision  # of an earlier end
        unmarked.difference_update(partitions)
        if not unmarked:
            decision.records.append(self._completed(transaction, self._wall_ms(now_ms)).record())
        return decision

    # -- telling -------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str, ticket: Ticket, now_ms: int) -> Decision:
        """The reply is an entry of a DescribeTransactions response, or an error."""
        if not transactional_id:
            return _refuse(ticket, ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return _refuse(ticket, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._unmarked.get(transactional_id, transaction.partitions)):
            topics.setdefault(topic, []).append(partition)
        described = DescribeTransactionsResponseTransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        )
        return Decision(replies=[(ticket, described)])

    def list_transactions(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        ticket: Ticket,
        now_ms: int,
    ) -> Decision:
        """The reply is steps to a list of entries of a ListTransactions response. `states` None: whatever the state."""
        return Decision(replies=[(ticket, self._listed(states, producer_ids, longer_than_ms, self._wall_ms(now_ms)))])

    def _listed(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        wall_ms: int,
    ) -> Generator[None, None, list[ListTransactionsResponseTransactionState]]:
        listed = []
        for number, transaction in enumerate(list(self._transactions.values()), 1):  # they change between two steps
            if (
                (states is None or transaction.state in states)
                and (not producer_ids or transaction.producer_id in producer_ids)
                and (longer_than_ms < 0 or wall_ms - transaction.start_ms > longer_than_ms)
            ):
                listed.append(
                    ListTransactionsResponseTransactionState(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.title,
                    )
                )
            if number % LISTED_PER_STEP == 0:
                yield
        return listed

    def __len__(self) -> int:
        return len(self._transactions)

    def transaction(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)


def _due(prepared: Transaction, partitions: Collection[TopicPartition]) -> DueMarkers:
    return DueMarkers(
        prepared.transactional_id,
        prepared.own,
        prepared.state == TransactionState.PREPARE_COMMIT,
        prepared.client_version,
        tuple(sorted(partitions)),
    )


def _refuse(ticket: Ticket, error: ErrorCode) -> Decision:
    return Decision(replies=[(ticket, error)])


def _with_producer(after: Transaction, ticket: Ticket) -> Decision:
    producer_id, epoch = after.latest
    ongoing = after.own if after.is_kept else NO_PRODUCER
    response = InitProducerIdResponse(
        producer_id=producer_id,
        producer_epoch=epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.epoch,
    )
    return Decision([after.record()], [(ticket, response)])


def _end_response(producer: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
