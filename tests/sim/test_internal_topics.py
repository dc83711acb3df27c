"""The topics of coordinators are created with all their replicas, or not yet."""

from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

VERSION = 4


async def coordinator_of(cluster: SimulatedCluster, group: str) -> tuple[int, int]:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (found,) = (await cluster.asked(1, request, VERSION)).coordinators
    return found.error_code, found.node_id


async def it_is_created_once_there_are_enough_brokers(cluster: SimulatedCluster) -> None:
    await cluster.brokers[1].start()
    await cluster.brokers[2].start()
    assert await coordinator_of(cluster, "g") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert cluster.states() == {}
    await cluster.brokers[3].start()
    while (await coordinator_of(cluster, "g"))[0]:
        await asyncio.sleep(0.05)
    states = cluster.states()
    assert states.keys() == {TopicPartition("__consumer_offsets", index) for index in range(2)}
    assert all({*state.replicas} == {1, 2, 3} for state in states.values())
    await cluster.close()


def test_a_group_waits_until_its_topic_can_have_all_its_replicas() -> None:
    """Created with fewer it would keep them, and be gone with its only broker. Kafka does the same."""
    world = World(1)
    world.run(it_is_created_once_there_are_enough_brokers(SimulatedCluster(world)), seconds=600)


async def its_controller_cannot_be_reached(cluster: SimulatedCluster) -> None:
    await cluster.start()
    for other in (1, 2):
        cluster.world.network.cut(cluster.brokers[3].name, cluster.brokers[other].name)
    client = await cluster.connected(3)
    await client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), VERSION)
    await asyncio.sleep(1)
    client.close()
    await cluster.stop(3)
    await cluster.close()


def test_a_broker_that_stops_no_longer_waits_for_a_topic_that_it_asked_for() -> None:
    """Seed 3000062: the request was given up, and what it had begun waited on in a broker that had stopped."""
    world = World(1)
    world.run(its_controller_cannot_be_reached(SimulatedCluster(world)), seconds=600)
