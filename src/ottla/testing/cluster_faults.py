"""What happens to a simulated cluster: a method for each kind of fault, and for what operators do meanwhile."""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import replace
from random import Random
from typing import Final

from ottla.cluster import nodes
from ottla.cluster.image import NO_LEADER
from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.store.api import Delete
from ottla.testing.cluster_climate import ALONE, DIRECTORIES, ClusterClimate
from ottla.testing.simulated_cluster import LOOK_S, Observed, SimulatedCluster
from ottla.testing.world import BrokerProcess

CLOCK_JUMP_MS_MAX: Final = 3_600_000
OPERATIONS_MAX: Final = 40  # of a disk, until it stops in the middle of one
HURRY_S_MAX: Final = 0.5  # of clients before a fault comes
HAND_OVER_S: Final = 3.0
BACK_S_MAX: Final = 60.0
CUT_OFF_S_MAX: Final = 1.0
DEPOSED_S_MAX: Final = 4.0
BREAK_CHANCE: Final = 0.2
LATE_S: Final = 2.5
SLOWED_CHANCE: Final = 0.5
LINK_S: Final = (0.05, 0.3, 1.0)
ELECT_VERSION: Final = 2
REASSIGN_VERSION: Final = 0
DELETE_VERSION: Final = 5
PREFERRED: Final = 0
MOVE_LOGS_VERSION: Final = 2
DELETE_RECORDS_VERSION: Final = 2
ADD_PARTITIONS_VERSION: Final = 3
ALTER_VERSION: Final = 1
SET, DELETE = 0, 1
THROTTLE_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class ClusterFaults:
    """Draws one fault after the other."""

    def __init__(self, cluster: SimulatedCluster, climate: ClusterClimate, topic: str) -> None:
        """`topic`: the one that operators change."""
        self._cluster = cluster
        self._topic = topic
        self._world = cluster.world
        self._climate = climate
        self._rng = cluster.world.rng("faults")
        self._made = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def come(self) -> None:
        """All of them, until the last one is over."""
        await self._begin_all()
        await self._wait_for_all()

    async def _begin_all(self) -> None:
        for _ in range(self._climate.fault_count):
            await asyncio.sleep(self._rng.random() * self._climate.fault_s_max)
            kind = self._climate.kind(self._rng)
            # Whatever a fault draws does not change which faults come next.
            rng = self._world.rng(f"fault at {self._world.loop.time()}")
            if not self._cluster.running:
                continue
            node_id = rng.choice(self._cluster.running)
            self._cluster.stir()
            await asyncio.sleep(rng.random() * HURRY_S_MAX)
            if node_id not in self._cluster.running:
                continue
            self._world.trace(f"fault: {kind} of {node_id}")
            if kind in ALONE:
                await self._wait_for_all()
            task = self._world.loop.create_task(self._one(kind, node_id, rng), name=kind)
            self._under_way.add(task)
            if kind in ALONE or not self._climate.is_overlapping:
                await self._wait_for_all()

    async def _one(self, kind: str, node_id: int, rng: Random) -> None:
        if node_id in self._cluster.running:
            await getattr(self, kind)(node_id, rng)
            self._cluster.stir()

    async def _wait_for_all(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way)
            self._under_way.clear()

    def _process(self, node_id: int) -> BrokerProcess:
        return self._cluster.brokers[node_id]

    async def _last(self, rng: Random) -> None:
        await asyncio.sleep(rng.random() * self._climate.fault_s_max)

    # -- processes -----------------------------------------------------------------------------------------------------

    async def kill(self, node_id: int, rng: Random) -> None:
        await self._cluster.crash(node_id, power_loss=False)
        await self._last(rng)
        self._cluster.begin_start(node_id)

    async def kill_in_a_write(self, node_id: int, rng: Random) -> None:
        stopping = self._world.loop.create_task(
            self._process(node_id).disk_stops(rng.randrange(OPERATIONS_MAX), written=rng.random()), name="disk stops"
        )
        await asyncio.wait([stopping], timeout=self._climate.fault_s_max)
        stopping.cancel()
        await asyncio.wait([stopping])
        await self.kill(node_id, rng)

    async def power_loss(self, node_id: int, rng: Random) -> None:
        """A replica may lose what was not on its disk, if others have it: nothing happens to these before it is back.

        Else it could be the only one left that was in sync, and without what it lost.
        """
        if not self._cluster.is_settled():
            return
        await self._cluster.crash(node_id, power_loss=True)
        await self._last(rng)
        await self._come_back(node_id)

    async def _come_back(self, node_id: int) -> None:
        """Until all replicas are in sync again, if that does not take too long."""
        self._cluster.begin_start(node_id)
        deadline = self._world.loop.time() + BACK_S_MAX
        while not self._cluster.is_settled() and self._world.loop.time() < deadline:
            await asyncio.sleep(LOOK_S)

    async def power_losses_in_turn(self, node_id: int, rng: Random) -> None:
        for each in self._others_first(node_id):
            await self.power_loss(each, rng)

    def _others_first(self, node_id: int) -> list[int]:
        return [*(each for each in self._cluster.brokers if each != node_id), node_id]

    async def wipe_the_disk(self, node_id: int, rng: Random) -> None:
        """It comes back without anything, and the others have it all."""
        if not self._cluster.is_settled():
            return
        await self._cluster.crash(node_id, power_loss=True)
        self._process(node_id).lose_disk()
        await self._last(rng)
        await self._come_back(node_id)

    async def restart_all_in_turn(self, node_id: int, rng: Random) -> None:
        """As for a new version: each is stopped, started and back in sync before the next one."""
        for each in self._others_first(node_id):
            if each in self._cluster.running:
                await self._cluster.stop(each)
                await self._come_back(each)

    async def stop(self, node_id: int, rng: Random) -> None:
        await self._cluster.stop(node_id)
        await self._last(rng)
        self._cluster.begin_start(node_id)

    async def hand_over_and_kill(self, node_id: int, rng: Random) -> None:
        """A leader goes in peace, and the next one as soon as another broker has begun to follow it."""
        led = [partition.name for partition in self._process(node_id).broker.replicas if partition.is_leader]
        led = [name for name in led if name in self._cluster.observed]
        if not led:
            return
        name = rng.choice(led)
        stopping = self._world.loop.create_task(self._cluster.stop(node_id), name="hand over")
        deadline = self._world.loop.time() + HAND_OVER_S
        successor = NO_LEADER
        while successor == NO_LEADER and self._world.loop.time() < deadline:
            await asyncio.sleep(0.001)
            successor = self._followed(name, without=node_id)
        if successor != NO_LEADER:
            await self._cluster.crash(successor, power_loss=False)
        await stopping
        await self._last(rng)
        for stopped in (node_id, successor):
            if stopped != NO_LEADER:
                self._cluster.begin_start(stopped)

    async def depose_and_elect(self, node_id: int, rng: Random) -> None:
        """A leader that is cut off loses its session, and what only it has; soon it leads again."""
        states = self._cluster.states()
        names = [name for name in self._cluster.observed if name in states]
        led = [name for name in names if states[name].leader == states[name].replicas[0]]
        if not led:
            return
        name = rng.choice(led)
        leader = states[name].leader
        if leader not in self._cluster.running:
            return
        others = [self._process(other).name for other in self._cluster.brokers if other != leader]
        for other in others:
            self._world.network.cut(self._process(leader).name, other)
        await asyncio.sleep(rng.random() * CUT_OFF_S_MAX)
        if leader in self._cluster.running:
            await self.end_session(leader, rng)
        await asyncio.sleep(rng.random() * CUT_OFF_S_MAX)
        for other in others:
            self._world.network.heal(self._process(leader).name, other)
        deadline = self._world.loop.time() + DEPOSED_S_MAX
        while self._world.loop.time() < deadline:
            await asyncio.sleep(rng.random())
            await self._elect_preferred(name)

    def _followed(self, name: TopicPartition, *, without: int) -> int:
        """The broker whom a replica follows; NO_LEADER where none follows another than `without`."""
        for replica in self._cluster.replicas(name):
            follower = replica.follower
            if follower is not None and follower.leader_id not in (without, NO_LEADER):
                return follower.leader_id if follower.leader_id in self._cluster.running else NO_LEADER
        return NO_LEADER

    # -- the network ---------------------------------------------------------------------------------------------------

    async def part_two(self, node_id: int, rng: Random) -> None:
        other = rng.choice([other for other in self._cluster.brokers if other != node_id])
        names = self._process(node_id).name, self._process(other).name
        self._world.network.cut(*names)
        await self._last(rng)
        self._world.network.heal(*names)

    async def isolate(self, node_id: int, rng: Random) -> None:
        """No broker reaches it; ZooKeeper and clients do."""
        others = [self._process(other).name for other in self._cluster.brokers if other != node_id]
        for other in others:
            self._world.network.cut(self._process(node_id).name, other)
        await self._last(rng)
        for other in others:
            self._world.network.heal(self._process(node_id).name, other)

    async def slow_a_link(self, node_id: int, rng: Random) -> None:
        """Between two brokers everything takes long; among the others it does not."""
        other = rng.choice([other for other in self._cluster.brokers if other != node_id])
        names = self._process(node_id).name, self._process(other).name
        self._slow_down(*names, rng.choice(LINK_S))
        await self._last(rng)
        self._speed_up(*names)

    def _slow_down(self, one: str, other: str, seconds: float) -> None:
        if one != other:
            link = self._world.network.link(one, other)
            link.conditions = replace(link.conditions, latency_s=seconds, jitter_s=seconds)

    def _speed_up(self, one: str, other: str) -> None:
        self._world.network.link(one, other).conditions = self._world.network.conditions

    async def reset_connections(self, node_id: int, rng: Random) -> None:
        connections = self._world.network.connections()
        for connection in rng.sample(connections, len(connections) // 2):
            self._world.network.reset(connection)

    # -- the metadata store --------------------------------------------------------------------------------------------

    async def cut_from_zookeeper(self, node_id: int, rng: Random) -> None:
        self._cluster.ensemble.cut(self._process(node_id).name)
        await self._last(rng)
        self._cluster.ensemble.heal(self._process(node_id).name)

    async def end_session(self, node_id: int, rng: Random) -> None:
        self._cluster.ensemble.end_session(self._process(node_id).broker.store.session.session_id)

    async def end_all_sessions(self, node_id: int, rng: Random) -> None:
        """All brokers are gone for ZooKeeper at once, and none of them is."""
        for each in self._cluster.running:
            await self.end_session(each, rng)

    async def ensemble_down(self, node_id: int, rng: Random) -> None:
        self._cluster.ensemble.go_down()
        await self._last(rng)
        self._cluster.ensemble.come_up()

    async def lose_store_answers(self, node_id: int, rng: Random) -> None:
        """Commits are made, and their responses are lost."""
        conditions = self._cluster.ensemble.conditions
        conditions.break_chance = BREAK_CHANCE
        await self._last(rng)
        conditions.break_chance = 0.0

    async def watch_late(self, node_id: int, rng: Random) -> None:
        conditions = self._cluster.ensemble.conditions
        conditions.lag_s_max = LATE_S
        await self._last(rng)
        conditions.lag_s_max = self._climate.store_lag_s_max

    async def watch_late_alone(self, node_id: int, rng: Random) -> None:
        """The server of one broker is behind those of the others."""
        name = self._process(node_id).name
        self._cluster.ensemble.lag_s_max_of[name] = LATE_S
        await self._last(rng)
        self._cluster.ensemble.lag_s_max_of.pop(name, None)

    async def depose_the_controller(self, node_id: int, rng: Random) -> None:
        """An operator deletes its node: another one begins. The first one may not know that for a while, and what it
        has sent may arrive behind what the second one sends.
        """
        ensemble = self._cluster.ensemble
        controller = self._controller_id()
        if controller not in self._cluster.brokers:
            return
        name = self._process(controller).name
        ensemble.lag_s_max_of[name] = LATE_S * rng.random()
        if rng.random() < SLOWED_CHANCE:
            for other in self._cluster.brokers:
                self._slow_down(name, self._process(other).name, rng.choice(LINK_S))
            await asyncio.sleep(rng.random())  # something is on its way by then
        ensemble.commit(0, (Delete(nodes.CONTROLLER),))
        await self._last(rng)
        ensemble.lag_s_max_of.pop(name, None)
        for other in self._cluster.brokers:
            self._speed_up(name, self._process(other).name)

    def _controller_id(self) -> int:
        entry = self._cluster.ensemble.tree.entry(nodes.CONTROLLER)
        return NO_LEADER if entry is None else int(json.loads(entry.data)["brokerid"])

    # -- machines ------------------------------------------------------------------------------------------------------

    async def set_the_clock(self, node_id: int, rng: Random) -> None:
        self._process(node_id).clock.skew_ms += rng.randrange(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)

    async def slow_the_disk(self, node_id: int, rng: Random) -> None:
        """What threads do takes up to a second, until the next start."""
        self._process(node_id).slow_disk(rng.random())

    async def fail_a_directory(self, node_id: int, rng: Random) -> None:
        """It is offline until the broker is started again, with a disk that works."""
        process = self._process(node_id)
        directory = rng.choice(DIRECTORIES)
        self._cluster.sick.add(node_id)
        process.disk.fail(f"{directory}/*-[0-9]*/*.log", "write", errno.EIO)
        await self._last(rng)
        await self._cluster.crash(node_id, power_loss=False)
        process.disk.heal()
        self._cluster.sick.discard(node_id)
        self._cluster.begin_start(node_id)

    # -- operators -----------------------------------------------------------------------------------------------------

    async def move_replicas(self, node_id: int, rng: Random) -> None:
        """Some partition gets other replicas, in another order; a move in progress is replaced."""
        name = rng.choice(list(self._cluster.observed))
        replicas = rng.sample(list(self._cluster.brokers), 3)
        entry = ReassignablePartition(partition_index=name.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name.topic, partitions=[entry])])
        await self._cluster.ask_controller(request, REASSIGN_VERSION)

    async def move_and_cancel(self, node_id: int, rng: Random) -> None:
        """A move that is taken back, perhaps in the middle."""
        name = rng.choice(list(self._cluster.observed))
        for replicas in (rng.sample(list(self._cluster.brokers), 3), None):
            entry = ReassignablePartition(partition_index=name.partition, replicas=replicas)
            topics = [ReassignableTopic(name=name.topic, partitions=[entry])]
            await self._cluster.ask_controller(AlterPartitionReassignmentsRequest(topics=topics), REASSIGN_VERSION)
            await asyncio.sleep(rng.random() * 0.5)

    async def move_logs(self, node_id: int, rng: Random) -> None:
        """Some replicas of a broker go to some of its directories, where they may be already."""
        names = [name for name in self._cluster.observed if rng.random() < 0.5]
        topics = [AlterReplicaLogDirTopic(name=name.topic, partitions=[name.partition]) for name in names]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=rng.choice(DIRECTORIES), topics=topics)])
        await self._cluster.try_asked(node_id, request, MOVE_LOGS_VERSION)

    async def delete_records(self, node_id: int, rng: Random) -> None:
        """Up to somewhere in what is committed, mostly to the middle of a batch."""
        name = rng.choice(self._names())
        for replica in self._cluster.replicas(name):
            leader = replica.current_leader
            if leader is None:
                continue
            offset = rng.randint(replica.log.log_start_offset, leader.high_watermark)
            # What becomes of the request may stay unknown; what is below may be gone from now on.
            seen = self._cluster.observed[name]
            seen.start = max(seen.start, offset)
            partitions = [DeleteRecordsPartition(partition_index=name.partition, offset=offset)]
            topics = [DeleteRecordsTopic(name=name.topic, partitions=partitions)]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
            await self._cluster.try_asked(leader.node_id, request, DELETE_RECORDS_VERSION)
            return

    def _names(self) -> list[TopicPartition]:
        """The partitions of the topic that operators change."""
        return [name for name in self._cluster.observed if name.topic == self._topic]

    async def add_partitions(self, node_id: int, rng: Random) -> None:
        count = len(self._names()) + rng.choice([1, 3])
        entry = CreatePartitionsTopic(name=self._topic, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[entry], timeout_ms=1000, validate_only=False)
        response = await self._cluster.ask_controller(request, ADD_PARTITIONS_VERSION)
        if response is not None and response.results[0].error_code == ErrorCode.NONE:
            for index in range(count):
                self._cluster.observed.setdefault(TopicPartition(self._topic, index), Observed())

    async def throttle_replicas(self, node_id: int, rng: Random) -> None:
        """Whoever is not in sync is slowed down for a while, by settings that are changed and taken back."""
        rate, replicas = str(rng.choice([1_000, 100_000])), "*"
        for is_set in (True, False):
            for resource_type, resource_name, settings in (
                (ConfigResourceType.TOPIC, self._topic, dict.fromkeys(THROTTLED_REPLICAS, replicas)),
                (ConfigResourceType.BROKER, "", dict.fromkeys(THROTTLE_RATES, rate)),
            ):
                # What was set has to go again, whoever is away just then.
                while not await self._alter(resource_type, resource_name, settings, is_set=is_set) and not is_set:
                    await asyncio.sleep(LOOK_S)
            await self._last(rng)

    async def _alter(self, resource_type: int, name: str, settings: dict[str, str], *, is_set: bool) -> bool:
        """Whether it was done, as far as the answer says."""
        entries = [
            IncrementalAlterConfigsRequestAlterableConfig(
                name=key, config_operation=SET if is_set else DELETE, value=value if is_set else None
            )
            for key, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=entries
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await self._cluster.ask_controller(request, ALTER_VERSION)
        return response is not None and not response.responses[0].error_code

    async def change_a_topic_without_a_broker(self, node_id: int, rng: Random) -> None:
        """Settings that a broker misses while it is down, or while it hears nothing of the store."""
        name = self._process(node_id).name
        is_down = rng.random() < 0.5
        if is_down:
            await self._cluster.crash(node_id, power_loss=False)
        else:
            self._cluster.ensemble.cut(name)
        settings = {"retention.bytes": str(rng.randrange(1 << 40, 1 << 41))}
        await self._alter(ConfigResourceType.TOPIC, self._topic, settings, is_set=True)
        await self._last(rng)
        if is_down:
            self._cluster.begin_start(node_id)
        else:
            self._cluster.ensemble.heal(name)

    async def change_fetchers(self, node_id: int, rng: Random) -> None:
        """Followers use another number of connections."""
        count = str(rng.choice([1, 2, 5]))
        await self._alter(ConfigResourceType.BROKER, "", {"num.replica.fetchers": count}, is_set=True)

    async def elect_preferred(self, node_id: int, rng: Random) -> None:
        await self._elect_preferred(rng.choice(list(self._cluster.observed)))

    async def _elect_preferred(self, name: TopicPartition) -> None:
        partitions = [TopicPartitions(topic=name.topic, partitions=[name.partition])]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=partitions, timeout_ms=1000)
        await self._cluster.ask_controller(request, ELECT_VERSION)

    async def make_and_delete_a_topic(self, node_id: int, rng: Random) -> None:
        """It may be deleted before all brokers have it; then its name is used again."""
        self._made += 1
        name = f"made-{self._made % 2}"
        created = await self._cluster.try_create_topic(name, rng.choice([1, 3]))
        await asyncio.sleep(rng.random() * 0.5)
        if created and rng.random() < 0.8:
            self._cluster.deleting.add(name)
            await self._delete(name)

    async def _delete(self, topic: str) -> None:
        """As an operator does it, who asks again until it is so."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
        code: int = ErrorCode.REQUEST_TIMED_OUT
        while code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            response = await self._cluster.ask_controller(request, DELETE_VERSION)
            if response is not None:
                code = response.responses[0].error_code
            await asyncio.sleep(LOOK_S)
        self._world.trace(f"{topic} is deleted")
