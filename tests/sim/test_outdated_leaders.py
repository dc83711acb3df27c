"""A leader that lost its session does not know that another leads: it does not judge clients that are ahead of it."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.testing.raw_requests import fetch, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

NAME = TopicPartition("t", 0)
PRODUCE_VERSION, FETCH_VERSION = 9, 11


def batch_of(sequence: int) -> Any:
    records = one_batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
    return produce(NAME.topic, records, timeout_ms=1000)


async def answer_of(cluster: SimulatedCluster, node_id: int, sequence: int) -> int:
    response = await cluster.asked(node_id, batch_of(sequence), PRODUCE_VERSION)
    return int(response.responses[0].partition_responses[0].error_code)


async def read_by(cluster: SimulatedCluster, node_id: int, offset: int) -> int:
    response = await cluster.asked(node_id, fetch(NAME.topic, offset), FETCH_VERSION)
    return int(response.responses[0].partitions[0].error_code)


async def led_by_another(cluster: SimulatedCluster, node_id: int) -> int:
    while (leader := cluster.states()[NAME].leader) in (node_id, -1) or not cluster.is_current_leader(NAME, leader):
        await asyncio.sleep(0.05)
    return leader


async def scenario(cluster: SimulatedCluster) -> None:
    await cluster.start()
    await cluster.create_topic(NAME.topic, 1)
    await cluster.settle(is_quiet=True)
    before = cluster.states()[NAME].leader
    assert await answer_of(cluster, before, 0) == ErrorCode.NONE
    assert await answer_of(cluster, before, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await read_by(cluster, before, 9) == ErrorCode.OFFSET_OUT_OF_RANGE
    process = cluster.brokers[before]
    cluster.ensemble.cut(process.name)
    for other in cluster.brokers.values():
        if other is not process:
            cluster.world.network.cut(process.name, other.name)
    leader = await led_by_another(cluster, before)
    assert await answer_of(cluster, leader, 1) == ErrorCode.NONE
    # The one before still takes itself for the leader, and was never told of sequence 1.
    assert process.broker.replicas.find(*NAME).is_leader
    assert await answer_of(cluster, before, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await read_by(cluster, before, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await answer_of(cluster, leader, 2) == ErrorCode.NONE
    await cluster.settle(is_quiet=True)
    await cluster.close()


def test_a_leader_without_a_session_sends_clients_that_are_ahead_to_another() -> None:
    world = World(1)
    world.run(scenario(SimulatedCluster(world)), seconds=600)
