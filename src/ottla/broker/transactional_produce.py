"""Records of transactions on their way to partitions: which may be appended, and why not.

Before the first batch of a transaction in a partition its coordinator is asked, once for all partitions of a request.
The answer holds only as long as no marker comes: each batch is looked at again in the turn in which it is appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.broker.verification import TransactionVerifier, code_for_writer
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest
from ottla.records import batch
from ottla.records.layout import ATTRIBUTES_AT, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT
from ottla.storage.producer_state import Verification
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from typing_extensions import Buffer

FIRST_ABORTABLE_VERSION = 11
FIRST_VERSION_2_VERSION = 12  # adds its partitions by itself

# A producer does not know of coordinators: what it can only wait for is reported as an error that it retries.
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
    """What is known about the batches of one request: whether each may be appended, and why not.

    `asked` are the partitions in which the transaction is not known to be open, so that its coordinator must be asked.
    """

    def __init__(
        self, replicas: Replicas, request: ProduceRequest, version: int, now_ms: int, *, verifies_added: bool
    ) -> None:
        """`verifies_added`: whether the coordinator is asked about partitions that an older producer has added."""
        # All by the identity of the entry for a partition.
        self.candidates: dict[int, Candidate] = {}
        self.refusals: dict[int, ApiError] = {}
        self.asked: dict[int, TopicPartition] = {}
        self._version = version
        self._now_ms = now_ms
        self._adds = version >= FIRST_VERSION_2_VERSION
        assert request.transactional_id is not None, "a request with records of a transaction has its id"
        self._transactional_id = request.transactional_id
        producers = _producers_of(request)
        if len(producers) > 1:
            self._refuse_all(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of several producers")
            return
        if not self._adds and not verifies_added:
            return
        (self._producer,) = producers
        self._collect(replicas, request)

    def _refuse_all(self, request: ProduceRequest, code: ErrorCode, why: str) -> None:
        for topic in request.topic_data:
            for entry in topic.partition_data:
                self.refusals[id(entry)] = ApiError(code, f"the records of the transaction cannot be accepted: {why}")

    def _collect(self, replicas: Replicas, request: ProduceRequest) -> None:
        """Notes every batch, and the partitions where its transaction is not open yet."""
        producer = self._producer
        for topic in request.topic_data:
            for entry in topic.partition_data:
                records = entry.records
                if records is None or not _is_transactional(records):
                    continue
                sequence = batch.read_header(records).base_sequence
                verification = None
                try:
                    partition = replicas.find_named_or_by_id(topic.name, topic.topic_id, entry.index)
                    partition.check_leader()
                    if not partition.log.producers.has_open_transaction(*producer):
                        verification = self._begin(partition, sequence)
                        self.asked[id(entry)] = partition.name
                except ApiError as error:
                    self.refusals[id(entry)] = error
                    continue
                self.candidates[id(entry)] = Candidate(partition, producer, sequence, verification)

    async def ask_coordinator(self, verifier: TransactionVerifier) -> None:
        """Asks about what is not known to be open."""
        keys = {name: key for key, name in self.asked.items()}
        verdicts = await verifier.verify(
            self._transactional_id,
            self._producer,
            list(keys),
            adds=self._adds,
            begin_again=lambda name: self._begin_again(keys[name]),
        )
        for key, name in self.asked.items():
            verdict = verdicts[name]
            if verdict:
                code = _code_for_producer(verdict, self._version)
                self.refusals[key] = ApiError(code, f"its coordinator rejected {name}: {verdict.name}")

    def _begin(self, partition: Partition, sequence: int) -> Verification:
        return partition.log.producers.begin_verification(
            *self._producer, sequence, starts_at_zero=self._adds, now_ms=self._now_ms
        )

    def _begin_again(self, key: int) -> bool:
        """Begins the verification of a partition again if a marker has come since."""
        candidate = self.candidates[key]
        if candidate.partition.log.producers.has_open_transaction(*candidate.producer):
            return False  # a request beside this one has opened it
        try:
            verification = self._begin(candidate.partition, candidate.sequence)
        except ApiError as error:
            self.refusals[key] = error
            return False
        self.candidates[key] = candidate._replace(verification=verification)
        return verification is not candidate.verification

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
    for topic in request.topic_data:
        for entry in topic.partition_data:
            if _is_transactional(entry.records):
                return True
    return False


def _is_transactional(records: Buffer | None) -> bool:
    """Whether they begin with a batch of a transaction. One that is cut off is none: it is refused for that."""
    return (
        records is not None
        and len(records) > HEADER_BYTES  # type: ignore[arg-type]
        and records[MAGIC_AT] == MAGIC  # type: ignore[index]
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)  # type: ignore[index]
        and batch.read_header(records).size_bytes <= len(records)  # type: ignore[arg-type]
    )


def _producers_of(request: ProduceRequest) -> set[ProducerIdAndEpoch]:
    headers = (
        batch.read_header(entry.records)
        for topic in request.topic_data
        for entry in topic.partition_data
        if entry.records is not None and _is_transactional(entry.records)
    )
    return {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in headers}


def _code_for_producer(verdict: ErrorCode, version: int) -> ErrorCode:
    is_older = version < FIRST_VERSION_2_VERSION
    if verdict in _WAITED_FOR or (is_older and verdict == ErrorCode.CONCURRENT_TRANSACTIONS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code_for_writer(verdict, knows_abortable=version >= FIRST_ABORTABLE_VERSION)
