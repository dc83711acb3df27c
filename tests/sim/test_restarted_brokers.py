"""A broker serves before its controller has told it anything; what it says of the cluster then misleads nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.first_image import WAIT_S
from ottla.errors import ErrorCode
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.testing.network import Conditions
from ottla.testing.raw_requests import create_topic
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

CONTROLLER, RESTARTED = 1, 2
CREATE_VERSION = 5
METADATA_VERSION = 10
NAMES = ("orders", "nowhere", "no name")

Play = Callable[[SimulatedCluster], Awaitable[None]]


def metadata(names: tuple[str, ...] | None = NAMES) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def described() -> DescribeTopicPartitionsRequest:
    topics = [DescribeTopicPartitionsRequestTopicRequest(name=name) for name in NAMES]
    return DescribeTopicPartitionsRequest(topics=topics)


def brokers_of() -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


async def asked(cluster: SimulatedCluster, request: object, version: int) -> Any:
    return await cluster.asked(RESTARTED, request, version, timeout_s=2 * WAIT_S)


def codes(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def beside_a_restarted_broker(play: Play) -> None:
    """Broker 2 is back, and the controller cannot reach it."""
    world = World(1, Conditions(latency_s=0.001, jitter_s=0.002))
    cluster = SimulatedCluster(world)

    async def main() -> None:
        await cluster.start()
        await cluster.asked(CONTROLLER, create_topic("orders", 3, 3), CREATE_VERSION)
        await cluster.settle(is_quiet=True)
        await cluster.crash(RESTARTED, power_loss=False)
        world.network.cut(cluster.brokers[CONTROLLER].name, cluster.brokers[RESTARTED].name)
        cluster.begin_start(RESTARTED)
        await asyncio.sleep(0.5)
        await play(cluster)
        await cluster.settle(is_quiet=True)
        known = codes(await asked(cluster, metadata(), METADATA_VERSION))
        assert known == {
            "orders": ErrorCode.NONE,
            "nowhere": ErrorCode.LEADER_NOT_AVAILABLE,  # it has just been created, as it was allowed
            "no name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        await cluster.close()

    world.run(main(), seconds=300)


def test_who_asks_waits_for_the_first_word_of_the_controller() -> None:
    async def play(cluster: SimulatedCluster) -> None:
        await asyncio.sleep(5)  # the session of the earlier run is over
        asking = [
            asyncio.create_task(asked(cluster, request, version))
            for request, version in (
                (metadata(None), METADATA_VERSION),
                (described(), 0),
                (brokers_of(), 0),
            )
        ]
        await asyncio.sleep(WAIT_S / 4)
        assert not any(each.done() for each in asking)
        cluster.world.network.heal()
        topics, partitions, brokers = await asyncio.gather(*asking)
        assert sorted(codes(topics)) == ["orders"]
        assert codes(partitions) == {
            "orders": ErrorCode.NONE,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "no name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        for response in (topics, brokers):
            assert sorted(each.node_id if response is topics else each.broker_id for each in response.brokers) == [
                1,
                2,
                3,
            ]

    beside_a_restarted_broker(play)


def test_who_asks_a_broker_that_is_told_nothing_is_not_told_that_topics_are_missing() -> None:
    async def play(cluster: SimulatedCluster) -> None:
        for response in (await asked(cluster, metadata(), METADATA_VERSION), await asked(cluster, described(), 0)):
            assert codes(response) == {
                "orders": ErrorCode.LEADER_NOT_AVAILABLE,
                "nowhere": ErrorCode.LEADER_NOT_AVAILABLE,
                "no name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            }
        assert (await asked(cluster, metadata(None), METADATA_VERSION)).brokers == []
        assert (await asked(cluster, brokers_of(), 0)).brokers == []

    beside_a_restarted_broker(play)
