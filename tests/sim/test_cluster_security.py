"""A cluster that asks everybody who they are, on virtual time: it loses nothing, and no stranger becomes part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing.cluster_soak import soak_cluster
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.seeds import portion_id, portions
from ottla.testing.simulated_cluster import SETTINGS, SimulatedCluster, login_of, secured_settings
from ottla.testing.world import World

CREATE, MOVE, PRODUCE, FETCH = 5, 1, 9, 11
NAME = TopicPartition("t", 0)
INTRUDER = 9


@pytest.mark.parametrize("portion", portions(2, per_test=1), ids=portion_id)
def test_a_secured_cluster_loses_nothing_that_it_acknowledged(portion: range) -> None:
    for seed in portion:
        soak_cluster(seed, is_secured=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def with_a_topic(cluster: SimulatedCluster) -> None:
    await cluster.start()
    await until(lambda: all(len(cluster.brokers[each].broker.image.brokers) == 3 for each in cluster.brokers))
    await cluster.allow_clients()
    made = await cluster.asked(1, create_topic(NAME.topic, -1, -1, assignments={0: [1, 2]}), CREATE, timeout_s=60)
    assert made.topics[0].error_code == ErrorCode.NONE
    await until(lambda: len(cluster.replicas(NAME)) == 2)
    written = await cluster.asked(1, produce(NAME.topic, one_batch(b"x")), PRODUCE, timeout_s=30)
    assert written.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_broker_with_a_wrong_password_gets_no_record_and_is_never_in_sync() -> None:
    """It is in the store, which does not ask, and accepts the logins of others; a partition is even moved to it."""
    world = World(1)
    cluster = SimulatedCluster(world, 3, login=login_of("alice"))
    settings = {**SETTINGS, **secured_settings("broker-9", own_password="wrong"), "broker.id": str(INTRUDER)}
    intruder = world.broker("broker-9", settings)

    async def main() -> None:
        await with_a_topic(cluster)
        await intruder.start()
        await until(lambda: INTRUDER in cluster.brokers[1].broker.image.brokers)
        moved = [ReassignablePartition(partition_index=0, replicas=[1, INTRUDER])]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=NAME.topic, partitions=moved)])
        answer = await cluster.asked(1, request, MOVE)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        await until(lambda: intruder.broker.replicas.get(NAME) is not None)
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert INTRUDER not in cluster.states()[NAME].isr
            followed = intruder.broker.replicas.get(NAME)
            assert followed is None or followed.log.end_offset == 0
        assert {*cluster.states()[NAME].isr} <= {1, 2}
        await intruder.crash()
        await cluster.close()

    world.run(main(), seconds=3000)


def test_no_client_poses_as_a_replica() -> None:
    """Whoever may read and write everything asks as the follower: it gets no record, and commits nothing."""
    world = World(1)
    cluster = SimulatedCluster(world, 3, login=login_of("alice"))

    async def main() -> None:
        await with_a_topic(cluster)
        await until(lambda: all(replica.high_watermark == 1 for replica in cluster.replicas(NAME)))
        await cluster.crash(2, power_loss=False)
        client = await cluster.connected(1)
        written = produce(NAME.topic, one_batch(b"y"), acks=1)
        assert (await client.call(written, PRODUCE)).responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for offset in (0, 1, 2):
            asked = fetch(NAME.topic, offset)
            asked.replica_id = 2
            answer = await client.call(asked, FETCH)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not partition.records
        leader = cluster.brokers[1].broker.replicas.get(NAME)
        assert leader is not None
        assert leader.high_watermark == 1
        client.close()
        await cluster.close()

    world.run(main(), seconds=3000)
