"""Records are deleted up to the middle of a batch, which is stored and sent as a whole: replicas that come later have
it, and start where the leader does."""

from __future__ import annotations

from typing import Final

from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing.network import Conditions
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster, contents
from ottla.testing.world import World

NAME: Final = TopicPartition("t", 0)
CREATE_VERSION, PRODUCE_VERSION, DELETE_VERSION, REASSIGN_VERSION = 5, 9, 2, 0
START: Final = 5
COUNT: Final = 10
ANSWER_S: Final = 10.0  # a follower that is away has to leave the in-sync replicas first


async def write(cluster: SimulatedCluster, first: int) -> None:
    values = [b"%d" % number for number in range(first, first + COUNT)]
    response = await cluster.asked(1, produce("t", one_batch(*values)), PRODUCE_VERSION, timeout_s=ANSWER_S)
    assert not response.responses[0].partition_responses[0].error_code


async def delete_below(cluster: SimulatedCluster, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    response = await cluster.asked(
        1, DeleteRecordsRequest(topics=topics, timeout_ms=5000), DELETE_VERSION, timeout_s=ANSWER_S
    )
    assert not response.topics[0].partitions[0].error_code


def check(cluster: SimulatedCluster, nodes: set[int]) -> None:
    replicas = cluster.replicas(NAME)
    assert len(replicas) == len(nodes) == len(set(cluster.states()[NAME].isr))
    assert {replica.log.log_start_offset for replica in replicas} == {START}
    assert all(list(contents(replica)) == list(range(2 * COUNT)) for replica in replicas)
    cluster.compare(NAME, committed_only=False)


def test_a_replica_that_is_made_later() -> None:
    world = World(1, Conditions(latency_s=0.001, jitter_s=0.002))
    cluster = SimulatedCluster(world, 4)

    async def main() -> None:
        await cluster.start()
        await cluster.asked(1, create_topic("t", -1, -1, assignments={0: [1, 2, 3]}), CREATE_VERSION)
        await cluster.settle(is_quiet=True)
        await write(cluster, 0)
        await delete_below(cluster, START)
        entry = ReassignablePartition(partition_index=0, replicas=[1, 2, 4])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[entry])])
        await cluster.ask_controller(request, REASSIGN_VERSION)
        await write(cluster, COUNT)
        await cluster.settle(is_quiet=True, seconds=30.0)
        check(cluster, {1, 2, 4})
        await cluster.close()

    world.run(main(), seconds=120)


def test_a_replica_that_was_away_while_records_were_deleted() -> None:
    world = World(1, Conditions(latency_s=0.001, jitter_s=0.002))
    cluster = SimulatedCluster(world, 3)

    async def main() -> None:
        await cluster.start()
        await cluster.asked(1, create_topic("t", -1, -1, assignments={0: [1, 2, 3]}), CREATE_VERSION)
        await cluster.settle(is_quiet=True)
        await cluster.crash(3, power_loss=False)
        await write(cluster, 0)
        await delete_below(cluster, START)
        cluster.begin_start(3)
        await write(cluster, COUNT)
        await cluster.settle(is_quiet=True, seconds=30.0)
        check(cluster, {1, 2, 3})
        await cluster.close()

    world.run(main(), seconds=120)
