"""Whom a broker names that does not lead a partition: whoever its own replica was told to follow, at once.

The controller tells replicas of their leader before it tells all brokers; who writes in between is sent to the new
leader and not back to the broker that has just lost the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import ReplicaState
from ottla.protocol.messages.replication import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.wire_client import WireClient
from ottla.testing.world import PORT, World

NAME = TopicPartition("t", 0)
BEFORE, AFTER = 2, 3
CREATE, ROLES = 5, 6
Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    """Three brokers, and a partition that broker 2 leads."""
    world = World(1)
    cluster = SimulatedCluster(world, 3)

    async def main() -> None:
        await cluster.start()
        async with asyncio.timeout(60):
            while not all(len(broker.broker.image.brokers) == 3 for broker in cluster.brokers.values()):
                await asyncio.sleep(0.05)
        assert cluster.brokers[1].broker.image.controller_id == 1
        await cluster.asked(1, create_topic("t", -1, -1, assignments={0: (BEFORE, AFTER, 1)}), CREATE, timeout_s=30)
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=3000)


async def tell(cluster: SimulatedCluster, leader: int, epoch: int = 1) -> None:
    """As the controller tells a replica, before it tells all brokers."""
    broker = cluster.brokers[BEFORE].broker
    assert broker.cluster is not None
    state, controller_epoch = cluster.states()[NAME], broker.cluster.control.controller_epoch
    partition = LeaderAndIsrPartitionState(
        topic_name="t",
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=epoch,
        isr=list(state.isr),
        partition_epoch=state.version + epoch,
        replicas=list(state.replicas),
        adding_replicas=[],
        removing_replicas=[],
        is_new=False,
        leader_recovery_state=0,
    )
    topic_id = broker.image.topics["t"].topic_id
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[partition])
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=broker.cluster.membership.epoch,
        type=0,
        topic_states=[topic],
        live_leaders=[],
    )
    assert not (await cluster.asked(BEFORE, request, ROLES)).error_code
    image = broker.image.partition(NAME)
    assert image is not None
    assert (image.leader, image.leader_epoch) == (BEFORE, 0), "nobody has told all brokers yet"


def named(answer: Any, partition: Any, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> tuple[Any, ...]:
    """Who leads and since when, and where that is."""
    assert partition.error_code == code, partition
    leader = partition.current_leader
    where = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
    return (None if leader is None else (leader.leader_id, leader.leader_epoch)), where


NEW_LEADER = (AFTER, 1), [(AFTER, f"broker-{AFTER}", PORT)]
NOBODY: tuple[Any, ...] = (None, [])


async def produced(client: WireClient, version: int, *, acks: int = 1) -> Any:
    answer = await client.call(produce("t", one_batch(b"x"), acks=acks), version)
    return answer, answer.responses[0].partition_responses[0]


@pytest.mark.parametrize(("version", "expected"), [(9, NOBODY), (10, NEW_LEADER), (11, NEW_LEADER)])
@pytest.mark.parametrize("repeats", [0, 2])
def test_a_producer_is_sent_to_whom_the_replica_follows(version: int, expected: Any, repeats: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = await cluster.connected(BEFORE)
        for _ in range(repeats):
            _, partition = await produced(client, version)
            assert not partition.error_code
        await tell(cluster, AFTER)
        assert named(*await produced(client, version)) == expected
        client.close()

    play(scenario)


@pytest.mark.parametrize("repeats", [0, 2])
def test_a_producer_that_waits_when_the_partition_is_lost_is_sent_to_the_new_leader(repeats: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = await cluster.connected(BEFORE)
        for _ in range(repeats):
            _, partition = await produced(client, 11, acks=-1)
            assert not partition.error_code
        for other in (1, AFTER):
            cluster.world.network.cut(f"broker-{BEFORE}", f"broker-{other}")
        waiting = asyncio.ensure_future(produced(client, 11, acks=-1))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await tell(cluster, AFTER)
        assert named(*await waiting) == NEW_LEADER
        client.close()

    play(scenario)


async def fetched(cluster: SimulatedCluster, client: WireClient, version: int, **fields: Any) -> Any:
    is_named = version < 13
    topic_id = ZERO_UUID if is_named else cluster.brokers[1].broker.image.topics["t"].topic_id
    request = fetch("t" if is_named else "", 0, topic_id=topic_id, **fields)
    answer = await client.call(request, version)
    return answer, answer.responses[0].partitions[0]


@pytest.mark.parametrize(("version", "expected"), [(12, NOBODY), (15, NOBODY), (16, NEW_LEADER), (17, NEW_LEADER)])
@pytest.mark.parametrize("waits", [False, True])
def test_a_reader_is_sent_to_whom_the_replica_follows(version: int, expected: Any, waits: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = await cluster.connected(BEFORE)
        if waits:
            waiting: Awaitable[Any] = asyncio.ensure_future(
                fetched(cluster, client, version, current_leader_epoch=0, max_wait_ms=20_000)
            )
            await asyncio.sleep(0.3)
            await tell(cluster, AFTER)
        else:
            await tell(cluster, AFTER)
            waiting = fetched(cluster, client, version, current_leader_epoch=0)
        answer, partition = await waiting
        assert named(answer, partition, ErrorCode.FENCED_LEADER_EPOCH) == expected
        client.close()

    play(scenario)


def test_a_follower_learns_the_leader_and_knows_where_that_is() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await tell(cluster, AFTER)
        client = await cluster.connected(BEFORE)
        request = fetch("", 0, topic_id=cluster.brokers[1].broker.image.topics["t"].topic_id, current_leader_epoch=1)
        request.replica_state = ReplicaState(replica_id=1, replica_epoch=-1)
        answer = await client.call(request, 17)
        assert named(answer, answer.responses[0].partitions[0]) == ((AFTER, 1), [])
        client.close()

    play(scenario)


def test_where_nobody_leads_any_more_nobody_is_named() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await tell(cluster, -1)
        client = await cluster.connected(BEFORE)
        assert named(*await produced(client, 11)) == NOBODY
        client.close()

    play(scenario)


def test_whoever_leads_again_names_itself_in_its_new_epoch() -> None:
    """What waited was lost with the first leadership."""

    async def scenario(cluster: SimulatedCluster) -> None:
        client = await cluster.connected(BEFORE)
        for other in (1, AFTER):
            cluster.world.network.cut(f"broker-{BEFORE}", f"broker-{other}")
        waiting = asyncio.ensure_future(produced(client, 11, acks=-1))
        await asyncio.sleep(0.3)
        await tell(cluster, -1, 1)
        await tell(cluster, BEFORE, 2)
        leader, _ = named(*await waiting)
        assert leader in (None, (BEFORE, 2))
        client.close()

    play(scenario)


def test_a_broker_without_a_replica_names_whom_all_know() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.asked(1, create_topic("u", -1, -1, assignments={0: (BEFORE, AFTER)}), CREATE, timeout_s=30)
        client = await cluster.connected(1)
        answer = await client.call(produce("u", one_batch(b"x")), 11)
        expected = (BEFORE, 0), [(BEFORE, f"broker-{BEFORE}", PORT)]
        assert named(answer, answer.responses[0].partition_responses[0]) == expected
        client.close()

    play(scenario)
