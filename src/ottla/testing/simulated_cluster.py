"""A whole cluster in a simulated world: brokers, an ensemble, clients, and what must never happen to them.

    world = World(seed)
    cluster = SimulatedCluster(world)

    async def scenario() -> None:
        await cluster.start()
        ...
        await cluster.settle()                  # faults have ended: everybody is back and in sync
        cluster.check(...)

What clients were told is kept: a record that was acknowledged stands at its offset for ever, on every replica, and so
does one that was read. No two brokers lead a partition in one epoch, and epochs only grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.partition import Partition
from ottla.cluster import nodes
from ottla.cluster.image import NO_LEADER
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.testing.audit import batches_of
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble
from ottla.testing.wire_client import WireClient
from ottla.testing.world import PORT, BrokerProcess, ProcessDiedError, SimulatedClock, World

if TYPE_CHECKING:
    from typing_extensions import Buffer

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
CREATE_VERSION: Final = 5
CLIENT_TIMEOUT_S: Final = 2.0
RESTART_S: Final = 0.5
LOOK_S: Final = 0.05
SETTINGS: Final = {
    "zookeeper.connect": "ensemble",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1500",
    "controller.socket.timeout.ms": "1500",
    "request.timeout.ms": "1500",
    "controlled.shutdown.retry.backoff.ms": "200",
    "leader.imbalance.check.interval.seconds": "7",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}


@dataclass(slots=True)
class Observed:
    """What clients were told of one partition: value by offset."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)


class SimulatedCluster:
    """Brokers 1 to `size` of a world, and what was seen of them."""

    def __init__(self, world: World, size: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.ensemble = world.ensemble = SimulatedEnsemble(
            world.loop,
            world.rng("ensemble"),
            SimulatedClock(world.loop).now_ms,
            EnsembleConditions(session_timeout_s=2.0, lag_s_max=0.1),
            world.trace,
        )
        self.brokers = {
            node_id: world.broker(f"broker-{node_id}", {**SETTINGS, **(settings or {}), "broker.id": str(node_id)})
            for node_id in range(1, size + 1)
        }
        self.observed: dict[TopicPartition, Observed] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._client_host = world.network.host("client")

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    def begin_start(self, node_id: int) -> None:
        """Starts a broker, however long that takes: its earlier session may have to end first."""
        self._starting[node_id] = self.world.loop.create_task(self._start(self.brokers[node_id]), name="starting")

    async def _start(self, broker: BrokerProcess) -> None:
        while True:
            try:
                await broker.start()
                return
            except ProcessDiedError:
                return
            except OttlaError:  # the ensemble could not be asked, so the process ended; somebody starts it again
                await broker.crash()
                await asyncio.sleep(RESTART_S)

    async def crash(self, node_id: int, *, power_loss: bool) -> None:
        if self.brokers[node_id].is_alive:
            await self.brokers[node_id].crash(power_loss=power_loss)
        starting = self._starting.pop(node_id, None)
        if starting is not None:
            await starting

    async def close(self) -> None:
        """Ends all at once."""
        for node_id in self.brokers:
            await self.crash(node_id, power_loss=False)

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, broker in self.brokers.items() if broker.is_running]

    async def settle(self, *, is_quiet: bool, seconds: float = 120.0) -> None:
        """Faults have ended; returns when all are back and every replica of every partition is in sync.

        `is_quiet`: nobody writes any more, so all have the same.
        """
        self.world.network.heal()
        self.ensemble.come_up()
        for node_id, broker in self.brokers.items():
            self.ensemble.heal(broker.name)
            if not broker.is_alive:
                self.begin_start(node_id)
        async with asyncio.timeout(seconds):
            for starting in list(self._starting.values()):
                await starting
            while not self.is_settled(is_quiet=is_quiet):
                await asyncio.sleep(LOOK_S)

    def is_settled(self, *, is_quiet: bool = False) -> bool:
        if len(self.running) < len(self.brokers):
            return False
        for name in self.observed:
            replicas = self.replicas(name)
            leaders = [replica for replica in replicas if replica.current_leader is not None]
            if len(replicas) < len(self.brokers) or len(leaders) != 1:
                return False
            leader = leaders[0].leader
            ends = {replica.log.end_offset for replica in replicas}
            marks = {replica.high_watermark for replica in replicas}
            if len(leader.isr) < len(self.brokers) or leader.proposal is not None:
                return False
            if is_quiet and len(ends | marks) != 1:
                return False
        return True

    def replicas(self, name: TopicPartition) -> list[Partition]:
        found = (self.brokers[node_id].broker.replicas.get(name) for node_id in self.running)
        return [partition for partition in found if partition is not None]

    # -- what must never happen ----------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Looks at the brokers and at the store again and again; until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        for node_id in self.running:
            for partition in self.brokers[node_id].broker.replicas:
                leader = partition.current_leader
                if leader is not None:
                    first = self._leaders.setdefault((partition.name, leader.epoch), node_id)
                    if first != node_id:
                        self.world.fail(f"{first} and {node_id} lead {partition.name} in epoch {leader.epoch}")
        for name in self.observed:
            entry = self.ensemble.tree.entry(nodes.state_path(*name))
            if entry is not None:
                state = nodes.decode_state("", entry.data, (), entry.version)
                if state.leader_epoch < self._epochs.get(name, 0):
                    self.world.fail(f"the epoch of {name} went back to {state.leader_epoch}")
                self._epochs[name] = state.leader_epoch

    def check(self) -> None:
        """In the end: every replica has the same records, and all that clients were told is among them."""
        for name, told in self.observed.items():
            logs = [contents(replica) for replica in self.replicas(name)]
            if any(log != logs[0] for log in logs):
                self.world.fail(f"the replicas of {name} differ")
            for kind, values in (("acknowledged", told.acknowledged), ("read", told.read)):
                for offset, value in values.items():
                    found = logs[0].get(offset)
                    if found is None or found[1] != value:
                        self.world.fail(f"{name}: {value!r} was {kind} at {offset}, where {found} is")

    # -- clients -------------------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int) -> None:
        settings = {"internal.segment.bytes": "4000"}  # so that logs roll
        request = create_topic(name, partitions, len(self.brokers), config=settings)
        while True:
            controller = self.brokers[self.running[0]].broker.image.controller_id
            try:
                response = await self.asked(controller, request, CREATE_VERSION)
            except (OSError, TimeoutError):
                continue
            if response.topics[0].error_code != ErrorCode.NOT_CONTROLLER:
                break
        assert response.topics[0].error_code == ErrorCode.NONE, response
        for index in range(partitions):
            self.observed[TopicPartition(name, index)] = Observed()

    async def asked(self, node_id: int, request: object, version: int, *, timeout_s: float = CLIENT_TIMEOUT_S) -> Any:
        """The answer of a broker to one request on a connection of its own."""
        sock = await asyncio.wait_for(self._client_host.connect(self.brokers[node_id].name, PORT), CLIENT_TIMEOUT_S)
        client = WireClient(sock)
        try:
            return await client.call(request, version, timeout_s=timeout_s)
        finally:
            client.close()

    def _leader_of(self, name: TopicPartition, rng: Random) -> int:
        """As some broker was told; NO_LEADER where it knows of none."""
        if not self.running:
            return NO_LEADER
        state = self.brokers[rng.choice(self.running)].broker.image.partition(name)
        return NO_LEADER if state is None else state.leader

    async def produce(self, client: str) -> None:
        """Writes records, each once, whatever becomes of it; until it is cancelled."""
        rng = self.world.rng(f"producer {client}")
        for number in count():
            await asyncio.sleep(rng.random() * 0.1)
            name = rng.choice(list(self.observed))
            leader = self._leader_of(name, rng)
            if leader == NO_LEADER:
                continue
            value = f"{client} {number}".encode()
            request = produce(name.topic, one_batch(value), partition=name.partition, timeout_ms=1000)
            try:
                response = await self.asked(leader, request, PRODUCE_VERSION)
            except (OSError, TimeoutError):
                continue  # it may be there or not
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                self.observed[name].acknowledged[answer.base_offset] = value

    async def consume(self, client: str) -> None:
        """Reads all partitions from their beginning on; until it is cancelled."""
        rng = self.world.rng(f"consumer {client}")
        offsets = dict.fromkeys(self.observed, 0)
        while True:
            await asyncio.sleep(rng.random() * 0.1)
            name = rng.choice(list(self.observed))
            leader = self._leader_of(name, rng)
            if leader == NO_LEADER:
                continue
            request = fetch(name.topic, offsets[name], partitions=[name.partition])
            try:
                response = await self.asked(leader, request, FETCH_VERSION)
            except (OSError, TimeoutError):
                continue
            for topic in response.responses:
                for data in topic.partitions:
                    if data.error_code == ErrorCode.NONE and data.records:
                        read = values_of(data.records)
                        self.observed[name].read.update(read)
                        offsets[name] = max(offsets[name], *(offset + 1 for offset in read))


def values_of(data: Buffer) -> dict[int, bytes]:
    """The records of some batches by offset."""
    view, found = memoryview(data), {}
    position = 0
    for header in batch.scan(view).headers:
        for record in batch.iterate(view, position):
            assert record.value is not None
            found[record.offset] = record.value
        position += header.size_bytes
    return found


def contents(partition: Partition) -> dict[int, tuple[int, bytes]]:
    """What a replica holds, by offset, each with the epoch of its batch."""
    found = {}
    for header, data in batches_of(partition.log):
        for record in batch.iterate(data):
            assert record.value is not None
            found[record.offset] = (header.leader_epoch, record.value)
    return found
