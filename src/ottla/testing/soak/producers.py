"""Those who write: with every kind of acknowledgement, records with names that nobody ever used before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.testing.ledger import PartitionKey, Written, build_batch
from ottla.testing.soak.actor import Actor, Disconnected, Topic

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak

VERSIONS: Final = range(3, 14)
FIRST_TOPIC_ID: Final = 13
KEYS: Final = [f"key-{number}".encode() for number in range(6)]
TOMBSTONE_CHANCE: Final = 0.05
BATCH_SIZES: Final = [1, 1, 2, 5, 30]


class Producer(Actor):
    """What producers have in common."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._next_number = 0
        self._version = self.rng.choice(VERSIONS)

    def new_records(self, stream: object) -> list[Written]:
        count = self.rng.choice(BATCH_SIZES)
        start, self._next_number = self._next_number, self._next_number + count
        now_ms = self.soak.now_ms()
        return [
            Written(
                f"{self.name}/{stream}.{number}".encode(),
                self.rng.choice(KEYS),
                now_ms,
                self.rng.random() < TOMBSTONE_CHANCE,
            )
            for number in range(start, start + count)
        ]

    def request(self, topic: Topic, partition: int, data: bytes, acks: int) -> ProduceRequest:
        by_id = self._version >= FIRST_TOPIC_ID
        topic_data = TopicProduceData(
            **({"topic_id": topic.topic_id} if by_id else {"name": topic.name}),
            partition_data=[PartitionProduceData(index=partition, records=data)],
        )
        return ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[topic_data])

    async def produce(self, topic: Topic, partition: int, data: bytes, acks: int) -> Any:
        """The partition's answer."""
        response = await self.call(self.request(topic, partition, data, acks), self._version)
        return response.responses[0].partition_responses[0]


class PlainProducer(Producer):
    """Sends once: a record whose answer is lost may be there or not."""

    async def act(self) -> None:
        topic = self.soak.some_topic(self.rng)
        if topic is None:
            return
        await self.connected()
        partition, records = self.rng.randrange(topic.partition_count), self.new_records(self.connection_count)
        losses, asked_at = self.soak.ledger.losses, self.soak.time()
        answer = await self.produce(topic, partition, build_batch(records), self.rng.choice([1, -1]))
        if not self.refuses(answer.error_code, asked_at, topic) and not topic.is_doomed:
            # Not of a doomed one: by name, a topic that was recreated may have answered.
            self.soak.ledger.acknowledge(
                topic.key(partition), answer.base_offset, records, losses=losses, is_sent_once=True
            )


class CarelessProducer(Producer):
    """Asks for no acknowledgement: what it sends may be lost, and comes neither twice nor in another order."""

    async def think(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.001, 0.2))

    async def act(self) -> None:
        topic = self.soak.some_topic(self.rng)
        if topic is None:
            return
        partition = self.rng.randrange(topic.partition_count)
        await self.connected()
        for _ in range(self.rng.randint(1, 5)):
            data = build_batch(self.new_records(self.connection_count))
            await self.send(self.request(topic, partition, data, 0), self._version)


class IdempotentProducer(Producer):
    """Sends until it is stopped: every record once, and in order."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._producer_id = -1
        self._losses = -1  # as they were when the producer id was taken
        self._sequences: dict[PartitionKey, int] = {}

    async def act(self) -> None:
        topic = self.soak.some_topic(self.rng)
        if topic is None:
            return
        if self._losses != self.soak.ledger.losses:
            await self._take_id()
        partition, records = self.rng.randrange(topic.partition_count), self.new_records(self._producer_id)
        key = topic.key(partition)
        sequence = self._sequences.get(key, 0)
        data = build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        while self._losses == self.soak.ledger.losses and not topic.is_doomed:
            asked_at = self.soak.time()
            try:
                answer = await self.produce(topic, partition, data, -1)
            except Disconnected:
                await self.think()
                continue
            if self._losses != self.soak.ledger.losses or topic.is_doomed:
                break  # the sequences that the broker knew are gone, or those of another topic answered
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_have_strayed(topic):
                break
            if self.refuses(answer.error_code, asked_at, topic):
                await self.think()
                continue
            self._sequences[key] = sequence + len(records)
            self.soak.ledger.acknowledge(key, answer.base_offset, records, losses=self._losses)
            return
        self._losses = -1  # what became of these records is unknown: the next ones come from a new producer

    def _may_have_strayed(self, topic: Topic) -> bool:
        """By name, a request that was in flight when a topic was deleted may reach the next one of that name."""
        return self._version < FIRST_TOPIC_ID and topic.name in self.soak.reused_names

    async def _take_id(self) -> None:
        losses, asked_at = self.soak.ledger.losses, self.soak.time()
        response = await self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        if response.error_code and self.soak.metadata_sickness.was_there_since(asked_at):
            raise Disconnected
        assert response.error_code == ErrorCode.NONE, response
        assert response.producer_id not in self.soak.producer_ids, f"producer id {response.producer_id} given twice"
        self.soak.producer_ids.add(response.producer_id)
        self._producer_id, self._losses = response.producer_id, losses
        self._sequences = {}
