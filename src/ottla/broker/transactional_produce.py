"""Records of transactions on their way to partitions: which may be appended, and why not.

Before the first batch of a transaction in a partition its coordinator is asked, once for all partitions of a request.
The answer holds only as long as no marker comes: each batch is looked at again in the turn in which it is appended.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.verification import Verdicts, as_told_to, verify
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest
from ottla.records import batch
from ottla.records.layout import ATTRIBUTES_AT, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT
from ottla.storage.producer_state import Verification
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.broker.broker import Broker

FIRST_ABORTABLE_VERSION = 11
FIRST_VERSION_2_VERSION = 12  # adds its partitions by itself

# A producer does not know of coordinators: what it may only wait for is told in a code that it waits for.
_WAITED_FOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Candidate(NamedTuple):
    """A batch that may be appended if its transaction is open, or becomes so by it."""

    partition: Partition
    producer: ProducerIdAndEpoch
    sequence: int
    verification: Verification | None


class TransactionChecks:
    """What is known about the batches of one request."""

    def __init__(self) -> None:
        self.candidates: dict[int, Candidate] = {}  # both by the identity of what was asked for a partition
        self.refusals: dict[int, ApiError] = {}

    def check_verdict(self, entry: PartitionProduceData) -> None:
        """What the coordinator said; ApiError if that was no."""
        refusal = self.refusals.get(id(entry))
        if refusal is not None:
            raise refusal

    def check_log(self, entry: PartitionProduceData) -> None:
        """Asked just before the records are appended; ApiError says why they may not be."""
        candidate = self.candidates.get(id(entry))
        if candidate is not None:
            candidate.partition.log.producers.check_verified(
                *candidate.producer, candidate.sequence, candidate.verification
            )


def has_transactional_batches(request: ProduceRequest) -> bool:
    return any(_is_transactional(entry.records) for topic in request.topic_data for entry in topic.partition_data)


def _is_transactional(records: Buffer | None) -> bool:
    return (
        records is not None
        and len(records) > HEADER_BYTES  # type: ignore[arg-type]
        and records[MAGIC_AT] == MAGIC  # type: ignore[index]
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)  # type: ignore[index]
    )


def transaction_checks(
    broker: Broker, request: ProduceRequest, version: int
) -> TransactionChecks | Coroutine[Any, Any, TransactionChecks]:
    """Asks the coordinator about what is not known to be open already."""
    checks = TransactionChecks()
    producers = {
        ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        for header in (
            batch.read_header(entry.records)
            for topic in request.topic_data
            for entry in topic.partition_data
            if entry.records is not None and _is_transactional(entry.records)
        )
    }
    transactional_id = request.transactional_id
    assert transactional_id is not None, "a request with records of a transaction has its id"
    if len(producers) > 1:
        return _refuse_all(checks, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of several producers")
    adds = version >= FIRST_VERSION_2_VERSION
    if not adds and not broker.config.transaction_partition_verification_enable:
        return checks
    (producer,) = producers
    asked = _collect(broker, request, checks, producer, starts_at_zero=adds)
    if not asked:
        return checks
    verdicts = verify(broker, transactional_id, producer, list(asked.values()), adds=adds)
    if type(verdicts) is CoroutineType:
        return _judged_later(checks, asked, verdicts, version)
    return _judged(checks, asked, verdicts, version)  # type: ignore[arg-type]


def _collect(
    broker: Broker,
    request: ProduceRequest,
    checks: TransactionChecks,
    producer: ProducerIdAndEpoch,
    *,
    starts_at_zero: bool,
) -> dict[int, TopicPartition]:
    """Notes every batch, and returns the partitions where its transaction is not open yet."""
    asked: dict[int, TopicPartition] = {}
    now_ms = broker.clock.now_ms()
    for topic in request.topic_data:
        for entry in topic.partition_data:
            records = entry.records
            if records is None or not _is_transactional(records):
                continue
            sequence = batch.read_header(records).base_sequence
            verification = None
            try:
                partition = broker.replicas.find_named_or_by_id(topic.name, topic.topic_id, entry.index)
                partition.check_leader()
                states = partition.log.producers
                if not states.has_open_transaction(*producer):
                    verification = states.begin_verification(
                        *producer, sequence, starts_at_zero=starts_at_zero, now_ms=now_ms
                    )
                    asked[id(entry)] = partition.name
            except ApiError as error:
                checks.refusals[id(entry)] = error
                continue
            checks.candidates[id(entry)] = Candidate(partition, producer, sequence, verification)
    return asked


async def _judged_later(
    checks: TransactionChecks, asked: dict[int, TopicPartition], verdicts: Coroutine[Any, Any, Verdicts], version: int
) -> TransactionChecks:
    return _judged(checks, asked, await verdicts, version)


def _judged(
    checks: TransactionChecks, asked: dict[int, TopicPartition], verdicts: Verdicts, version: int
) -> TransactionChecks:
    for key, name in asked.items():
        verdict = verdicts[name]
        if verdict:
            checks.refusals[key] = ApiError(
                _as_told_to_producer(verdict, version), f"its coordinator rejected {name}: {verdict.name}"
            )
    return checks


def _as_told_to_producer(verdict: ErrorCode, version: int) -> ErrorCode:
    is_older = version < FIRST_VERSION_2_VERSION
    if verdict in _WAITED_FOR or (is_older and verdict == ErrorCode.CONCURRENT_TRANSACTIONS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return as_told_to(verdict, knows_abortable=version >= FIRST_ABORTABLE_VERSION)


def _refuse_all(checks: TransactionChecks, request: ProduceRequest, code: ErrorCode, why: str) -> TransactionChecks:
    for topic in request.topic_data:
        for entry in topic.partition_data:
            checks.refusals[id(entry)] = ApiError(code, f"the records of the transaction cannot be accepted: {why}")
    return checks
