"""A whole cluster in a simulated world: brokers, an ensemble, and what must never happen to them.

    world = World(seed)
    cluster = SimulatedCluster(world)

    async def scenario() -> None:
        await cluster.start()
        ...
        await cluster.settle()                  # faults have ended: everybody is back and in sync
        cluster.check(...)

Responses to clients are kept: a record that was acknowledged stays at its offset, on every replica, and so
does one that was read. No two brokers lead a partition in one epoch, epochs only grow, what is committed is the same
everywhere, and every replica knows the same of its producers. In the end every broker knows what the store has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.partition import Partition
from ottla.client.admin.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ottla.cluster import nodes
from ottla.cluster.image import PartitionState
from ottla.config.jaas import MODULES
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.login import Credentials, log_in
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest
from ottla.records import batch
from ottla.testing.audit import audit, batches_of
from ottla.testing.raw_requests import create_topic
from ottla.testing.security import ADMIN, password
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble
from ottla.testing.wire_client import WireClient
from ottla.testing.world import PORT, BrokerProcess, ProcessDiedError, SimulatedClock, World

if TYPE_CHECKING:
    from typing_extensions import Buffer

CREATE_VERSION: Final = 5
CLIENT_TIMEOUT_S: Final = 2.0
RESTART_S: Final = 0.5
LOOK_S: Final = 0.05
STIRRED_S: Final = 1.0
COMPARE_EVERY: Final = 40  # looks
ASKED_MAX: Final = 200  # offsets and times that a log is asked for in the end; more of them say the same of its indexes
REPLICATION: Final = 3
VALUE_BYTES_SHOWN: Final = 20
OFFSETS_PARTITIONS: Final = 2
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
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "200",
    # Replicas of a compacted log differ: here they must not.
    "log.cleaner.enable": "false",
}
LOGIN_VERSION: Final = 1
ACLS_VERSION: Final = 3
CLUSTER_RIGHTS: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def login_of(user: str) -> Credentials:
    return Credentials("PLAIN", user, password(user))


def secured_settings(host: str, own_password: str | None = None) -> dict[str, str]:
    """Of a broker whose clients, and whose fellow brokers, log in; by PLAIN, as nothing of it needs a thread."""
    users = " ".join(f'user_{user}="{password(user)}"' for user in (ADMIN, "alice"))
    return {
        "listeners": f"SASL_PLAINTEXT://{host}:{PORT}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required "
        f'username="{ADMIN}" password="{own_password or password(ADMIN)}" {users};',
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


@dataclass(slots=True)
class Observed:
    """What responses said of one partition: value by offset, and where it ends."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    implied: list[bytes] = field(default_factory=list)  # acknowledged by what came after them
    end: int = 0
    start: int = 0  # somebody asked to delete what is below
    may_lose: bool = False  # leaders may be elected outside the ISR


class SimulatedCluster:
    """Brokers 1 to `size` of a world, and what was seen of them."""

    def __init__(
        self,
        world: World,
        size: int = 3,
        settings: Mapping[str, str] | None = None,
        ensemble: EnsembleConditions | None = None,
        login: Credentials | None = None,
    ) -> None:
        """`login`: who clients are, where the settings are those of `secured_settings`."""
        self.world = world
        self._login = login
        self.ensemble = world.ensemble = SimulatedEnsemble(
            world.loop,
            world.rng("ensemble"),
            SimulatedClock(world.loop).now_ms,
            ensemble or EnsembleConditions(session_timeout_s=2.0, lag_s_max=0.1),
            world.trace,
        )
        self.brokers = {
            node_id: world.broker(
                f"broker-{node_id}",
                {
                    **SETTINGS,
                    "offsets.topic.replication.factor": str(min(size, REPLICATION)),
                    "transaction.state.log.replication.factor": str(min(size, REPLICATION)),
                    **(settings or {}),
                    **({} if login is None else secured_settings(f"broker-{node_id}")),
                    "broker.id": str(node_id),
                },
            )
            for node_id in range(1, size + 1)
        }
        self.observed: dict[TopicPartition, Observed] = {}
        self.deleting: set[str] = set()  # topics that somebody asked to delete
        self.sick: set[int] = set()  # brokers with a disk that does not work
        self._leaders: dict[tuple[TopicPartition, object, int], int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._roles: dict[tuple[BrokerProcess, int, TopicPartition, object], int] = {}
        self._controller_epochs: dict[tuple[BrokerProcess, int], int] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._stopping: set[int] = set()
        self._client_host = world.network.host("client")
        self._looks = 0
        self._states: dict[TopicPartition, PartitionState] = {}
        self._states_at = -1  # commits of the ensemble
        self._stirred_until = 0.0
        self._without_power: set[int] = set()  # who has been, at some time

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    def begin_start(self, node_id: int) -> None:
        """Starts a broker, however long that takes: its earlier session may have to end first."""
        starting = self._starting.get(node_id)
        if not self.brokers[node_id].is_alive and (starting is None or starting.done()):
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

    async def stop(self, node_id: int) -> None:
        """The clean end of a broker, unless it is killed before it gets there."""
        if node_id in self._stopping:
            return
        self._stopping.add(node_id)
        try:
            await self.brokers[node_id].stop()
        except ProcessDiedError:
            return
        finally:
            self._stopping.discard(node_id)

    async def crash(self, node_id: int, *, power_loss: bool) -> None:
        if self.brokers[node_id].is_alive:
            if power_loss:
                self._without_power.add(node_id)
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
            self.begin_start(node_id)
        try:
            async with asyncio.timeout(seconds):
                for starting in list(self._starting.values()):
                    await starting
                while self.unsettled(is_quiet=is_quiet) is not None:
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            self.world.fail(f"not settled {seconds} s after the last fault: {self.unsettled(is_quiet=is_quiet)}")
            raise

    def is_settled(self) -> bool:
        return self.unsettled(is_quiet=False) is None

    def unsettled(self, *, is_quiet: bool) -> str | None:
        """What is not as it should be without faults; None where nothing is."""
        down = self.brokers.keys() - self.running
        if down:
            return f"brokers {down} are not back"
        for name, state in self.states().items():
            if name.topic in self.deleting:
                return f"{name} is still there"
            reason = self._unsettled(name, state, is_quiet=is_quiet)
            if reason is not None:
                return f"{name}: {reason}"
        stale = [node_id for node_id in self.running if not self._knows_all(node_id)]
        if stale:
            return f"brokers {stale} do not know what the store has"
        missing = {name for name in self.observed if self.ensemble.tree.entry(nodes.state_path(*name)) is None}
        return f"{missing} are not there" if missing else None

    def _knows_all(self, node_id: int) -> bool:
        """Whether a broker tells its clients what is so."""
        image = self.brokers[node_id].broker.image
        if image.brokers.keys() != self.brokers.keys():
            return False
        for name, state in self.states().items():
            known = image.partition(name)
            if known is None or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                return False
        return True

    def _unsettled(self, name: TopicPartition, state: PartitionState, *, is_quiet: bool) -> str | None:
        replicas = self.replicas(name)
        leaders = [replica for replica in replicas if replica.current_leader is not None]
        if {*state.replicas} != {*state.isr} or state.adding or state.removing:
            return f"{state} is not in sync"
        if len(replicas) != len(state.replicas) or len(leaders) != 1:
            return f"{len(replicas)} replicas and {len(leaders)} leaders are here"
        leader = leaders[0].leader
        if {*leader.isr} != {*state.isr} or leader.proposal is not None or leader.node_id != state.leader:
            return f"its leader knows {leader.isr} and proposes {leader.proposal}, the store has {state}"
        places = {(replica.log.end_offset, replica.high_watermark) for replica in replicas}
        starts = {replica.log.log_start_offset for replica in replicas}
        if is_quiet and any(any(replica.log.producers.ongoing_transactions()) for replica in replicas):
            return "a transaction is open"
        if is_quiet and {*places} != {(leader.high_watermark, leader.high_watermark)}:
            return f"end offsets and high watermarks are {places}"
        # A leader that crashed may have forgotten what was deleted last, as in Kafka: followers do not get that back.
        if len({replica.log.config for replica in replicas}) > 1:
            return f"its settings differ: {[replica.log.config for replica in replicas]}"
        if is_quiet and min(starts) < leaders[0].log.log_start_offset:
            return f"log start offsets are {starts}, and its leader starts at {leaders[0].log.log_start_offset}"
        return None

    def replicas(self, name: TopicPartition) -> list[Partition]:
        found = (self.brokers[node_id].broker.replicas.get(name) for node_id in self.running)
        return [partition for partition in found if partition is not None]

    def stir(self) -> None:
        """Something happens, or is about to: from now on clients hurry for a while."""
        self._stirred_until = self.world.loop.time() + STIRRED_S

    @property
    def is_calm(self) -> bool:
        return self.world.loop.time() > self._stirred_until

    # -- what must never happen ----------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Looks at the brokers and at the store again and again; until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        if self._states_at != len(self.ensemble.commits):  # brokers came or went, leaders changed, replicas are back
            self.stir()
        for node_id in self.running:
            process = self.brokers[node_id]
            self._look_at_controller_epoch(process, node_id)
            for partition in process.broker.replicas:
                self._look_at(process, node_id, partition)
        for name, state in self.states().items():
            if name in self.observed and state.leader_epoch < self._epochs.get(name, 0):
                self.world.fail(f"the epoch of {name} went back to {state.leader_epoch}")
            self._epochs[name] = state.leader_epoch
            if name in self.observed and not self.observed[name].may_lose:
                self._look_at_committed(name, state)
        self._looks += 1
        if self._looks % COMPARE_EVERY == 0:
            for name, seen in self.observed.items():
                if not seen.may_lose:
                    self.compare(name, committed_only=True)

    def _look_at_controller_epoch(self, process: BrokerProcess, node_id: int) -> None:
        member = process.broker.cluster
        if member is None:
            return
        life, epoch = (process, process.starts), member.control.controller_epoch
        if epoch < self._controller_epochs.get(life, 0):
            self.world.fail(f"{node_id} obeys a controller of epoch {epoch} again")
        self._controller_epochs[life] = epoch

    def _look_at(self, process: BrokerProcess, node_id: int, partition: Partition) -> None:
        name, leader, log = partition.name, partition.current_leader, partition.log
        if leader is not None:
            first = self._leaders.setdefault((name, partition.topic_id, leader.epoch), node_id)
            if first != node_id:
                self.world.fail(f"{first} and {node_id} lead {name} in epoch {leader.epoch}")
        if not log.log_start_offset <= partition.high_watermark <= log.end_offset:
            self.world.fail(
                f"{name} on {node_id}: {log.log_start_offset=} {partition.high_watermark=} {log.end_offset=}"
            )
        role = (process, process.starts, name, partition.topic_id)
        if partition.leader_epoch < self._roles.get(role, partition.leader_epoch):
            self.world.fail(f"{name} on {node_id} went back to epoch {partition.leader_epoch}")
        self._roles[role] = partition.leader_epoch

    def _look_at_committed(self, name: TopicPartition, state: PartitionState) -> None:
        """What some replica knows to be committed, every one in sync has. After a power loss it may have less."""
        here = {node_id: self.brokers[node_id].broker.replicas.get(name) for node_id in self.running}
        replicas = {node_id: replica for node_id, replica in here.items() if replica is not None}
        known = max((replica.high_watermark for replica in replicas.values()), default=0)
        for node_id, replica in replicas.items():
            is_sound = node_id not in self._without_power and not replica.is_gone
            if node_id in state.isr and is_sound and replica.log.end_offset < known:
                self.world.fail(
                    f"{name}: {node_id} is in sync and ends at {replica.log.end_offset}, committed up to {known}"
                )

    def check_held(self, name: TopicPartition, last_offset: int, wanted: int) -> None:
        """A record that is acknowledged now is on so many replicas; as far as all of them can be asked."""
        replicas, state = self.replicas(name), self.states().get(name)
        if state is None or len(replicas) != len(state.replicas) or self._without_power or self.sick:
            return
        held = [
            replica for replica in replicas if max(replica.log.end_offset, replica.log.log_start_offset) > last_offset
        ]
        if len(held) < wanted:
            self.world.fail(f"{name}: {last_offset} was acknowledged, and {len(held)} replicas have it")

    def states(self) -> dict[TopicPartition, PartitionState]:
        """What the store says of all partitions of all topics."""
        if self._states_at != len(self.ensemble.commits):
            self._states, self._states_at = self._decoded_states(), len(self.ensemble.commits)
        return self._states

    def _decoded_states(self) -> dict[TopicPartition, PartitionState]:
        tree = self.ensemble.tree
        found: dict[TopicPartition, PartitionState] = {}
        if tree.entry(nodes.TOPICS) is None:
            return found
        for topic in tree.children(nodes.TOPICS):
            entry = tree.entry(nodes.topic_path(topic))
            assert entry is not None
            for index, assigned in enumerate(nodes.decode_assignment(topic, entry.data).partitions):
                state = tree.entry(nodes.state_path(topic, index))
                if state is not None:
                    decoded = nodes.decode_state("", state.data, assigned.replicas, state.version)
                    found[TopicPartition(topic, index)] = decoded
        return found

    def compare(self, name: TopicPartition, *, committed_only: bool) -> None:
        """All replicas have the same batches, or the same as far as all of them know to be committed."""
        replicas = self.replicas(name)
        start_offset = max((replica.log.log_start_offset for replica in replicas), default=0)
        upper_offset = min((replica.high_watermark for replica in replicas), default=0)
        logs = [
            [
                (header.base_offset, header.leader_epoch, header.crc)
                for header, _ in batches_of(replica.log)
                if header.end_offset > start_offset and (not committed_only or header.end_offset <= upper_offset)
            ]
            for replica in replicas
        ]
        if any(log != logs[0] for log in logs):
            self.world.fail(f"the replicas of {name} differ{' where they are committed' if committed_only else ''}")

    def check(self) -> None:
        """In the end: every replica has the same records, and all that responses reported is among them."""
        for name in self.states():
            self.compare(name, committed_only=False)
            replicas = self.replicas(name)
            for replica in replicas:
                audit(replica.log, asked_max=ASKED_MAX)  # with what it knows of producers
        for name, seen in self.observed.items():
            if seen.may_lose:
                continue
            values_here = contents(self.replicas(name)[0])
            for kind, values in (("acknowledged", seen.acknowledged), ("read", seen.read)):
                for offset, value in values.items():
                    found = values_here.get(offset)
                    if offset >= seen.start and found != value:
                        self.world.fail(f"{name}: {shown(value)} was {kind} at {offset}, where {shown(found)} is")
            lost = set(seen.implied).difference(values_here.values())
            if lost and not seen.start:  # nobody knows at which offsets they were
                self.world.fail(f"{name}: {shown(min(lost))} is not there, and what was sent behind it is")
        for node_id in self.running:
            for log in self.brokers[node_id].broker.logs:
                if log.name.topic in self.deleting:
                    self.world.fail(f"{log.name} was deleted and is still on {node_id}")

    # -- asking --------------------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str] | None = None, *, may_lose: bool = False
    ) -> None:
        """A topic whose partitions clients use."""
        while not await self.try_create_topic(name, partitions, config):
            if self.ensemble.tree.entry(nodes.topic_path(name)) is not None:  # the answer was late
                break
            await asyncio.sleep(LOOK_S)
        for index in range(partitions):
            self.observed[TopicPartition(name, index)] = Observed(may_lose=may_lose)

    async def try_create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        """Whether it was made, as far as the answer says."""
        request = create_topic(name, partitions, min(REPLICATION, len(self.brokers)), config=config, timeout_ms=1000)
        response = await self.ask_controller(request, CREATE_VERSION)
        if response is None or response.topics[0].error_code:
            return False
        self.deleting.discard(name)
        return True

    async def ask_controller(self, request: object, version: int) -> Any:
        """The answer of whoever a broker takes for the controller; None where there was none."""
        if not self.running:
            return None
        controller = self.brokers[self.running[0]].broker.image.controller_id
        return await self.try_asked(controller, request, version) if controller in self.brokers else None

    async def try_asked(self, node_id: int, request: object, version: int) -> Any:
        """The answer of a broker; None where there was none."""
        try:
            return await self.asked(node_id, request, version)
        except (OSError, TimeoutError):
            return None

    async def asked(self, node_id: int, request: object, version: int, *, timeout_s: float = CLIENT_TIMEOUT_S) -> Any:
        """The answer of a broker to one request on a connection of its own."""
        client = await self.connected(node_id)
        try:
            return await client.call(request, version, timeout_s=timeout_s)
        finally:
            client.close()

    async def connected(self, node_id: int, login: Credentials | None = None) -> WireClient:
        """A connection of whoever logs in by `login`, or of the clients of this cluster."""
        sock = await asyncio.wait_for(self._client_host.connect(self.brokers[node_id].name, PORT), CLIENT_TIMEOUT_S)
        client = WireClient(sock)
        login = login or self._login
        if login is not None:

            async def ask(request: object, answer: type[Any]) -> Any:
                return await client.call(request, LOGIN_VERSION, timeout_s=CLIENT_TIMEOUT_S)

            await log_in(ask, login, CLIENT_TIMEOUT_S)
        return client

    async def allow_clients(self) -> None:
        """Everything that clients and operators do, but to be part of the cluster; all brokers know it then."""
        assert self._login is not None
        granted = [(AclResourceType.TOPIC, "*", AclOperation.ALL), (AclResourceType.GROUP, "*", AclOperation.ALL)]
        granted.append((AclResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL))
        granted += [(AclResourceType.CLUSTER, "kafka-cluster", operation) for operation in CLUSTER_RIGHTS]
        creations = [
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{self._login.username}",
                host="*",
                operation=operation,
                permission_type=AclPermission.ALLOW,
            )
            for resource, name, operation in granted
        ]
        client = await self.connected(1, login_of(ADMIN))
        try:
            answer = await client.call(CreateAclsRequest(creations=creations), ACLS_VERSION)
        finally:
            client.close()
        assert not any(result.error_code for result in answer.results), answer
        while not all(self._has_rules(node_id, len(granted)) for node_id in self.running):
            await asyncio.sleep(LOOK_S)

    def _has_rules(self, node_id: int, count: int) -> bool:
        acls = self.brokers[node_id].broker.dispatcher.acls
        assert acls is not None, "a secured cluster has them"
        return len(acls.authorizer.acls) >= count

    def is_current_leader(self, name: TopicPartition, node_id: int) -> bool:
        """Whether a broker leads, and no other does without its knowing: one that does not know tells what was so."""
        if node_id not in self.running:
            return False
        partition, state = self.brokers[node_id].broker.replicas.get(name), self.states().get(name)
        return (
            partition is not None
            and partition.is_leader
            and state is not None
            and (state.leader, state.leader_epoch) == (node_id, partition.leader_epoch)
        )

    def state_known(self, name: TopicPartition, rng: Random) -> PartitionState | None:
        """The state of a partition as some broker knows it."""
        return self.brokers[rng.choice(self.running)].broker.image.partition(name) if self.running else None


def shown(value: bytes | None) -> str:
    """The beginning of a value, which is its name."""
    return "nothing" if value is None else repr(value[:VALUE_BYTES_SHOWN])


def values_of(data: Buffer) -> dict[int, bytes]:
    """The records of some batches by offset."""
    view, found = memoryview(data), {}
    position = 0
    for header in batch.scan(view).headers:
        if not header.is_control:
            for record in batch.iterate(view, position):
                assert record.value is not None
                found[record.offset] = bytes(record.value)
        position += header.size_bytes
    return found


def contents(partition: Partition) -> dict[int, bytes]:
    """The records of a replica by offset."""
    found = {}
    for _, data in batches_of(partition.log):
        found.update(values_of(data))
    return found
