"""A broker that is back leads its preferred partitions again: whether, and when, is up to three settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.controller.controller import FIRST_REBALANCE_S
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import ElectLeadersRequest, TopicPartitions
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

CONTROLLER, BROKER = 1, 2  # the first to start is elected
INTERVAL_S = 100.0
AWAY_MAX_S = 30.0  # how long a stop and a start take together at most, much less than an interval
ELECT_VERSION = 2
PARTITIONS = 12  # on three brokers: each is to lead four
ENABLE, INTERVAL, PERCENTAGE = (
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
)

Play = Callable[[SimulatedCluster, float], Awaitable[None]]


def beside_a_broker_that_is_back(settings: dict[str, str], play: Play) -> None:
    """The broker leads nothing any more. The scenario gets the time from which on the controller counts."""
    world = World(1)
    cluster = SimulatedCluster(world, settings={INTERVAL: str(int(INTERVAL_S)), **settings})

    async def main() -> None:
        await cluster.start()
        first_check = asyncio.get_running_loop().time() + FIRST_REBALANCE_S
        await cluster.create_topic("t", PARTITIONS)
        assert len(preferred(cluster)) == 4
        await until(first_check + 1)
        await cluster.stop(BROKER)
        await cluster.settle(is_quiet=True)
        assert away(cluster) == preferred(cluster)
        assert asyncio.get_running_loop().time() < first_check + AWAY_MAX_S
        await play(cluster, first_check)
        await cluster.close()

    world.run(main(), seconds=10_000)


def preferred(cluster: SimulatedCluster) -> list[TopicPartition]:
    """What the broker is to lead."""
    return [name for name, state in cluster.states().items() if state.replicas[0] == BROKER]


def away(cluster: SimulatedCluster) -> list[TopicPartition]:
    """What it is to lead and does not."""
    states = cluster.states()
    return [name for name in preferred(cluster) if states[name].leader != BROKER]


async def until(time: float) -> None:
    await asyncio.sleep(max(0.0, time - asyncio.get_running_loop().time()))


async def elect(cluster: SimulatedCluster, names: list[TopicPartition]) -> None:
    """As an operator has preferred leaders elected."""
    asked = [TopicPartitions(topic="t", partitions=[name.partition for name in names])]
    request = ElectLeadersRequest(topic_partitions=asked, timeout_ms=1000)
    answer = await cluster.asked(CONTROLLER, request, ELECT_VERSION)
    codes = [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]
    assert codes == [ErrorCode.NONE] * len(names)


def test_preferred_leaders_lead_again_from_the_next_check_on() -> None:
    async def play(cluster: SimulatedCluster, first_check: float) -> None:
        await until(first_check + INTERVAL_S - 5)
        assert len(away(cluster)) == 4
        await until(first_check + INTERVAL_S + 5)
        assert away(cluster) == []
        await cluster.settle(is_quiet=True)  # and their brokers know it
        await cluster.stop(BROKER)
        await cluster.settle(is_quiet=True)
        assert len(away(cluster)) == 4
        await until(first_check + 2 * INTERVAL_S + 5)  # it is looked at again and again
        assert away(cluster) == []

    beside_a_broker_that_is_back({}, play)


def test_leaders_stay_where_they_are_if_the_controller_is_not_to_look() -> None:
    async def play(cluster: SimulatedCluster, first_check: float) -> None:
        await until(first_check + 3 * INTERVAL_S)
        assert len(away(cluster)) == 4

    beside_a_broker_that_is_back({ENABLE: "false"}, play)


@pytest.mark.parametrize(("percentage", "left"), [(50, 2), (49, 0)])
def test_a_broker_that_leads_enough_of_what_it_should_is_left_alone(percentage: int, left: int) -> None:
    async def play(cluster: SimulatedCluster, first_check: float) -> None:
        await elect(cluster, preferred(cluster)[:2])
        assert len(away(cluster)) == 2  # of four
        await until(first_check + 2 * INTERVAL_S)
        assert len(away(cluster)) == left

    beside_a_broker_that_is_back({PERCENTAGE: str(percentage)}, play)


def test_a_new_controller_looks_a_few_seconds_after_its_election() -> None:
    async def play(cluster: SimulatedCluster, first_check: float) -> None:
        await cluster.stop(CONTROLLER)
        stopped = asyncio.get_running_loop().time()
        await until(stopped + FIRST_REBALANCE_S - 2)
        assert away(cluster) != []
        await until(stopped + FIRST_REBALANCE_S + 2)
        assert away(cluster) == []

    beside_a_broker_that_is_back({}, play)
