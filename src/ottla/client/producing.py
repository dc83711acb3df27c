"""Records to brokers, a batch at a time.

    producer = BatchProducer(cluster, ProducerOptions(compression=Compression.LZ4))
    appended = await producer.produce("orders", RecordColumns(values, timestamps=now_ms, keys=keys))

With a transaction (`prepared.py`) everything is written in it, and its end is left to whoever holds it.
Columns are split by partition and by size here; `sending.py` brings the batches to their leaders, in order. A batch
that is refused for good leaves a gap in an idempotent producer's numbers, so that it refuses everything after it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.client.metadata import Cluster, Topic
from ottla.client.partitioning import Records
from ottla.client.prepared import Prepared, add_partitions
from ottla.client.retrying import error_of
from ottla.client.sending import Acknowledged, Acks, Batch, Sender, Sending, SendingOptions
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records.layout import INT32_MAX, Compression

# Kafka's `message.max.bytes` is 1 MiB and a little; a batch of this size is taken by default.
BATCH_BYTES_MAX: Final = 1_000_000
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
PRODUCE_VERSION_1_MAX: Final = 11  # later ones add partitions to a transaction by themselves (KIP-890)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: Acks = Acks.ALL
    compression: Compression = Compression.NONE
    is_idempotent: bool = True
    batch_bytes_max: int = BATCH_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX  # of batches that travel together; one alone may be larger
    delivery_timeout_s: float | None = None  # None: that of the cluster's operations
    may_create_topics: bool = True

    def __post_init__(self) -> None:
        if self.is_idempotent and self.acks is not Acks.ALL:
            raise ValueError("an idempotent producer needs acks=all: what is not acknowledged cannot be sent again")


@dataclass(eq=False, slots=True)
class _Identity:
    """The one that numbers batches."""

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
        self,
        cluster: Cluster,
        options: ProducerOptions | None = None,
        chance: random.Random | None = None,
        transaction: Prepared | None = None,
    ) -> None:
        self.options = options = options or ProducerOptions()
        assert transaction is None or options.is_idempotent, "batches of a transaction are numbered"
        self._cluster = cluster
        self._chance = chance or random.Random()
        self._transaction = transaction
        self._partitions: set[TopicPartition] = set()  # of the transaction
        self._identity: _Identity | None = None
        if transaction is not None:
            self._identity = _Identity(transaction.producer_id, transaction.producer_epoch)
        needs_adding = transaction is not None and not transaction.raises_epochs
        self._turn = asyncio.Lock()
        self._keyless_places: dict[str, int] = {}
        timeout_s = options.delivery_timeout_s
        sending = SendingOptions(
            acks=options.acks,
            is_idempotent=options.is_idempotent,
            request_bytes_max=options.request_bytes_max,
            delivery_timeout_s=cluster.options.timeout_s if timeout_s is None else timeout_s,
            transactional_id=None if transaction is None else transaction.transactional_id,
            version_max=PRODUCE_VERSION_1_MAX if needs_adding else None,
        )
        self._sender = Sender(cluster, sending, self._encode)

    @property
    def has_failed(self) -> bool:
        """Whether it refuses everything from now on; another one has to take its place."""
        return self._sender.failure is not None

    async def produce(self, topic: str, records: Records, partition: int | None = None) -> list[Acknowledged]:
        """Sends records and returns once they are acknowledged as `acks` asks; an error is raised for the first batch
        that is refused. Without a `partition` their keys decide."""
        return await (await self.send(topic, records, partition)).appended()

    async def send(self, topic: str, records: Records, partition: int | None = None) -> Sending:
        """Puts records on their way and returns without waiting for them: `Sending.appended` does that. Who sends
        without bound must wait from time to time, for what is not acknowledged stays in memory."""
        # One call at a time, so that its batches are numbered before those of the next one.
        async with self._turn:
            if self.options.is_idempotent and self._identity is None:
                self._identity = await self._new_identity()
            found = await self._cluster.topic(topic, may_create=self.options.may_create_topics)
            if self._sender.failure is not None:
                raise self._sender.failure
            pieces = list(self._pieces(found, records, partition))
            await self._join({TopicPartition(topic, number) for number, _ in pieces})
            sending = Sending(len(pieces))
            for number, piece in pieces:
                place = TopicPartition(topic, number)
                self._sender.add(Batch(place, piece, self._take_sequences(place, len(piece)), sending))
            return sending

    async def _join(self, partitions: set[TopicPartition]) -> None:
        """Where the rules ask for it, partitions are part of the transaction before something is sent to them."""
        if self._transaction is not None and not self._transaction.raises_epochs and partitions - self._partitions:
            await add_partitions(self._cluster, self._transaction, partitions - self._partitions)
            self._partitions |= partitions

    async def _new_identity(self) -> _Identity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        response = await self._cluster.ask_any(request, InitProducerIdResponse, lambda answer: (answer.error_code,))
        if (error := error_of(response.error_code, None, "a producer id")) is not None:
            raise error
        return _Identity(response.producer_id, response.producer_epoch)

    def _pieces(self, topic: Topic, records: Records, partition: int | None) -> Iterator[tuple[int, Records]]:
        """The records of each batch with their partition."""
        if partition is None:
            parts = records.by_partition(len(topic.partitions))
        else:
            parts = {topic.partition(partition).partition: records}
        for number, part in parts.items():
            for piece in part.pieces(self.options.batch_bytes_max):
                yield self._keyless_partition(topic) if number is None else number, piece

    def _keyless_partition(self, topic: Topic) -> int:
        """Another one each time, in turn; those without a leader are left out where others have one."""
        numbers = [each.partition for each in topic.partitions if each.leader_id >= 0]
        numbers = numbers or [each.partition for each in topic.partitions]
        if topic.name not in self._keyless_places:
            self._keyless_places[topic.name] = self._chance.randrange(len(numbers))
        self._keyless_places[topic.name] += 1
        return numbers[self._keyless_places[topic.name] % len(numbers)]

    def _take_sequences(self, partition: TopicPartition, count: int) -> int:
        return NO_SEQUENCE if self._identity is None else self._identity.take_sequences(partition, count)

    def _encode(self, pending: Batch) -> bytearray:
        return pending.records.build(
            compression=self.options.compression,
            producer_id=NO_PRODUCER_ID if self._identity is None else self._identity.producer_id,
            producer_epoch=-1 if self._identity is None else self._identity.epoch,
            base_sequence=pending.base_sequence,
            is_transactional=self._transaction is not None,
        )


__all__ = ["Acknowledged", "Acks", "BatchProducer", "ProducerOptions", "Sending"]
