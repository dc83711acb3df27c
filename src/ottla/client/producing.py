"""Records to brokers, a batch at a time.

    producer = BatchProducer(cluster, ProducerOptions(compression=Compression.LZ4))
    appended = await producer.produce("orders", RecordColumns(values, timestamps=now_ms, keys=keys))

One batch of a partition is under way at a time, so order holds whatever is tried again; batches of different partitions
travel together, one request per leader. An idempotent producer numbers its batches, and a batch that is sent again has
its old number: the broker takes it once. A batch that is refused for good leaves a gap in the numbers, so that its
producer refuses everything after it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ottla.client.metadata import Cluster
from ottla.client.partitioning import RecordColumns, split_by_partition, split_by_size
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records import batch
from ottla.records.layout import INT32_MAX, Compression

# Kafka's `message.max.bytes` is 1 MiB and a little; a batch of this size is taken by default.
BATCH_BYTES_MAX: Final = 1_000_000
PRODUCE_BY_NAME_MAX: Final = 12  # the last version that names topics; later ones have ids
ANSWER_SLACK_S: Final = 1.0  # a broker's own limit comes first: it says what was missing
# What the log already has: the answer to the first try was lost, and it has been replaced in its memory since.
ALREADY_APPENDED: Final = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Acks(IntEnum):
    """Who must have a batch before the broker answers."""

    NONE = 0
    LEADER = 1
    ALL = -1


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: Acks = Acks.ALL
    compression: Compression = Compression.NONE
    is_idempotent: bool = True
    batch_bytes_max: int = BATCH_BYTES_MAX
    may_create_topics: bool = True

    def __post_init__(self) -> None:
        if self.is_idempotent and self.acks is not Acks.ALL:
            raise ValueError("an idempotent producer needs acks=all: what is not acknowledged cannot be sent again")


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch that a broker took. Without acknowledgement its offset is not known: -1."""

    partition: TopicPartition
    base_offset: int
    record_count: int
    size_bytes: int


@dataclass(eq=False, slots=True)
class _Batch:
    """Records on their way to a partition. Encoded when first sent, and then the same bytes at every try."""

    partition: TopicPartition
    records: RecordColumns
    base_sequence: int
    data: bytearray | None = None


@dataclass(eq=False, slots=True)
class _Producer:
    """The identity that numbers batches."""

    producer_id: int
    epoch: int
    next_sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def take_sequences(self, partition: TopicPartition, count: int) -> int:
        first = self.next_sequences.get(partition, 0)
        self.next_sequences[partition] = (first + count) & INT32_MAX
        return first


class BatchProducer:
    """Sends columns of records. Calls for the same partition are sent in the order in which they were made."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions | None = None, chance: random.Random | None = None
    ) -> None:
        self.options = options or ProducerOptions()
        self._cluster = cluster
        self._chance = chance or random.Random()
        self._identity: _Producer | None = None
        self._turn = asyncio.Lock()
        self._failure: OttlaError | None = None

    async def produce(self, topic: str, records: RecordColumns, partition: int | None = None) -> list[Appended]:
        """Sends records and returns once they are acknowledged as `acks` asks; an error is raised for the first batch
        that is refused. Without a `partition` their keys decide."""
        # One call at a time: its batches are numbered and sent before those of the next one.
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            deadline = self._cluster.deadline()
            if self.options.is_idempotent and self._identity is None:
                self._identity = await self._new_identity()
            found = await self._cluster.topic(topic, deadline, may_create=self.options.may_create_topics)
            if partition is None:
                count = len(found.partitions)
                parts = split_by_partition(records, count, self._chance.randrange(count))
            else:
                parts = {found.partition(partition).partition: records}
            queues = [self._batches(TopicPartition(topic, number), part) for number, part in parts.items()]
            try:
                return await self._send_all(queues)
            except OttlaError as error:
                if self.options.is_idempotent:
                    self._failure = error
                raise

    async def _new_identity(self) -> _Producer:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        response = await self._cluster.ask_any(request, InitProducerIdResponse, lambda answer: (answer.error_code,))
        if (error := error_of(response.error_code, None, "a producer id")) is not None:
            raise error
        return _Producer(response.producer_id, response.producer_epoch)

    def _batches(self, partition: TopicPartition, records: RecordColumns) -> list[_Batch]:
        """The batches of one partition, the last one first: they are taken from the end."""
        batches = [
            _Batch(partition, piece, self._take_sequences(partition, len(piece)))
            for piece in split_by_size(records, self.options.batch_bytes_max)
        ]
        batches.reverse()
        return batches

    def _take_sequences(self, partition: TopicPartition, count: int) -> int:
        return NO_SEQUENCE if self._identity is None else self._identity.take_sequences(partition, count)

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send_all(self, queues: Sequence[list[_Batch]]) -> list[Appended]:
        """Sends the next batch of every partition, round by round, until none is left."""
        appended: list[Appended] = []
        deadline, pauses = self._cluster.deadline(), iter(self._cluster.options.pauses)
        while open_queues := {queue[-1].partition: queue for queue in queues if queue}:
            failure: OttlaError | None = None
            heads = {partition: queue[-1] for partition, queue in open_queues.items()}
            for partition, outcome in (await self._send_round(heads, deadline)).items():
                queue = open_queues[partition]
                match outcome:
                    case Appended():
                        queue.pop()
                        appended.append(outcome)
                    case ApiError(code=ErrorCode.MESSAGE_TOO_LARGE) if len(queue[-1].records) > 1:
                        queue.extend(_halves(queue.pop()))
                    case _ if is_passing(outcome):
                        self._cluster.learn_from(outcome, [partition.topic])
                        failure = outcome
                    case _:
                        raise outcome
            if failure is None:
                deadline, pauses = self._cluster.deadline(), iter(self._cluster.options.pauses)
            else:
                await deadline.pause(next(pauses), failure)
        return appended

    async def _send_round(
        self, batches: Mapping[TopicPartition, _Batch], deadline: Deadline
    ) -> dict[TopicPartition, Appended | OttlaError]:
        by_leader = await self._cluster.by_leader(batches, deadline)
        sent = await asyncio.gather(
            *(
                self._send_to(node_id, [batches[partition] for partition in partitions], deadline)
                for node_id, partitions in by_leader.items()
            )
        )
        return {partition: outcome for outcomes in sent for partition, outcome in outcomes.items()}

    async def _send_to(
        self, node_id: int, batches: Sequence[_Batch], deadline: Deadline
    ) -> dict[TopicPartition, Appended | OttlaError]:
        """One request to one broker: what became of each batch."""
        wait_s = min(deadline.left_s, self._cluster.options.connection.request_timeout_s)
        request, version_max = self._request(batches, wait_s)
        try:
            connection = await self._cluster.connection(node_id)
            if self.options.acks is Acks.NONE:
                await connection.send(request, version_max=version_max)
                return {each.partition: _appended(each, -1) for each in batches}
            response = await connection.request(
                request, ProduceResponse, version_max=version_max, timeout_s=wait_s + ANSWER_SLACK_S
            )
        except (ConnectionFailedError, ApiError) as error:
            return {each.partition: error for each in batches}
        answers = _answers(request, response)
        return {each.partition: _outcome(each, answers[each.partition]) for each in batches}

    def _request(self, batches: Sequence[_Batch], wait_s: float) -> tuple[ProduceRequest, int | None]:
        topics: dict[str, list[PartitionProduceData]] = {}
        for each in batches:
            data = PartitionProduceData(index=each.partition.partition, records=memoryview(self._encoded(each)))
            topics.setdefault(each.partition.topic, []).append(data)
        request = ProduceRequest(
            acks=self.options.acks,
            timeout_ms=int(wait_s * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self._cluster.known_topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )
        has_ids = all(each.topic_id != ZERO_TOPIC_ID for each in request.topic_data)
        return request, None if has_ids else PRODUCE_BY_NAME_MAX

    def _encoded(self, pending: _Batch) -> bytearray:
        if pending.data is None:
            records = pending.records
            pending.data = batch.build(
                records.keys,
                records.values,
                records.timestamps,
                headers=records.headers,
                compression=self.options.compression,
                producer_id=NO_PRODUCER_ID if self._identity is None else self._identity.producer_id,
                producer_epoch=-1 if self._identity is None else self._identity.epoch,
                base_sequence=pending.base_sequence,
            )
        return pending.data


def _answers(request: ProduceRequest, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    return {
        TopicPartition(topic.name or names[topic.topic_id], each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }


def _outcome(sent: _Batch, answer: PartitionProduceResponse) -> Appended | ApiError:
    message = answer.error_message
    if answer.record_errors:
        first = answer.record_errors[0]
        message = f"record {first.batch_index} of the batch: {first.batch_index_error_message or message}"
    error = error_of(answer.error_code, message, str(sent.partition))
    if error is None or error.code in ALREADY_APPENDED:
        return _appended(sent, answer.base_offset)
    return error


def _appended(sent: _Batch, base_offset: int) -> Appended:
    assert sent.data is not None
    return Appended(sent.partition, base_offset, len(sent.records), len(sent.data))


def _halves(refused: _Batch) -> Iterable[_Batch]:
    """A batch that is too large for its topic in two, the second first. No number has been used up: it was refused."""
    middle = len(refused.records) // 2
    first, second = refused.records.slice(0, middle), refused.records.slice(middle, len(refused.records))
    has_numbers = refused.base_sequence != NO_SEQUENCE
    second_sequence = (refused.base_sequence + middle) & INT32_MAX if has_numbers else NO_SEQUENCE
    return (
        _Batch(refused.partition, second, second_sequence),
        _Batch(refused.partition, first, refused.base_sequence),
    )
