"""Controllers on a simulated ensemble, with brokers that do what they are told.

Sessions end, connections break, brokers go and come, topics are made, moved and deleted; in the end everything stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster import nodes
from ottla.cluster.control_batch import BEING_DELETED, ControlRequest
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import NO_LEADER, BrokerEndpoint, BrokerNode, PartitionState, TopicState
from ottla.controller import brokers, moves
from ottla.controller.controller import Controller
from ottla.controller.in_sync import IsrRequest, alter
from ottla.controller.peers import OnAnswer
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.store.api import (
    Create,
    Delete,
    NodeExists,
    NoNode,
    Put,
    SessionState,
    StoreError,
    StoreUnavailable,
)
from ottla.store.recipes import ensure_path
from ottla.testing.seeds import portion_id, portions
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble, SimulatedStore
from ottla.testing.world import World

LISTENER = "PLAINTEXT"
NODE_IDS = (1, 2, 3, 4)
RESEND_S = 0.1
STRAYS_AFTER_S = 5.0
LATEST = 1 << 31  # later than any leader epoch


class Settings:
    listener_name = LISTENER
    deletes_topics = True
    rebalances_leaders = True
    imbalance_check_s = 20.0
    imbalance_percent = 10

    def elects_unclean(self, topic: str) -> bool:
        return False


@dataclass
class ToldPartition:
    """What a broker was told of a partition that it holds."""

    leader: int
    leader_epoch: int
    version: int
    isr: tuple[int, ...]


@dataclass
class FakeBroker:
    """A broker as a controller sees one. It checks epochs as brokers do, and remembers what it was told."""

    cluster: Cluster
    node_id: int
    store: SimulatedStore | None = None
    controller_epoch: int = -1
    held: dict[TopicPartition, ToldPartition] = field(default_factory=dict)
    claimed: set[TopicPartition] = field(default_factory=set)  # what it was told of since its start
    seen: dict[TopicPartition, int] = field(default_factory=dict)  # leader epochs in the metadata
    removed: dict[TopicPartition, int] = field(default_factory=dict)  # those of partitions that are on others
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    controller: Controller | None = None

    @property
    def is_running(self) -> bool:
        return self.store is not None

    def start(self) -> None:
        ensemble = self.cluster.ensemble
        self.store = ensemble.connect(f"broker-{self.node_id}")
        self.claimed.clear()
        self.controller = Controller(
            self.node_id,
            self.store,
            lambda: SimulatedPeers(self.cluster, self.node_id),
            Settings(),
            self.cluster.world.rng(f"controller {self.node_id} {ensemble.loop.time()}"),
            lambda: 0,
        )
        self.tasks = [
            asyncio.ensure_future(self._stay_registered(self.store)),
            asyncio.ensure_future(self.controller.run()),
        ]

    async def _stay_registered(self, store: SimulatedStore) -> None:
        session_id = -1
        while True:
            if session_id == store.session.session_id:
                await self._drop_strays(store)
                await store.session.changed.wait(STRAYS_AFTER_S)
            if store.session.state is SessionState.CONNECTED and store.session.session_id != session_id:
                broker = BrokerNode(self.node_id, {LISTENER: BrokerEndpoint(f"host-{self.node_id}", 9092)})
                try:
                    await store.commit(
                        Create(nodes.broker_path(self.node_id), nodes.encode_broker(broker, 0), ephemeral=True)
                    )
                    session_id = store.session.session_id
                except NodeExists:
                    node = await store.get(nodes.broker_path(self.node_id))
                    if node is not None and node.owner == store.session.session_id:
                        session_id = store.session.session_id
                    else:
                        await asyncio.sleep(0.5)  # of our session before, which runs out
                except StoreUnavailable:
                    continue
            elif store.session.state is not SessionState.CONNECTED:
                await store.session.changed.wait()

    async def _drop_strays(self, store: SimulatedStore) -> None:
        """What was taken from it while nobody could tell it: a broker looks for that by itself."""
        with suppress(StoreUnavailable):
            for partition in [each for each in self.held if self._is_stray(each)]:
                node = await store.get(nodes.topic_path(partition.topic))
                assigned = () if node is None else nodes.decode_assignment("", node.data).partitions
                is_ours = partition.partition < len(assigned) and self.node_id in assigned[partition.partition].replicas
                if not is_ours and self._is_stray(partition):
                    self.held.pop(partition, None)

    def _is_stray(self, partition: TopicPartition) -> bool:
        """Whether no controller has spoken of it since the start, or the last that one said is that it is elsewhere."""
        told = self.held.get(partition)
        return told is not None and (
            partition not in self.claimed or self.removed.get(partition, -1) >= told.leader_epoch
        )

    async def crash(self) -> None:
        assert self.store is not None
        store, self.store = self.store, None
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        store.vanish()
        self.controller = None

    def answer(self, request: ControlRequest) -> Any:
        """As a broker answers; the checks are those of ZOOKEEPER mode."""
        assert request.controller_epoch in self.cluster.epochs_by_controller.setdefault(
            request.controller_id, {request.controller_epoch}
        ) or self.cluster.note_controller(request.controller_id, request.controller_epoch)
        if request.controller_epoch < self.controller_epoch:
            return _refusal(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(topics=[self._led(topic) for topic in request.topic_states])
            case UpdateMetadataRequest():
                for topic in request.topic_states:
                    for each in topic.partition_states:
                        partition = TopicPartition(topic.topic_name, each.partition_index)
                        if each.leader == BEING_DELETED:
                            self.seen.pop(partition, None)
                            self.removed[partition] = LATEST
                            continue
                        self.seen[partition] = each.leader_epoch
                        self.removed[partition] = -1 if self.node_id in each.replicas else each.leader_epoch
                return UpdateMetadataResponse()
            case StopReplicaRequest():
                return StopReplicaResponse(partition_errors=list(self._stopped(request)))

    def _led(self, topic: Any) -> LeaderAndIsrTopicError:
        errors = []
        for each in topic.partition_states:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            known = self.held.get(partition)
            self.claimed.add(partition)
            code = ErrorCode.NONE
            if self.node_id not in each.replicas:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif known is not None and each.leader_epoch <= known.leader_epoch:
                code = ErrorCode.STALE_CONTROLLER_EPOCH
            else:
                self.held[partition] = ToldPartition(
                    each.leader, each.leader_epoch, each.partition_epoch, tuple(each.isr)
                )
                self.cluster.note_leader(partition, each.leader_epoch, each.leader)
            errors.append(LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=code))
        return LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)

    def _stopped(self, request: StopReplicaRequest) -> Any:
        for topic in request.topic_states:
            for each in topic.partition_states:
                partition = TopicPartition(topic.topic_name, each.partition_index)
                known = self.held.get(partition)
                code = ErrorCode.NONE
                if known is not None and 0 <= each.leader_epoch < known.leader_epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif each.delete_partition:
                    self.held.pop(partition, None)
                yield StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=each.partition_index, error_code=code
                )


def _refusal(request: ControlRequest, code: ErrorCode) -> Any:
    match request:
        case LeaderAndIsrRequest():
            return LeaderAndIsrResponse(error_code=code, topics=[])
        case UpdateMetadataRequest():
            return UpdateMetadataResponse(error_code=code)
        case StopReplicaRequest():
            return StopReplicaResponse(error_code=code, partition_errors=[])


class SimulatedPeers:
    """Channels of one controller: in order, one request at a time, sent again until answered."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._queues: dict[int, asyncio.Queue[tuple[ControlRequest, OnAnswer]]] = {}

    def add(self, broker: BrokerNode) -> None:
        self._queues[broker.node_id] = asyncio.Queue()
        self._tasks[broker.node_id] = asyncio.ensure_future(self._deliver(broker.node_id))

    def remove(self, node_id: int) -> None:
        self._queues.pop(node_id, None)
        if task := self._tasks.pop(node_id, None):
            task.cancel()

    def send(self, node_id: int, request: ControlRequest, on_answer: OnAnswer) -> None:
        if node_id in self._queues:
            self._queues[node_id].put_nowait((request, on_answer))

    async def wait_until_answered(self) -> None:
        for queue in list(self._queues.values()):
            await queue.join()

    def close(self) -> None:
        for node_id in list(self._tasks):
            self.remove(node_id)

    async def _deliver(self, node_id: int) -> None:
        rng = self._cluster.rng
        queue = self._queues[node_id]
        while True:
            request, on_answer = await queue.get()
            while True:
                await asyncio.sleep(rng.random() * 0.02)
                broker = self._cluster.brokers[node_id]
                if not broker.is_running:
                    await asyncio.sleep(RESEND_S)
                    continue
                answer = broker.answer(request)
                if rng.random() < 0.1:  # done, and the answer is lost: it is sent again
                    await asyncio.sleep(RESEND_S)
                    continue
                await asyncio.sleep(rng.random() * 0.02)
                on_answer(answer)
                queue.task_done()
                break


class Cluster:
    """Brokers, their controllers, the ensemble, and what must never happen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("cluster")
        self.ensemble = SimulatedEnsemble(
            world.loop,
            world.rng("ensemble"),
            lambda: 0,
            EnsembleConditions(session_timeout_s=2.0, lag_s_max=0.1),
            world.trace,
        )
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in NODE_IDS}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.epochs_by_controller: dict[int, set[int]] = {}
        self.topic_count = 0

    def note_controller(self, node_id: int, epoch: int) -> bool:
        self.epochs_by_controller[node_id].add(epoch)
        owners = [node for node, epochs in self.epochs_by_controller.items() if epoch in epochs]
        assert owners == [node_id], f"epoch {epoch} has the controllers {owners}"
        return True

    def note_leader(self, partition: TopicPartition, epoch: int, leader: int) -> None:
        if leader != NO_LEADER:
            assert self.leaders.setdefault((partition, epoch), leader) == leader, f"two leaders of {partition}"

    # -- what the store says -------------------------------------------------------------------------------------------

    def states(self) -> dict[TopicPartition, PartitionState]:
        tree = self.ensemble.tree
        found = {}
        for name in tree.children(nodes.TOPICS):
            entry = tree.entry(nodes.topic_path(name))
            assert entry is not None
            for index, assigned in enumerate(nodes.decode_assignment("", entry.data).partitions):
                partition = TopicPartition(name, index)
                state = tree.entry(nodes.state_path(*partition))
                found[partition] = (
                    unwritten(assigned.replicas)
                    if state is None
                    else nodes.decode_state("", state.data, assigned.replicas, state.version)
                )
        return found

    def controller(self) -> Controller | None:
        return next((b.controller for b in self.brokers.values() if b.controller and b.controller.is_active), None)

    # -- what happens --------------------------------------------------------------------------------------------------

    async def make_topic(self, admin: SimulatedStore) -> None:
        self.topic_count += 1
        name = f"topic-{self.topic_count}"
        replicas = [
            tuple(self.rng.sample(NODE_IDS, self.rng.choice([1, 2, 3]))) for _ in range(self.rng.choice([1, 3]))
        ]
        topic = TopicState(name, self._topic_id(), tuple(unwritten(each) for each in replicas))
        await admin.commit(Create(nodes.topic_path(name), nodes.encode_topic(topic)))

    def _topic_id(self) -> Any:
        return UUID(int=self.rng.getrandbits(128), version=4)

    async def delete_topic(self, admin: SimulatedStore) -> None:
        names = await admin.children(nodes.TOPICS)
        if names:
            await admin.commit(Create(nodes.deletion_path(self.rng.choice(names))))

    async def move(self) -> None:
        states = list(self.states())
        controller = self.controller()
        if states and controller is not None:
            partition, target = self.rng.choice(states), self.rng.sample(NODE_IDS, self.rng.choice([1, 2, 3]))
            await controller.ask(lambda term: moves.begin(term, partition, target))

    async def catch_up(self) -> None:
        """Followers of partitions that are led have everything: their leaders ask for them."""
        controller = self.controller()
        if controller is None:
            return
        for broker in self.brokers.values():
            asked = {}
            for partition, told in broker.held.items():
                if broker.is_running and told.leader == broker.node_id:
                    state = self.states().get(partition)
                    if state is not None and state.leader == broker.node_id:
                        alive = [n for n in state.replicas if self.brokers[n].is_running]
                        isr = (*state.isr, *(node for node in alive if node not in state.isr))
                        asked[partition] = IsrRequest(told.leader_epoch, state.version, isr)
            if asked:
                await controller.ask(partial(alter, requests=asked))

    async def go_wrong(self, admin: SimulatedStore) -> None:
        rng = self.rng
        node_id = rng.choice(NODE_IDS)
        broker, name = self.brokers[node_id], f"broker-{node_id}"
        match rng.randrange(9):
            case 0 | 1 if broker.is_running and sum(b.is_running for b in self.brokers.values()) > 1:
                await broker.crash()
            case 2 | 3 if not broker.is_running:
                broker.start()
            case 4:
                self.ensemble.cut(name)
            case 5:
                self.ensemble.heal(name)
            case 6:
                self.ensemble.break_connections()
            case 7 if broker.store is not None:
                self.ensemble.end_session(broker.store.session.session_id)
            case 8:
                await admin.commit(Delete(nodes.CONTROLLER))


async def scenario(cluster: Cluster, steps: int) -> None:
    rng, ensemble = cluster.rng, cluster.ensemble
    admin = ensemble.connect("admin")
    await ensure_path(admin, *nodes.ROOTS, nodes.ISR_CHANGES, nodes.LOG_DIR_EVENTS)
    ensemble.conditions.break_chance = 0.002
    for broker in cluster.brokers.values():
        broker.start()
    for _ in range(steps):
        await asyncio.sleep(rng.random() * 2)
        try:
            match rng.randrange(8):
                case 0 | 1:
                    await cluster.make_topic(admin)
                case 2:
                    await cluster.delete_topic(admin)
                case 3:
                    await asyncio.wait_for(cluster.move(), 5)
                case 4:
                    await asyncio.wait_for(cluster.catch_up(), 5)
                case _:
                    await cluster.go_wrong(admin)
        except (StoreUnavailable, NodeExists, NoNode, ApiError, TimeoutError, StoreError):
            continue
    await settle(cluster)
    check(cluster)
    for broker in cluster.brokers.values():
        await broker.crash()
    await admin.close()


async def settle(cluster: Cluster) -> None:
    """The faults end. Whatever had to wait gets its time."""
    for node_id, broker in cluster.brokers.items():
        cluster.ensemble.heal(f"broker-{node_id}")
        if not broker.is_running:
            broker.start()
    cluster.ensemble.conditions.break_chance = 0.0
    for _ in range(12):
        await asyncio.sleep(10)
        try:
            await asyncio.wait_for(cluster.catch_up(), 5)
        except (ApiError, TimeoutError):
            continue


def check(cluster: Cluster) -> None:
    assert cluster.controller() is not None, "nobody is the controller"
    tree = cluster.ensemble.tree
    assert tree.children(nodes.DELETIONS) == [], "a deletion was never finished"
    states = cluster.states()
    for partition, state in states.items():
        assert state.leader in state.isr, f"{partition} is not led: {state}"
        assert set(state.isr) <= set(state.replicas), f"{partition}: {state}"
        entry = tree.entry(nodes.topic_path(partition.topic))
        assert entry is not None
        assigned = nodes.decode_assignment("", entry.data).partitions[partition.partition]
        assert not assigned.adding, f"the move of {partition} is stuck"
        assert not assigned.removing, f"the move of {partition} is stuck"
        for node_id in NODE_IDS:
            broker = cluster.brokers[node_id]
            assert broker.seen.get(partition) == state.leader_epoch, f"broker {node_id} does not know of {partition}"
            told = broker.held.get(partition)
            if node_id in state.replicas:
                assert told is not None, f"broker {node_id} does not hold {partition}"
                assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
            else:
                assert told is None, f"broker {node_id} still holds {partition}"
    for broker in cluster.brokers.values():
        assert broker.held.keys() <= states.keys(), "a replica of a deleted topic is left"


SEEDS = 40


@pytest.mark.parametrize("portion", portions(SEEDS, per_test=10), ids=portion_id)
def test_a_cluster_stands_as_it_must_once_faults_end(portion: range) -> None:
    for seed in portion:
        world = World(seed)
        cluster = Cluster(world)
        world.run(scenario(cluster, Random(seed).choice([10, 40])), seconds=10_000, replay=f"seed {seed}")


@pytest.mark.parametrize("seed", range(30))
def test_answers_of_an_election_that_are_lost_leave_no_office_unserved(seed: int) -> None:
    """Connections break while brokers stand for election, and again while they look whether they were elected."""
    world = World(seed)
    cluster = Cluster(world)

    async def elect() -> None:
        admin = cluster.ensemble.connect("admin")
        await ensure_path(admin, *nodes.ROOTS, nodes.ISR_CHANGES, nodes.LOG_DIR_EVENTS)
        cluster.ensemble.conditions.break_chance = 0.3
        for broker in cluster.brokers.values():
            broker.start()
        await asyncio.sleep(1.5)
        cluster.ensemble.conditions.break_chance = 0.0
        await asyncio.sleep(30)
        entry = cluster.ensemble.tree.entry(nodes.CONTROLLER)
        serving = [each for each in cluster.brokers.values() if each.controller is cluster.controller()]
        assert entry is not None
        assert [each.store.session.session_id for each in serving if each.store is not None] == [entry.owner]
        for broker in cluster.brokers.values():
            await broker.crash()
        await admin.close()

    world.run(elect(), seconds=1000)


# -- a controller that fails between any two of its writes -------------------------------------------------------------


TOPIC = "t"
FIRST = ((1, 2, 3), (2, 3, 4), (3, 4, 1))


def assigned(replicas: Iterable[tuple[int, ...]]) -> bytes:
    return nodes.encode_topic(TopicState(TOPIC, UUID(int=7, version=4), tuple(unwritten(each) for each in replicas)))


async def create(cluster: Cluster, admin: SimulatedStore) -> None:
    await admin.commit(Create(nodes.topic_path(TOPIC), assigned(FIRST)))


async def extend(cluster: Cluster, admin: SimulatedStore) -> None:
    await admin.commit(Put(nodes.topic_path(TOPIC), assigned((*FIRST, (4, 1), (1, 2)))))


async def delete(cluster: Cluster, admin: SimulatedStore) -> None:
    await admin.commit(Create(nodes.deletion_path(TOPIC)))


async def shut_down(cluster: Cluster, admin: SimulatedStore) -> None:
    """A broker that is not the controller leaves in peace."""
    for _ in range(20):
        controller = cluster.controller()
        leaving = next(b for b in cluster.brokers.values() if b.is_running and b.controller is not controller)
        node = await admin.get(nodes.broker_path(leaving.node_id))
        if controller is not None and node is not None:
            work = partial(brokers.shut_down, node_id=leaving.node_id, broker_epoch=node.created)
            try:
                await asyncio.wait_for(controller.ask(work), 5)
                await leaving.crash()
                return
            except (ApiError, TimeoutError):
                pass
        await asyncio.sleep(0.2)


EXPECTED = {
    create: FIRST,
    extend: (*FIRST, (4, 1), (1, 2)),
    delete: (),
    shut_down: FIRST,
}
FAULTS = ("dies", "loses its session", "loses its connection", "is not the controller any more")


async def interrupted(cluster: Cluster, operation: Any, commits: int, fault: str) -> bool:
    """Whether the controller got as far as that many commits."""
    ensemble = cluster.ensemble
    admin = ensemble.connect("admin")
    await ensure_path(admin, *nodes.ROOTS, nodes.ISR_CHANGES, nodes.LOG_DIR_EVENTS)
    for broker in cluster.brokers.values():
        broker.start()
    while (controller := cluster.controller()) is None:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    if operation is not create:
        await create(cluster, admin)
        await asyncio.sleep(2)
    broker = next(each for each in cluster.brokers.values() if each.controller is controller)
    assert broker.store is not None
    session_id = broker.store.session.session_id
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        match fault:
            case "dies":
                tasks.append(loop.create_task(broker.crash(), name="crash"))
            case "loses its session":
                ensemble.end_session(session_id)
            case "loses its connection":
                ensemble.break_connections()
            case _:
                ensemble.commit(0, (Delete(nodes.CONTROLLER),))

    ensemble.interrupt_after(session_id, commits, interrupt)
    await operation(cluster, admin)
    await asyncio.sleep(5)
    was_interrupted = ensemble.was_interrupted()
    await settle(cluster)
    check(cluster)
    found = {index: {*state.replicas} for (_, index), state in cluster.states().items()}
    assert found == {index: {*replicas} for index, replicas in enumerate(EXPECTED[operation])}
    for each in cluster.brokers.values():
        await each.crash()
    await admin.close()
    return was_interrupted


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", EXPECTED, ids=lambda operation: operation.__name__)
def test_an_operation_is_finished_wherever_its_controller_was_interrupted(operation: Any, fault: str) -> None:
    commits = 0
    was_interrupted = True
    while was_interrupted:
        commits += 1
        world = World(commits)
        was_interrupted = world.run(
            interrupted(Cluster(world), operation, commits, fault), seconds=10_000, replay=f"commit {commits}"
        )
    assert commits > 1, "the controller wrote nothing"
