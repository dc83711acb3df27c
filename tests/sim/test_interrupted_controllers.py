"""A controller that loses its office behind any one of its writes: the next one, and the brokers, end what it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.cluster import nodes
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.store.api import Delete
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

CREATE, DELETE, EXTEND, MOVE, PRODUCE = 5, 6, 3, 1, 9
NAME = TopicPartition("t", 0)
CONTROLLER, STAYS, GOES, COMES = 1, 2, 3, 4
TIMEOUT_MS = 60_000

Operation = Callable[[SimulatedCluster], Awaitable[None]]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def move(cluster: SimulatedCluster, replicas: list[int] | None) -> None:
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    topics = [ReassignableTopic(name=NAME.topic, partitions=partitions)]
    await cluster.ask_controller(AlterPartitionReassignmentsRequest(topics=topics), MOVE)


async def a_follower_moves(cluster: SimulatedCluster) -> None:
    await move(cluster, [STAYS, COMES])


async def the_leader_moves(cluster: SimulatedCluster) -> None:
    await move(cluster, [GOES, COMES])


async def a_move_is_cancelled(cluster: SimulatedCluster) -> None:
    cluster.world.network.cut(f"broker-{STAYS}", f"broker-{COMES}")  # it never catches up
    await move(cluster, [STAYS, COMES])
    await move(cluster, None)


async def a_move_goes_elsewhere(cluster: SimulatedCluster) -> None:
    cluster.world.network.cut(f"broker-{STAYS}", f"broker-{COMES}")
    await move(cluster, [STAYS, COMES])
    await move(cluster, [STAYS, CONTROLLER])


async def the_topic_is_deleted(cluster: SimulatedCluster) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=NAME.topic, topic_id=ZERO_UUID)], timeout_ms=1)
    await cluster.ask_controller(request, DELETE)


async def a_moving_topic_is_deleted(cluster: SimulatedCluster) -> None:
    await move(cluster, [STAYS, COMES])
    await the_topic_is_deleted(cluster)


async def the_topic_grows(cluster: SimulatedCluster) -> None:
    assignments = [CreatePartitionsAssignment(broker_ids=[COMES, CONTROLLER])]
    topic = CreatePartitionsTopic(name=NAME.topic, count=2, assignments=assignments)
    await cluster.ask_controller(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False), EXTEND)


# What there may be in the end, by what was done: the replicas of each partition. Where the request itself was lost,
# nothing has changed.
FIRST = [{STAYS, GOES}]
OUTCOMES: dict[Operation, list[list[set[int]]]] = {
    a_follower_moves: [FIRST, [{STAYS, COMES}]],
    the_leader_moves: [FIRST, [{GOES, COMES}]],
    a_move_is_cancelled: [FIRST, [{STAYS, COMES}]],
    a_move_goes_elsewhere: [FIRST, [{STAYS, COMES}], [{STAYS, CONTROLLER}]],
    the_topic_is_deleted: [FIRST, []],
    a_moving_topic_is_deleted: [FIRST, [], [{STAYS, COMES}]],
    the_topic_grows: [FIRST, [{STAYS, GOES}, {COMES, CONTROLLER}]],
}
FAULTS = ("is deposed", "loses its session", "dies", "is deposed, and a broker loses its session")


async def interrupted(cluster: SimulatedCluster, operation: Operation, commits: int, fault: str) -> bool:
    """Whether the controller got as far as that many commits."""
    ensemble = cluster.ensemble
    await cluster.start()
    await until(lambda: all(len(broker.broker.image.brokers) == 4 for broker in cluster.brokers.values()))
    request = create_topic(NAME.topic, -1, -1, assignments={0: [STAYS, GOES]})
    response = await cluster.asked(CONTROLLER, request, CREATE, timeout_s=60)
    assert response.topics[0].error_code == ErrorCode.NONE
    await until(lambda: len(cluster.replicas(NAME)) == 2 and cluster.is_current_leader(NAME, STAYS))
    batch = produce(NAME.topic, one_batch(b"x"))
    response = await cluster.asked(STAYS, batch, PRODUCE, timeout_s=30)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        match fault:
            case "dies":
                tasks.append(loop.create_task(cluster.crash(CONTROLLER, power_loss=False)))
            case "loses its session":
                ensemble.end_session(session_of(cluster, CONTROLLER))
            case _:
                ensemble.commit(0, (Delete(nodes.CONTROLLER),))
        if "a broker" in fault:
            ensemble.end_session(session_of(cluster, GOES))

    ensemble.interrupt_after(session_of(cluster, CONTROLLER), commits, interrupt)
    await operation(cluster)
    await asyncio.sleep(5)
    was_interrupted = ensemble.was_interrupted()
    await cluster.settle(is_quiet=True)
    await until(lambda: not strays(cluster))
    found = [set(state.replicas) for name, state in sorted(cluster.states().items()) if name.topic == NAME.topic]
    assert found in OUTCOMES[operation]
    cluster.check()
    await cluster.close()
    return was_interrupted


def session_of(cluster: SimulatedCluster, node_id: int) -> int:
    entry = cluster.ensemble.tree.entry(nodes.broker_path(node_id))
    assert entry is not None
    return entry.owner


def strays(cluster: SimulatedCluster) -> list[tuple[int, TopicPartition]]:
    """Logs that are where their partitions are not."""
    states = cluster.states()
    return [
        (node_id, log.name)
        for node_id in cluster.running
        for log in cluster.brokers[node_id].broker.logs
        if log.name not in states or node_id not in states[log.name].replicas
    ]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OUTCOMES, ids=lambda operation: operation.__name__)
def test_what_a_controller_began_is_ended_and_no_replica_is_left_where_it_does_not_belong(
    operation: Operation, fault: str
) -> None:
    commits = 0
    was_interrupted = True
    while was_interrupted:
        commits += 1
        world = World(commits)
        cluster = SimulatedCluster(world, 4, {"min.insync.replicas": "1"})
        was_interrupted = world.run(
            interrupted(cluster, operation, commits, fault), seconds=10_000, replay=f"commit {commits}"
        )
    assert commits > 1, "the controller wrote nothing"
