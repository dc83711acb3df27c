"""A cluster attacked at its weak points, on virtual time: what must hold is said by each test."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping

import pytest

from ottla.cluster import nodes
from ottla.cluster.image import NO_LEADER, BrokerEndpoint, BrokerNode
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.store.api import Create, Delete, Put
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster, contents
from ottla.testing.world import World

CREATE, DELETE, MOVE, PRODUCE = 5, 6, 1, 9
NAME = TopicPartition("t", 0)
HOUR_MS = 3_600_000

Scenario = Callable[[SimulatedCluster], Awaitable[None]]


def play(scenario: Scenario, *, seed: int = 1, settings: Mapping[str, str] | None = None) -> None:
    """Three brokers, of which the first is the controller."""
    world = World(seed)
    cluster = SimulatedCluster(world, 3, settings)

    async def main() -> None:
        await cluster.start()
        await until(lambda: all(len(cluster.brokers[each].broker.image.brokers) == 3 for each in cluster.brokers))
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=3000)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def create(cluster: SimulatedCluster, assignments: Mapping[int, list[int]]) -> None:
    request = create_topic(NAME.topic, -1, -1, assignments=assignments)
    response = await cluster.asked(1, request, CREATE, timeout_s=60)
    assert response.topics[0].error_code == ErrorCode.NONE
    await until(
        lambda: (
            [len(cluster.replicas(TopicPartition(NAME.topic, index))) for index in assignments]
            == [len(replicas) for replicas in assignments.values()]
        )
    )


async def write(cluster: SimulatedCluster, node_id: int, value: bytes) -> int:
    response = await cluster.asked(node_id, produce(NAME.topic, one_batch(value)), PRODUCE, timeout_s=30)
    return int(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("deleted", [1, 10, 39])
def test_a_topic_whose_states_are_half_deleted_when_the_controller_dies_gets_no_new_ones(deleted: int) -> None:
    """The next controller would elect leaders for them, and clients could write to a topic that goes."""
    count = 40

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {index: [1 + index % 3, 1 + (index + 1) % 3] for index in range(count)})
        paths = {nodes.state_path(NAME.topic, index) for index in range(count)}
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=NAME.topic, topic_id=ZERO_UUID)], timeout_ms=1)
        await cluster.asked(1, request, DELETE, timeout_s=60)
        tree = cluster.ensemble.tree
        while sum(tree.entry(path) is not None for path in paths) > count - deleted:
            await asyncio.sleep(0.0002)
        first = len(cluster.ensemble.commits)
        assert tree.entry(nodes.topic_path(NAME.topic)) is not None
        await cluster.crash(1, power_loss=False)
        cluster.begin_start(1)
        await until(lambda: tree.entry(nodes.deletion_path(NAME.topic)) is None)
        assert tree.entry(nodes.topic_path(NAME.topic)) is None
        created = {
            path
            for commit in cluster.ensemble.commits[first:]
            for path, entry in commit.changes.items()
            if path in paths and entry is not None
        }
        assert created == set()
        await until(lambda: len(cluster.running) == 3)
        for broker in cluster.brokers.values():
            await until(lambda: NAME.topic not in broker.broker.image.topics)  # noqa: B023 (called at once)
            await until(lambda: not list(broker.broker.logs))  # noqa: B023 (called at once)

    play(scenario)


def test_a_move_is_cancelled_while_its_new_broker_is_down_and_leaves_nothing_behind() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [1, 2]})
        assert await write(cluster, 1, b"x") == ErrorCode.NONE
        await cluster.crash(3, power_loss=False)

        async def ask(replicas: list[int] | None) -> int:
            partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
            topics = [ReassignableTopic(name=NAME.topic, partitions=partitions)]
            response = await cluster.asked(1, AlterPartitionReassignmentsRequest(topics=topics), MOVE)
            return int(response.responses[0].partitions[0].error_code)

        assert await ask([1, 3]) == ErrorCode.NONE  # its session is not over
        await until(lambda: cluster.states()[NAME].replicas == (1, 3, 2))
        await until(lambda: 3 not in cluster.brokers[1].broker.image.brokers)
        assert await ask(None) == ErrorCode.NONE
        await until(lambda: {*cluster.states()[NAME].replicas} == {*cluster.states()[NAME].isr} == {1, 2})
        cluster.begin_start(3)
        await until(lambda: 3 in cluster.running)
        await until(lambda: not list(cluster.brokers[3].broker.logs))
        assert await write(cluster, 1, b"y") == ErrorCode.NONE

    play(scenario)


def test_writes_are_rejected_while_fewer_are_in_sync_than_wanted_and_go_on_by_themselves() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [1, 2, 3]})
        await cluster.crash(3, power_loss=False)
        await until(lambda: 3 not in cluster.states()[NAME].isr)
        await until(lambda: len(cluster.brokers[1].broker.replicas.find(*NAME).leader.isr) == 2)
        assert await write(cluster, 1, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.begin_start(3)
        await until(lambda: 3 in cluster.states()[NAME].isr)
        await until(lambda: len(cluster.brokers[1].broker.replicas.find(*NAME).leader.isr) == 3)
        assert await write(cluster, 1, b"x") == ErrorCode.NONE

    play(scenario, settings={"min.insync.replicas": "3"})


def test_a_leader_whose_clock_is_an_hour_ahead_keeps_its_followers_and_its_session() -> None:
    """Lag and sessions are measured by time that does not jump."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2, 1, 3]})
        epoch = cluster.states()[NAME].leader_epoch
        for skew_ms in (HOUR_MS, -HOUR_MS, 0):
            cluster.brokers[2].clock.skew_ms = skew_ms
            assert await write(cluster, 2, b"x") == ErrorCode.NONE
            await asyncio.sleep(10)
        state = cluster.states()[NAME]
        assert (state.leader, state.leader_epoch, {*state.isr}) == (2, epoch, {1, 2, 3})

    play(scenario)


def test_a_broker_that_came_back_between_two_controllers_does_not_go_on_in_its_old_epoch() -> None:
    """Nobody saw it leave. Its registration (czxid) is newer than the state (mzxid) in which it was in sync."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2, 3, 1]})
        assert await write(cluster, 2, b"x") == ErrorCode.NONE
        before = cluster.states()[NAME]
        sessions = {node_id: cluster.brokers[node_id].broker.store.session.session_id for node_id in (1, 2, 3)}
        for other in (1, 3):  # not for long: their sessions go on, and they see nothing of what happens to broker 2
            cluster.ensemble.cut(cluster.brokers[other].name)
        await cluster.crash(2, power_loss=True)
        cluster.ensemble.end_session(sessions[2])
        cluster.begin_start(2)
        tree = cluster.ensemble.tree
        await until(lambda: tree.entry(nodes.broker_path(2)) is not None)
        operator = cluster.ensemble.connect("an operator")
        await operator.commit(Delete(nodes.CONTROLLER))
        await until(lambda: tree.entry(nodes.CONTROLLER) is not None)
        for other in (1, 3):
            cluster.ensemble.heal(cluster.brokers[other].name)
        await until(lambda: len(cluster.running) == 3)
        member = cluster.brokers[2].broker.cluster
        assert member is not None
        assert member.controller.is_active
        await cluster.settle(is_quiet=True)
        assert [cluster.brokers[node_id].broker.store.session.session_id for node_id in (1, 3)] == [
            sessions[1],
            sessions[3],
        ]
        after = cluster.states()[NAME]
        assert after.leader_epoch > before.leader_epoch
        assert await write(cluster, after.leader, b"y") == ErrorCode.NONE
        await cluster.settle(is_quiet=True)
        cluster.compare(NAME, committed_only=False)
        assert list(contents(cluster.replicas(NAME)[0]).values()) == [b"x", b"y"], "x was acknowledged"
        await operator.close()

    play(scenario)


def test_a_log_directory_fails_and_only_its_partitions_are_led_elsewhere() -> None:
    """The broker reports it in the store; the controller asks it about all its replicas and learns which are lost."""
    both = {"log.dirs": "/a,/b"}

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "/b" in message
        await create(cluster, {index: [2, 1, 3] for index in range(4)})
        failing = cluster.brokers[2]
        lost = {name.partition for name in failing.broker.logs.directories[1].logs}
        assert 0 < len(lost) < 4
        failing.disk.fail("/b/*", "write", errno.EIO)
        index = min(lost)
        request = produce(NAME.topic, one_batch(b"x"), partition=index)
        response = await cluster.asked(2, request, PRODUCE)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

        def states() -> list[tuple[bool, bool]]:
            """For each partition: whether broker 2 leads it and is in sync."""
            found = (cluster.states()[TopicPartition(NAME.topic, index)] for index in range(4))
            return [(state.leader == 2, 2 in state.isr) for state in found]

        await until(lambda: states() == [(each not in lost, each not in lost) for each in range(4)])
        leader = cluster.states()[TopicPartition(NAME.topic, index)].leader
        await until(lambda: cluster.is_current_leader(TopicPartition(NAME.topic, index), leader))
        response = await cluster.asked(leader, request, PRODUCE)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        failing.disk.heal()
        await cluster.crash(2, power_loss=False)
        cluster.begin_start(2)
        await until(lambda: all(is_in_sync for _, is_in_sync in states()))

    play(scenario, settings=both)


def test_nodes_that_somebody_damaged_leave_no_cluster_without_a_controller() -> None:
    """Written by hand or by a broken tool: each would end the term of every controller that reads it."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "metadata node" in message
        await create(cluster, {0: [1, 2, 3]})
        for path in (
            nodes.topic_path("damaged"),
            nodes.broker_path(77),
            nodes.config_path("topics", NAME.topic),
            nodes.REASSIGNMENTS,
            nodes.PREFERRED_ELECTIONS,
            f"{nodes.ISR_CHANGES}/isr_change_0000000007",
            f"{nodes.LOG_DIR_EVENTS}/log_dir_event_0000000007",
        ):
            there = cluster.ensemble.tree.entry(path) is not None
            cluster.ensemble.commit(0, (Put(path, b"{") if there else Create(path, b"{"),))
        change = nodes.encode_config_change(f"topics/{NAME.topic}")
        cluster.ensemble.commit(0, (Create(f"{nodes.CONFIG_CHANGES}/config_change_", change, sequential=True),))
        tree = cluster.ensemble.tree
        await until(lambda: tree.entry(nodes.REASSIGNMENTS) is None)
        await until(lambda: tree.entry(nodes.PREFERRED_ELECTIONS) is None)
        await cluster.crash(1, power_loss=False)
        image = lambda: cluster.brokers[2].broker.image  # noqa: E731
        await until(lambda: image().controller_id != 1 and image().topics[NAME.topic].partitions[0].leader != 1)
        cluster.ensemble.commit(0, (Delete(nodes.topic_path("damaged")),))
        leader = cluster.states()[NAME].leader
        await until(lambda: cluster.is_current_leader(NAME, leader))
        assert await write(cluster, leader, b"x") == ErrorCode.NONE
        cluster.begin_start(1)
        await until(lambda: 1 in cluster.running and 1 in cluster.states()[NAME].isr)

    play(scenario)


@pytest.mark.parametrize(
    "damage",
    [
        {nodes.topic_path("damaged"): b'{"version":1,"partitions":{"0":[1,99999999999]}}'},
        {nodes.topic_path("damaged"): b'{"version":1,"partitions":{"0":[]}}'},
        {nodes.topic_path("damaged"): b'{"version":1,"partitions":{"0":["1","2"]}}'},
        {nodes.broker_path(77): b'{"version":5,"endpoints":["PLAINTEXT://host:9092"],"rack":5}'},
        {nodes.broker_path(77): b'{"version":5,"endpoints":["PLAINTEXT://host:999999"]}'},
        {nodes.state_path("t", 0): b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":["a",null]}'},
    ],
    ids=str,
)
def test_values_that_no_request_can_hold_hold_up_nobody(damage: Mapping[str, bytes]) -> None:
    """Readable, and wrong: neither the present controller nor the next one is in the way of other topics."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "metadata node" in message
        await create(cluster, {0: [1, 2, 3]})
        for path, data in damage.items():
            there = cluster.ensemble.tree.entry(path) is not None
            cluster.ensemble.commit(0, (Put(path, data) if there else Create(path, data),))
        for name in ("u", "v"):
            await asyncio.sleep(10.0)  # preferred leaders are looked for meanwhile
            await until(lambda: cluster.ensemble.tree.entry(nodes.CONTROLLER) is not None)
            assert await cluster.try_create_topic(name, 1)
            for each in cluster.brokers.values():
                await until(lambda: name in each.broker.image.topics)  # noqa: B023 (called at once)
            cluster.ensemble.commit(0, (Delete(nodes.CONTROLLER),))

    play(scenario)


@pytest.mark.parametrize("damage", ["damaged", "gone"])
def test_a_state_that_cannot_be_changed_holds_up_no_other_partition(damage: str) -> None:
    """The controller that knew it in time wants to change it: it says so, and goes on."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "metadata node" in message
        await create(cluster, {0: [2, 3], 1: [2, 3]})
        path = nodes.state_path(NAME.topic, 0)
        entry = cluster.ensemble.tree.entry(path)
        assert entry is not None
        cluster.ensemble.commit(0, (Put(path, b"{") if damage == "damaged" else Delete(path),))
        await cluster.crash(2, power_loss=False)
        other = TopicPartition(NAME.topic, 1)
        await until(lambda: (known := cluster.brokers[3].broker.replicas.get(other)) is not None and known.is_leader)
        created = await cluster.asked(1, create_topic("u", 1, 1), CREATE, timeout_s=60)
        assert created.topics[0].error_code == ErrorCode.NONE
        cluster.ensemble.commit(0, (Put(path, entry.data) if damage == "damaged" else Create(path, entry.data),))
        cluster.begin_start(2)
        await until(lambda: 2 in cluster.running)
        await until(lambda: cluster.is_current_leader(NAME, cluster.states()[NAME].leader))
        assert await write(cluster, cluster.states()[NAME].leader, b"x") == ErrorCode.NONE

    play(scenario)


def test_leaders_are_elected_between_the_moves_of_a_large_request() -> None:
    """A broker that fails is not behind all of them."""
    count = 300

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {index: [1, 2] for index in range(count)})
        response = await cluster.asked(1, create_topic("u", -1, -1, assignments={0: [3, 2]}), CREATE, timeout_s=60)
        assert response.topics[0].error_code == ErrorCode.NONE
        partitions = [ReassignablePartition(partition_index=index, replicas=[2, 1]) for index in range(count)]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=NAME.topic, partitions=partitions)], timeout_ms=300_000
        )
        cluster.ensemble.conditions.message_s_max = 0.05
        moving = asyncio.ensure_future(cluster.asked(1, request, MOVE, timeout_s=300))
        await until(lambda: cluster.states()[TopicPartition(NAME.topic, 5)].replicas == (2, 1))
        await cluster.crash(3, power_loss=False)
        other = TopicPartition("u", 0)
        await until(lambda: cluster.states()[other].leader == 2)
        assert not moving.done()
        answer = await moving
        assert [each.error_code for topic in answer.responses for each in topic.partitions] == [0] * count
        await until(lambda: {state.replicas for name, state in cluster.states().items() if name != other} == {(2, 1)})

    play(scenario)


def test_a_state_that_belongs_to_another_user_of_zookeeper_holds_up_no_other_partition() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "ZooKeeper does not allow it" in message
        await create(cluster, {0: [2, 3], 1: [2, 3]})
        cluster.ensemble.foreign.add(nodes.state_path(NAME.topic, 0))
        await cluster.crash(2, power_loss=False)
        other = TopicPartition(NAME.topic, 1)
        await until(lambda: (known := cluster.brokers[3].broker.replicas.get(other)) is not None and known.is_leader)
        assert cluster.states()[NAME].leader == 2, "nobody may write it"
        created = await cluster.asked(1, create_topic("u", 1, 1), CREATE, timeout_s=60)
        assert created.topics[0].error_code == ErrorCode.NONE
        cluster.ensemble.foreign.clear()
        cluster.begin_start(2)
        await until(lambda: 2 in cluster.running)
        await until(lambda: cluster.is_current_leader(NAME, cluster.states()[NAME].leader))
        assert await write(cluster, cluster.states()[NAME].leader, b"x") == ErrorCode.NONE

    play(scenario)


def test_an_election_that_belongs_to_another_user_of_zookeeper_is_reported_and_held_later() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        complaints: list[str] = []

        def excuse(message: str) -> bool:
            complaints.append(message)
            return "this broker cannot be the controller" in message

        cluster.world.excuses = excuse
        cluster.ensemble.foreign.add(nodes.CONTROLLER_EPOCH)
        await cluster.crash(1, power_loss=False)
        await until(lambda: sum("cannot be the controller" in each for each in complaints) == 2)
        await asyncio.sleep(5)
        assert len(complaints) < 10
        cluster.ensemble.foreign.clear()
        cluster.begin_start(1)
        await until(lambda: cluster.brokers[1].is_running)
        assert (await cluster.asked(1, create_topic("u", 1, 1), CREATE, timeout_s=60)).topics[0].error_code == 0

    play(scenario)


def test_an_epoch_of_the_controller_that_cannot_be_read_is_waited_for() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "metadata node /controller_epoch" in message
        await create(cluster, {0: [1, 2, 3]})
        cluster.ensemble.commit(0, (Put(nodes.CONTROLLER_EPOCH, b"x"), Delete(nodes.CONTROLLER)))
        await asyncio.sleep(60.0)
        assert cluster.ensemble.tree.entry(nodes.CONTROLLER) is None
        cluster.ensemble.commit(0, (Put(nodes.CONTROLLER_EPOCH, b"7"),))
        await until(lambda: cluster.ensemble.tree.entry(nodes.CONTROLLER))
        entry = cluster.ensemble.tree.entry(nodes.CONTROLLER_EPOCH)
        assert entry is not None
        assert entry.data == b"8"

    play(scenario)


def test_a_broker_whose_id_another_one_had_for_a_while_registers_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "broker.id 2 is in use" in message
        name, path = cluster.brokers[2].name, nodes.broker_path(2)
        cluster.ensemble.cut(name)
        await until(lambda: cluster.ensemble.tree.entry(path) is None)
        other = BrokerNode(2, {"PLAINTEXT": BrokerEndpoint("elsewhere", 9092, "PLAINTEXT")})
        cluster.ensemble.commit(0, (Create(path, nodes.encode_broker(other, 0)),))
        cluster.ensemble.heal(name)
        await asyncio.sleep(20.0)
        cluster.ensemble.commit(0, (Delete(path),))
        await until(lambda: cluster.ensemble.tree.entry(path))
        entry = cluster.ensemble.tree.entry(path)
        assert entry is not None
        assert entry.owner
        await until(lambda: all(2 in each.broker.image.brokers for each in cluster.brokers.values()))

    play(scenario)


@pytest.mark.parametrize("entity", ["topics/t", "brokers/<default>"])
def test_an_offline_partition_is_led_as_soon_as_an_unclean_election_is_allowed(entity: str) -> None:
    """By the topic's own setting or the default of all brokers; what only the lost replica had is lost, and no more."""

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.world.excuses = lambda message: "unclean election" in message
        await create(cluster, {0: [2, 3], 1: [1, 3]})
        assert await write(cluster, 2, b"everywhere") == ErrorCode.NONE
        await cluster.crash(3, power_loss=False)
        await until(lambda: cluster.states()[NAME].isr == (2,))
        assert await write(cluster, 2, b"only there") == ErrorCode.NONE
        await cluster.crash(2, power_loss=False)
        await until(lambda: cluster.states()[NAME].leader == NO_LEADER)
        cluster.begin_start(3)
        await until(lambda: 3 in cluster.running)
        await asyncio.sleep(60.0)
        assert cluster.states()[NAME].leader == NO_LEADER
        path = f"{nodes.CONFIGS}/{entity}"
        data = nodes.encode_config({"unclean.leader.election.enable": "true"})
        there = cluster.ensemble.tree.entry(path) is not None
        cluster.ensemble.commit(0, (Put(path, data) if there else Create(path, data),))
        change = nodes.encode_config_change(entity)
        cluster.ensemble.commit(0, (Create(f"{nodes.CONFIG_CHANGES}/config_change_", change, sequential=True),))
        await until(lambda: cluster.is_current_leader(NAME, 3))
        assert cluster.states()[NAME].isr == (3,)
        assert await write(cluster, 3, b"later") == ErrorCode.NONE
        cluster.begin_start(2)
        await until(lambda: set(cluster.states()[NAME].isr) == {2, 3})
        for replica in cluster.replicas(NAME):
            assert list(contents(replica).values()) == [b"everywhere", b"later"]

    play(scenario, settings={"min.insync.replicas": "1"})


def test_a_topic_is_gone_for_clients_while_one_of_its_brokers_is_away_and_forgotten_when_it_is_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2, 1, 3]})
        await cluster.crash(3, power_loss=False)
        await until(lambda: 3 not in cluster.states()[NAME].isr)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=NAME.topic, topic_id=ZERO_UUID)], timeout_ms=1)
        await cluster.asked(1, request, DELETE, timeout_s=60)
        for node_id in (1, 2):
            broker = cluster.brokers[node_id].broker
            await until(lambda: NAME.topic not in broker.image.topics)  # noqa: B023 (called at once)
            await until(lambda: not list(broker.logs))  # noqa: B023 (called at once)
        assert cluster.ensemble.tree.entry(nodes.topic_path(NAME.topic)) is not None
        cluster.begin_start(3)
        await until(lambda: cluster.ensemble.tree.entry(nodes.deletion_path(NAME.topic)) is None)
        assert cluster.ensemble.tree.entry(nodes.topic_path(NAME.topic)) is None
        await until(lambda: not list(cluster.brokers[3].broker.logs))

    play(scenario)


def test_a_move_cannot_be_turned_away_from_the_only_replica_that_has_everything() -> None:
    """It would be deleted there, and with it all that was acknowledged since the others went."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2]})
        await cluster.crash(3, power_loss=False)

        async def ask(replicas: list[int]) -> int:
            partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
            topics = [ReassignableTopic(name=NAME.topic, partitions=partitions)]
            response = await cluster.asked(1, AlterPartitionReassignmentsRequest(topics=topics), MOVE)
            return int(response.responses[0].partitions[0].error_code)

        assert await ask([1, 3]) == ErrorCode.NONE  # the session of 3 is not over: it never catches up
        await until(lambda: 1 in cluster.states()[NAME].isr)
        await cluster.crash(2, power_loss=False)
        await until(lambda: cluster.states()[NAME].leader == 1)
        await until(lambda: cluster.states()[NAME].isr == (1,))
        assert await ask([2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert cluster.states()[NAME].leader == 1

    play(scenario, settings={"min.insync.replicas": "1"})


@pytest.mark.parametrize("is_held", [False, True])
def test_a_broker_that_missed_the_deletion_of_a_topic_does_not_go_on_showing_it(is_held: bool) -> None:
    """Its session ended meanwhile, and what the controller had to say to it was dropped with its registration."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2, 3 if is_held else 1]})
        await until(lambda: NAME.topic in cluster.brokers[3].broker.image.topics)
        cluster.ensemble.cut(cluster.brokers[3].name)
        await until(lambda: 3 not in cluster.brokers[1].broker.image.brokers)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=NAME.topic, topic_id=ZERO_UUID)], timeout_ms=1)
        await cluster.asked(1, request, DELETE, timeout_s=60)
        await until(lambda: NAME.topic not in cluster.brokers[1].broker.image.topics)
        if not is_held:  # else it is forgotten when broker 3 is back
            await until(lambda: cluster.ensemble.tree.entry(nodes.deletion_path(NAME.topic)) is None)
        assert NAME.topic in cluster.brokers[3].broker.image.topics
        cluster.ensemble.heal(cluster.brokers[3].name)
        await until(lambda: NAME.topic not in cluster.brokers[3].broker.image.topics)
        await until(lambda: cluster.ensemble.tree.entry(nodes.deletion_path(NAME.topic)) is None)
        assert not list(cluster.brokers[3].broker.logs)

    play(scenario)


def test_the_last_brokers_of_a_cluster_that_is_stopped_wait_for_nobody() -> None:
    """Their followers are gone, so nobody will ever lead instead, however often they ask."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {0: [2, 3]})
        await cluster.stop(2)
        await until(lambda: cluster.is_current_leader(NAME, 3) and 2 not in cluster.brokers[3].broker.image.brokers)
        before = cluster.world.loop.time()
        await cluster.stop(3)
        assert cluster.world.loop.time() - before < 10

    play(scenario, settings={"controlled.shutdown.retry.backoff.ms": "60000"})


def test_a_replica_that_lost_its_disk_does_not_join_by_a_proposal_from_before() -> None:
    """The proposal is on its way to the controller for so long that the replica is back without its records."""

    async def scenario(cluster: SimulatedCluster) -> None:
        network, leader, controller, lost = cluster.world.network, 2, 1, 3
        await create(cluster, {0: [leader, lost]})
        await cluster.crash(lost, power_loss=False)
        await until(lambda: cluster.states()[NAME].isr == (leader,))
        for number in range(10):
            assert await write(cluster, leader, b"%d" % number) == ErrorCode.NONE
        cluster.begin_start(lost)
        led = cluster.brokers[leader].broker.replicas.find(*NAME)
        while led.leader.proposal is None:
            await asyncio.sleep(0.0001)
        assert led.leader.proposal.isr == (leader, lost)
        network.cut(*(cluster.brokers[each].name for each in (leader, controller)))
        await asyncio.sleep(0.001)
        assert cluster.states()[NAME].isr == (leader,), "the controller has not read the proposal"
        await cluster.crash(lost, power_loss=False)
        cluster.brokers[lost].disk = type(cluster.brokers[lost].disk)()
        network.cut(*(cluster.brokers[each].name for each in (leader, lost)))
        await until(lambda: lost not in cluster.brokers[controller].broker.image.brokers)
        cluster.begin_start(lost)
        await until(lambda: lost in cluster.brokers[controller].broker.image.brokers)
        network.heal(*(cluster.brokers[each].name for each in (leader, controller)))
        await asyncio.sleep(5)
        assert cluster.states()[NAME].isr == (leader,)
        await cluster.settle(is_quiet=True)
        assert cluster.states()[NAME].isr == (leader, lost)
        cluster.compare(NAME, committed_only=False)
        assert len(contents(cluster.brokers[lost].broker.replicas.find(*NAME))) == 10

    play(scenario, settings={"min.insync.replicas": "1"})


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_broker_whose_server_is_behind_has_the_settings_of_a_new_topic(behind: int) -> None:
    """The controller may tell it of the topic before its own server has heard of that. No notification follows."""
    settings = {"retention.bytes": "1000000", "min.insync.replicas": "1"}

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.ensemble.lag_s_max_of[cluster.brokers[behind].name] = 5.0
        for name, config in ((NAME.topic, {}), (NAME.topic, settings)):  # the second one is not the first one
            while not await cluster.try_create_topic(name, 1, config):
                await asyncio.sleep(0.01)
            await until(lambda: len(cluster.replicas(NAME)) == 3)
            found = {replica.log.config.retention_bytes for replica in cluster.replicas(NAME)}
            assert found == {int(config.get("retention.bytes", -1))}
            if not config:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1)
                await cluster.ask_controller(request, DELETE)
                await until(lambda: not cluster.replicas(NAME))

    for seed in range(5):
        play(scenario, seed=seed)


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.6, 1.0])
def test_a_setting_that_changes_while_a_broker_opens_its_logs_holds_there(after_s: float) -> None:
    """Its logs are open before the controller says that it has these partitions, and then nobody tells them."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create(cluster, {index: [1, 2, 3] for index in range(4)})
        names = [TopicPartition(NAME.topic, index) for index in range(4)]
        await cluster.crash(3, power_loss=False)
        await until(lambda: cluster.ensemble.tree.entry(nodes.broker_path(3)) is None)
        cluster.brokers[3].disk_delay_s = 0.5
        cluster.begin_start(3)
        await asyncio.sleep(after_s)
        path = nodes.config_path("topics", NAME.topic)
        data = nodes.encode_config({"retention.bytes": "1000000"})
        there = cluster.ensemble.tree.entry(path) is not None
        notification = Create(
            f"{nodes.CONFIG_CHANGES}/config_change_",
            nodes.encode_config_change(f"topics/{NAME.topic}"),
            sequential=True,
        )
        cluster.ensemble.commit(0, (Put(path, data) if there else Create(path, data), notification))
        await until(lambda: all({*cluster.states()[name].isr} == {1, 2, 3} for name in names))
        await asyncio.sleep(2.0)
        for name in names:
            assert {replica.log.config.retention_bytes for replica in cluster.replicas(name)} == {1_000_000}

    play(scenario)
