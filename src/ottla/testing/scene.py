"""One broker in a simulated world and connections to it: what a handler answers, in milliseconds.

    def test_a_topic_that_is_not_there() -> None:
        async def play(scene: Scene) -> None:
            answer = await scene.ask(metadata("never", auto_create=False), 12)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        perform(play)

The broker is the real one, with its connections, its coordinators and its log on a disk in memory. Time is virtual, so
that an hour costs nothing and no answer depends on how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.records import batch
from ottla.replication.leader import Leader
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import TRANSACTION_KEY, add_request, end_request, init_request
from ottla.testing.wire_client import WireClient
from ottla.testing.world import BrokerProcess, World

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
FOLLOWER_ID = 99
# Its records are old, and markers are of now: by their times they would not stand in one segment.
HUNDRED_YEARS_MS = 100 * 365 * 86_400_000


class Scene:
    """The broker and whoever talks to it."""

    def __init__(self, world: World, process: BrokerProcess) -> None:
        self.world = world
        self.process = process
        self._first: WireClient | None = None
        self._clients: list[WireClient] = []

    @property
    def broker(self) -> Broker:
        return self.process.broker

    async def connect(self, host_name: str | None = None) -> WireClient:
        """One more connection, from a host of its own unless one is named: nobody waits behind another's request."""
        host = self.world.network.host(host_name or f"client-{len(self._clients)}")
        self._clients.append(WireClient(await host.connect(*self.process.address)))
        return self._clients[-1]

    async def ask(self, request: object, version: int) -> Any:
        """An answer, over the first connection."""
        if self._first is None:
            self._first = await self.connect()
        return await self._first.call(request, version)

    async def new_topic(self, name: str = "t", partitions: int = 1, **config: str) -> str:
        """A topic; its settings with underscores in place of dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        settings.setdefault("segment.ms", str(HUNDRED_YEARS_MS))
        made = (await self.ask(create_topic(name, partitions, config=settings), 7)).topics[0]
        assert not made.error_code, made
        return name

    async def find_coordinator(self, key: str, key_type: int) -> None:
        """The first question about a coordinator makes its topic."""
        found = await self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        assert not found.coordinators[0].error_code, found

    async def values(self, topic: str, partition: int = 0, **how: Any) -> list[bytes | None]:
        """All values of a partition as far as one Fetch tells them, without markers."""
        answer = (await self.ask(fetch(topic, partitions=(partition,), **how), 11)).responses[0].partitions[0]
        assert not answer.error_code, answer
        return values_of(bytes(answer.records))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.replicas.find(topic, index)

    async def restart(self, *, crashes: bool = False, power_loss: bool = False) -> None:
        """Ends the broker, in order or not, and starts it again; connections are new ones afterwards."""
        self.hang_up()
        if crashes:
            await self.process.crash(power_loss=power_loss)
        else:
            await self.process.stop()
        await self.process.start()

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients, self._first = [], None

    # -- a second replica ----------------------------------------------------------------------------------------------

    def follow(self, topic: str, index: int = 0) -> None:
        """A second replica is in sync from now on, and has what `catch_up` lets it have: until then nothing commits."""
        partition = self.partition(topic, index)
        leader = partition.leader
        both = (leader.node_id, FOLLOWER_ID)
        partition.lead(
            Leader(
                leader.node_id,
                leader.epoch,
                both,
                both,
                end_offset=partition.log.end_offset,
                high_watermark=leader.high_watermark,
            )
        )

    def catch_up(self, topic: str, index: int = 0, end_offset: int | None = None) -> None:
        """The second replica has everything, or what stands below an offset."""
        partition = self.partition(topic, index)
        leader = partition.leader
        if leader.record_end(FOLLOWER_ID, partition.log.end_offset if end_offset is None else end_offset):
            partition.log.producers.passed_high_watermark(leader.high_watermark)
            partition.committed.fire()
        partition.moved.fire()


class Producer:
    """A transactional producer: of version 2, as those of Kafka 4 are, with a new epoch after each end, or of version
    1, which names its partitions first and keeps its epoch."""

    def __init__(self, scene: Scene, name: str, *, version: int = 2) -> None:
        self._scene = scene
        self._name = name
        self._version = version
        self._id = self._epoch = -1
        self._sequences: dict[int, int] = {}

    async def init(self) -> None:
        await self._scene.find_coordinator(self._name, TRANSACTION_KEY)
        self._become(await self._scene.ask(init_request(self._name), 5))

    def _become(self, answer: Any) -> None:
        assert not answer.error_code, ErrorCode(answer.error_code)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def send(
        self, topic: str, value: bytes, partition: int = 0, *, client: WireClient | None = None, **options: Any
    ) -> None:
        """One record, over the first connection or another one."""
        if self._version == 1:
            await self._scene.ask(add_request(self._name, self._id, self._epoch, topic, partition), 3)
        sequence = self._sequences.get(partition, 0)
        records = one_batch(
            value,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
            **options,
        )
        request = produce(topic, records, partition=partition, transactional_id=self._name)
        ask = self._scene.ask if client is None else client.call
        answer = (await ask(request, 12 if self._version == 2 else 11)).responses[0].partition_responses[0]
        assert not answer.error_code, ErrorCode(answer.error_code).name
        self._sequences[partition] = sequence + 1

    async def end(self, *, commit: bool) -> None:
        request = end_request(self._name, self._id, self._epoch, commit=commit)
        if self._version == 2:
            self._become(await self._scene.ask(request, 5))
        else:
            assert not (await self._scene.ask(request, 4)).error_code


def values_of(records: bytes) -> list[bytes | None]:
    """The values of all whole batches, without markers."""
    scanned = batch.scan(records)
    return [
        value
        for position, header in zip(scanned.positions, scanned.headers, strict=True)
        if not header.is_control
        for value in batch.decode(records, position).values
    ]


def perform(
    play: Callable[[Scene], Coroutine[Any, Any, None]],
    settings: Mapping[str, str] | None = None,
    *,
    seed: int = 1,
    seconds: float = 3600,
    disk_delay_s: float = 0.0,
) -> None:
    """Plays a scene from the start of its broker to its clean stop. `disk_delay_s`: how long threads may take."""
    world = World(seed)

    async def whole() -> None:
        process = world.broker("broker", {**SETTINGS, **(settings or {})})
        process.disk_delay_s = disk_delay_s
        await process.start()
        scene = Scene(world, process)
        await play(scene)
        scene.hang_up()
        await process.stop()

    world.run(whole(), seconds=seconds)
