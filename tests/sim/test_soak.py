"""One broker, several clients, and a world that does its worst; then every promise is checked.

`OTTLA_SIM_SEEDS=n` runs that many seeds (`make sim SEEDS=n`), `OTTLA_SIM_SEED=s` runs one. A seed that fails becomes a
named test below once its cause is known.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records import batch
from ottla.testing.audit import audit
from ottla.testing.ledger import Ledger, PartitionKey, Stored, whole_batches
from ottla.testing.network import Conditions
from ottla.testing.wire_client import WireClient
from ottla.testing.world import EPOCH_MS, ProcessDiedError, World

SEEDS_DEFAULT = 200
SEEDS_PER_TEST = 10
BROKER = "broker-1"
TOPICS = ("orders", "payments", "events")
STORM_S = 12.0  # how long clients work and things go wrong
SECONDS_MAX = 600.0
CALL_TIMEOUT_S = 4.0
HASTY_S = 0.003
LONG_POLL_MS = 500

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 18)
FIRST_TOPIC_ID = {"produce": 13, "fetch": 13}
FIRST_SESSION_FETCH = 7
# A topic that is gone, or was never there: its writers and readers look for another one.
GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Disconnected(Exception):  # noqa: N818
    """Nobody knows whether the request was served."""


class Topic:
    """A topic that exists, as far as clients were told."""

    def __init__(self, name: str, topic_id: UUID, partition_count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.is_doomed = False  # somebody asked for its deletion

    def key(self, partition: int) -> PartitionKey:
        return PartitionKey(self.topic_id, partition)


class Soak:
    """One run: the broker, what clients know, and whether it is time to end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice("soak")
        self.ledger = Ledger()
        self.topics: dict[str, Topic] = {}
        self.reused_names: set[str] = set()
        self.producer_ids: set[int] = set()
        self.is_on = True
        properties = {"log.flush.offset.checkpoint.interval.ms": "3000"}
        self.process = world.broker(BROKER, properties)

    async def run(self) -> None:
        await self.process.start()
        actors: list[Actor] = [Admin(self, "admin")]
        actors += [IdempotentProducer(self, f"idempotent-{number}") for number in range(self.dice.randint(1, 3))]
        actors += [PlainProducer(self, f"plain-{number}") for number in range(self.dice.randint(0, 2))]
        actors += [Reader(self, f"reader-{number}") for number in range(self.dice.randint(1, 3))]
        async with asyncio.TaskGroup() as group:
            for actor in actors:
                group.create_task(actor.run(), name=actor.name)
            await Weather(self).blow()
            self.is_on = False
        await Verdict(self).find()
        await self.process.stop()

    def some_topic(self, dice: Random) -> Topic | None:
        return dice.choice([*self.topics.values()]) if self.topics else None

    def drop(self, topic: Topic) -> None:
        """Somebody was told that the topic does not exist."""
        assert topic.is_doomed, f"{topic.name} {topic.topic_id} is gone, and nobody deleted it"
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
        self.ledger.forget(topic.topic_id)

    def ends(self) -> dict[PartitionKey, int]:
        return {
            PartitionKey(partition.topic_id, partition.name.partition): partition.log.end_offset
            for partition in self.process.broker.replicas
        }

    def check_watermarks(self) -> None:
        for partition in self.process.broker.replicas:
            log, high_watermark = partition.log, partition.leader.high_watermark
            assert log.log_start_offset <= high_watermark <= log.end_offset, f"{partition.name}: {high_watermark}"
            assert log.recovery_point <= log.end_offset, f"{partition.name}: {log.recovery_point}"


class Weather:
    """What goes wrong, and when."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._world = soak.world
        self._process = soak.process
        self._dice = soak.world.dice("weather")
        self._is_dark = False

    async def blow(self) -> None:
        troubles: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (4, self._reset_somebody),
            (2, self._cut_somebody_off),
            (2, self._slow_the_disk),
            (2, self._kill),
            (2, self._stop_in_an_operation),
            (1, self._turn_off),
            (1, self._restart),
        ]
        weights = [weight for weight, _ in troubles]
        end = self._world.loop.time() + STORM_S
        while self._world.loop.time() < end:
            await asyncio.sleep(self._dice.uniform(0.05, 2.0))
            self._soak.check_watermarks()
            ((_, trouble),) = self._dice.choices(troubles, weights)
            await trouble()
        self._world.network.heal()
        self._process.disk_delay_s = 0.0

    async def _reset_somebody(self) -> None:
        connections = self._world.network.connections()
        if connections:
            self._world.network.reset(self._dice.choice(connections))

    async def _cut_somebody_off(self) -> None:
        name = self._dice.choice(["admin", "idempotent-0", "reader-0", "plain-0"])
        self._world.network.cut(BROKER, name)
        self._world.loop.call_later(self._dice.uniform(0.1, 6.0), self._world.network.heal, BROKER, name)

    async def _slow_the_disk(self) -> None:
        """From the next start on."""
        self._process.disk_delay_s = self._dice.choice([0.0, 0.01, 0.3])

    async def _kill(self) -> None:
        await self._process.crash()
        await self._start_again()

    async def _stop_in_an_operation(self) -> None:
        power_loss = self._dice.random() < 0.3
        await self._process.disk_stops(self._dice.randint(0, 40), written=self._dice.random())
        await self._crash(power_loss=power_loss)
        await self._start_again()

    async def _turn_off(self) -> None:
        await self._crash(power_loss=True)
        await asyncio.sleep(self._dice.uniform(0, 3))
        await self._start_again()

    async def _crash(self, *, power_loss: bool) -> None:
        if power_loss:
            synced = {
                PartitionKey(partition.topic_id, partition.name.partition): partition.log.recovery_point
                for partition in self._process.broker.replicas
            }
            self._soak.ledger.lose_power(synced)
        await self._process.crash(power_loss=power_loss)

    async def _restart(self) -> None:
        ends = self._soak.ends()
        await self._process.stop()
        await self._start_again()
        survived = self._soak.ends()
        for key in ends.keys() & survived.keys():
            assert survived[key] >= ends[key], f"{key} ended at {ends[key]} before a clean stop, {survived[key]} after"

    async def _start_again(self) -> None:
        while True:
            start = asyncio.create_task(self._start())
            if self._dice.random() < 0.15:  # and once more while it recovers
                await asyncio.sleep(self._dice.random() * 0.02)
                if not start.done():
                    await self._process.crash()
            try:
                await start
                break
            except ProcessDiedError:
                continue

    async def _start(self) -> None:
        await self._process.start()
        self._soak.ledger.restarted(self._soak.ends())  # before the first client is served


class Actor:
    """A client on a host of its own, which connects again whenever it has to."""

    haste = 0.05  # how often it does not wait for an answer

    def __init__(self, soak: Soak, name: str) -> None:
        self.soak = soak
        self.name = name
        self.dice = soak.world.dice(name)
        self._host = soak.world.network.host(name)
        self._client: WireClient | None = None

    async def run(self) -> None:
        while self.soak.is_on:
            await self.think()
            try:
                await self.act()
            except Disconnected:
                continue
        self.close()

    async def think(self) -> None:
        await asyncio.sleep(self.dice.uniform(0.001, 0.1))

    async def act(self) -> None:
        raise NotImplementedError

    async def call(self, request: object, version: int) -> Any:
        try:
            client = await self._connected()
            return await client.call(request, version, timeout_s=self._patience_s())
        except (OSError, TimeoutError) as error:
            self.close()
            raise Disconnected from error

    def _patience_s(self) -> float:
        """Some hang up while they send, while they are served or while they are answered."""
        return self.dice.uniform(0, HASTY_S) if self.dice.random() < self.haste else CALL_TIMEOUT_S

    async def _connected(self) -> WireClient:
        if self._client is None:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                self._client = WireClient(await self._host.connect(*self.soak.process.address), self.name)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Admin(Actor):
    """Makes topics and deletes some; after an unclear answer it looks what there is."""

    async def think(self) -> None:
        await asyncio.sleep(self.dice.uniform(0.05, 1.0))

    async def act(self) -> None:
        name = self.dice.choice(TOPICS)
        topic = self.soak.topics.get(name)
        try:
            if topic is None:
                await self._create(name)
            elif self.dice.random() < 0.2:
                await self._delete(topic)
        except Disconnected:
            while not await self._look_again():
                await self.think()

    async def _create(self, name: str) -> None:
        configs = {"segment.bytes": str(self.dice.choice([2_000, 50_000])), "flush.ms": "1000"}
        wish = CreatableTopic(
            name=name,
            num_partitions=self.dice.randint(1, 3),
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        (result,) = (await self.call(CreateTopicsRequest(topics=[wish]), 7)).topics
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # an earlier attempt arrived after we looked
            raise Disconnected
        assert result.error_code == ErrorCode.NONE, result
        self.soak.topics[name] = Topic(name, result.topic_id, result.num_partitions)

    async def _delete(self, topic: Topic) -> None:
        topic.is_doomed = True
        self.soak.reused_names.add(topic.name)
        state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        (result,) = (await self.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)).responses
        assert result.error_code in (ErrorCode.NONE, *GONE), result  # gone already: by an earlier attempt
        self.soak.drop(topic)

    async def _look_again(self) -> bool:
        """Brings what is known in line with what there is; whether the broker could be asked."""
        try:
            response = await self.call(MetadataRequest(topics=None), 12)
        except Disconnected:
            return not self.soak.is_on
        there = {topic.topic_id: topic for topic in response.topics}
        for topic in list(self.soak.topics.values()):
            if topic.topic_id not in there:
                self.soak.drop(topic)
        for topic_id, topic in there.items():
            if topic.name not in self.soak.topics:
                self.soak.topics[topic.name] = Topic(topic.name, topic_id, len(topic.partitions))
        return True


class Producer(Actor):
    """Writes records with values that nobody ever wrote before."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._next_number = 0
        self._version = self.dice.choice(PRODUCE_VERSIONS)

    def new_values(self) -> list[bytes]:
        count = self.dice.choice([1, 1, 2, 5, 30])
        start, self._next_number = self._next_number, self._next_number + count
        return [f"{self.name}.{number}".encode() for number in range(start, start + count)]

    async def produce(self, topic: Topic, partition: int, records: bytearray, acks: int) -> Any:
        """The partition's answer."""
        by_id = self._version >= FIRST_TOPIC_ID["produce"]
        data = TopicProduceData(
            **({"topic_id": topic.topic_id} if by_id else {"name": topic.name}),
            partition_data=[PartitionProduceData(index=partition, records=bytes(records))],
        )
        response = await self.call(ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[data]), self._version)
        return response.responses[0].partition_responses[0]


class PlainProducer(Producer):
    """Sends once: a record whose answer is lost may be there or not."""

    async def act(self) -> None:
        topic = self.soak.some_topic(self.dice)
        if topic is None:
            return
        partition, values, losses = (
            self.dice.randrange(topic.partition_count),
            self.new_values(),
            self.soak.ledger.losses,
        )
        records = batch.build(None, values, EPOCH_MS)
        answer = await self.produce(topic, partition, records, self.dice.choice([1, -1]))
        if answer.error_code in GONE:
            return
        assert answer.error_code == ErrorCode.NONE, answer
        if not topic.is_doomed:  # by name, a topic made anew may have answered
            self.soak.ledger.acknowledge(topic.key(partition), answer.base_offset, values, losses=losses)


class IdempotentProducer(Producer):
    """Sends until it is told: every record once, and in order."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._producer_id = -1
        self._losses = -1  # as they were when the producer id was taken
        self._sequences: dict[PartitionKey, int] = {}

    async def act(self) -> None:
        topic = self.soak.some_topic(self.dice)
        if topic is None:
            return
        if self._losses != self.soak.ledger.losses:
            await self._take_id()
        partition, values = self.dice.randrange(topic.partition_count), self.new_values()
        key = topic.key(partition)
        sequence = self._sequences.get(key, 0)
        records = batch.build(
            None, values, EPOCH_MS, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )
        while self._losses == self.soak.ledger.losses and not topic.is_doomed:
            try:
                answer = await self.produce(topic, partition, records, -1)
            except Disconnected:
                await self.think()
                continue
            if self._losses != self.soak.ledger.losses or topic.is_doomed:
                break  # the sequences that the broker knew are gone, or those of another topic answered
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_have_strayed(topic):
                break
            assert answer.error_code == ErrorCode.NONE, (topic.name, answer)
            self._sequences[key] = sequence + len(values)
            self.soak.ledger.acknowledge(key, answer.base_offset, values, losses=self._losses)
            return
        self._losses = -1  # what became of these records is unknown: the next ones come from a new producer

    def _may_have_strayed(self, topic: Topic) -> bool:
        """By name, a request that was under way when a topic was deleted may reach the next one of that name."""
        return self._version < FIRST_TOPIC_ID["produce"] and topic.name in self.soak.reused_names

    async def _take_id(self) -> None:
        losses = self.soak.ledger.losses
        response = await self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert response.error_code == ErrorCode.NONE, response
        assert response.producer_id not in self.soak.producer_ids, f"producer id {response.producer_id} given twice"
        self.soak.producer_ids.add(response.producer_id)
        self._producer_id, self._losses = response.producer_id, losses
        self._sequences.clear()


class Reader(Actor):
    """Reads everything with long polls, within fetch sessions where the version has them."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._version = self.dice.choice(FETCH_VERSIONS)
        self._positions: dict[PartitionKey, int] = {}
        self._losses = 0
        self._leave_session()

    def _leave_session(self) -> None:
        self._session_id, self._session_epoch = 0, 0
        self._told: dict[PartitionKey, tuple[Topic, int]] = {}  # what the session knows: topic and position

    async def act(self) -> None:
        losses = self.soak.ledger.losses
        if losses != self._losses:
            self._positions.clear()  # offsets may mean other records now
            self._losses = losses
            self._leave_session()
        topics = {topic.topic_id: topic for topic in self.soak.topics.values()}
        if not topics:
            return
        wanted = {topic.key(index): topic for topic in topics.values() for index in range(topic.partition_count)}
        request = self._request(wanted)
        known = {key: self.soak.ledger.high_watermark(key) for key in wanted}
        epoch_sent = self._session_epoch
        try:
            response = await self.call(request, self._version)
        except Disconnected:
            self._leave_session()
            raise
        if response.error_code in SESSION_LOST:
            self._leave_session()
            return
        assert response.error_code == ErrorCode.NONE, response
        self._note_session(response.session_id, epoch_sent)
        self._take(response, wanted, known, losses, is_full=epoch_sent <= 0)

    def _request(self, wanted: dict[PartitionKey, Topic]) -> FetchRequest:
        has_sessions = self._version >= FIRST_SESSION_FETCH
        if not has_sessions:
            self._leave_session()
        news = {
            key: topic for key, topic in wanted.items() if self._told.get(key) != (topic, self._positions.get(key, 0))
        }
        forgotten = [(key, topic) for key, (topic, _) in self._told.items() if key not in wanted]
        self._told = {key: (topic, self._positions.get(key, 0)) for key, topic in wanted.items()}
        return FetchRequest(
            max_wait_ms=self.dice.choice([0, LONG_POLL_MS]),
            min_bytes=self.dice.choice([1, 1, 5_000]),
            max_bytes=self.dice.choice([1_000, 1_000_000]),
            isolation_level=self.dice.choice([0, 1]),
            **({"session_id": self._session_id, "session_epoch": self._session_epoch} if has_sessions else {}),
            topics=[
                FetchTopic(
                    **self._named(topic),
                    partitions=[
                        FetchPartition(
                            partition=key.partition,
                            fetch_offset=self._positions.get(key, 0),
                            partition_max_bytes=self.dice.choice([500, 100_000]),
                        )
                    ],
                )
                for key, topic in news.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(**self._named(topic), partitions=[key.partition]) for key, topic in forgotten
            ],
        )

    def _named(self, topic: Topic) -> dict[str, Any]:
        return {"topic_id": topic.topic_id} if self._version >= FIRST_TOPIC_ID["fetch"] else {"topic": topic.name}

    def _note_session(self, session_id: int, epoch_sent: int) -> None:
        if session_id == 0:
            self._leave_session()
        elif epoch_sent == 0:
            self._session_id, self._session_epoch = session_id, 1
        else:
            assert session_id == self._session_id
            self._session_epoch = epoch_sent + 1

    def _take(
        self,
        response: Any,
        wanted: dict[PartitionKey, Topic],
        known: dict[PartitionKey, int],
        losses: int,
        *,
        is_full: bool,
    ) -> None:
        by_name = {topic.name: topic for topic in wanted.values()}
        by_id = {topic.topic_id: topic for topic in wanted.values()}
        answered = set()
        for one in response.responses:
            topic = by_id[one.topic_id] if self._version >= FIRST_TOPIC_ID["fetch"] else by_name[one.topic]
            for data in one.partitions:
                key = topic.key(data.partition_index)
                answered.add(key)
                self._take_partition(key, topic, data, known[key], losses)
        assert not is_full or answered == wanted.keys(), f"a full fetch of {wanted} was answered with {answered}"

    def _take_partition(self, key: PartitionKey, topic: Topic, data: PartitionData, known: int, losses: int) -> None:
        if topic.is_doomed or losses != self.soak.ledger.losses:
            return
        position = self._positions.get(key, 0)
        assert data.error_code == ErrorCode.NONE, (topic.name, position, data)
        self._positions[key] = self.soak.ledger.read(
            key, position, bytes(data.records or b""), data.high_watermark, known=known, losses=losses
        )


class Verdict(Actor):
    """Looks at everything in the end, through the door for clients and from inside."""

    haste = 0.0

    def __init__(self, soak: Soak) -> None:
        super().__init__(soak, "verdict")

    async def find(self) -> None:
        await self._check_topics()
        for topic in self.soak.topics.values():
            for partition in range(topic.partition_count):
                await self._check_partition(topic, partition)
        self.close()
        await asyncio.sleep(LONG_POLL_MS / 1000 + 1)  # the last long polls end, and goodbyes arrive
        self._check_nothing_is_left()
        ends = self.soak.ends()
        await self.soak.process.stop()
        await self.soak.process.start()
        assert self.soak.ends() == ends, "a clean stop changed the logs"

    async def _check_topics(self) -> None:
        response = await self.call(MetadataRequest(topics=None), 12)
        there = {topic.topic_id for topic in response.topics}
        for topic in list(self.soak.topics.values()):
            if topic.topic_id not in there:
                self.soak.drop(topic)

    async def _check_partition(self, topic: Topic, partition: int) -> None:
        stored: list[Stored] = []
        position, high_watermark = 0, 1
        while position < high_watermark:
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                topics=[
                    FetchTopic(
                        topic=topic.name,
                        partitions=[
                            FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=10_000)
                        ],
                    )
                ],
            )
            (answer,) = (await self.call(request, 4)).responses[0].partitions
            assert answer.error_code == ErrorCode.NONE, answer
            high_watermark = answer.high_watermark
            for header, records in whole_batches(bytes(answer.records or b"")):
                stored += records
                position = header.last_offset + 1
            assert answer.records or position >= high_watermark, f"nothing at {position} below {high_watermark}"
        log = self.soak.process.broker.replicas.find(topic.name, partition).log
        assert high_watermark == log.end_offset
        audit(log)
        self.soak.ledger.check_whole(topic.key(partition), stored, log.end_offset)

    def _check_nothing_is_left(self) -> None:
        broker = self.soak.process.broker
        self.soak.check_watermarks()
        assert not broker.server.connections, "all clients are gone, and connections are left"
        for partition in broker.replicas:
            assert partition.moved.waiter_count == 0, f"somebody waits for {partition.name}, and nobody asks"
        assert len(broker.fetch_sessions) <= broker.config.max_incremental_fetch_session_cache_slots


def soak(seed: int) -> Soak:
    world = World(seed, Conditions(buffer_bytes=8_192))
    run = Soak(world)
    world.run(run.run(), seconds=SECONDS_MAX, replay=f"OTTLA_SIM_SEED={seed} pytest tests/sim/test_soak.py")
    return run


def seeds() -> list[range]:
    """In portions, so that workers share them and a line of output stands for more than one."""
    if one := os.environ.get("OTTLA_SIM_SEED"):
        return [range(int(one), int(one) + 1)]
    count = int(os.environ.get("OTTLA_SIM_SEEDS") or SEEDS_DEFAULT)
    return [range(start, min(start + SEEDS_PER_TEST, count)) for start in range(0, count, SEEDS_PER_TEST)]


@pytest.mark.parametrize("portion", seeds(), ids=lambda portion: f"{portion.start}-{portion.stop - 1}")
def test_every_promise_holds_whatever_happens(portion: range) -> None:
    acknowledged = read = 0
    for seed in portion:
        run = soak(seed)
        acknowledged += run.ledger.acknowledged_count
        read += run.ledger.read_count
    assert acknowledged > 0, "nothing was written"
    assert read > 0, "nothing was read"


def test_a_soak_can_be_replayed() -> None:
    assert soak(5).world.trace.digest == soak(5).world.trace.digest
