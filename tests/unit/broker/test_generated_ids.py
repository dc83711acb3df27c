"""Brokers of a cluster that are given no id: they take one that nobody else has, and keep it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.cluster import nodes
from ottla.errors import ConfigError
from ottla.testing.simulated_cluster import SETTINGS, SimulatedCluster
from ottla.testing.world import BrokerProcess, World

RESERVED_MAX = 1000  # reserved.broker.max.id, as long as nobody sets it
Play = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def play(scenario: Play) -> None:
    """Beside one broker that has an id."""
    world = World(1)
    cluster = SimulatedCluster(world, size=1)

    async def main() -> None:
        await cluster.start()
        await scenario(cluster)
        await cluster.close()

    world.run(main(), seconds=1000)


def broker(cluster: SimulatedCluster, name: str, **settings: str) -> BrokerProcess:
    return cluster.world.broker(
        name, {**SETTINGS, **{each.replace("_", "."): value for each, value in settings.items()}}
    )


def registered(cluster: SimulatedCluster) -> set[int]:
    return {int(name) for name in cluster.ensemble.tree.children(nodes.BROKER_IDS)}


def ids_given(cluster: SimulatedCluster) -> int:
    entry = cluster.ensemble.tree.entry(nodes.BROKER_SEQUENCE)
    assert entry is not None
    return entry.version


def test_a_broker_without_an_id_takes_the_next_above_the_reserved_ones() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        first, second = broker(cluster, "first"), broker(cluster, "second", broker_id="-1")
        lower = broker(cluster, "lower", reserved_broker_max_id="20")
        for process in (first, second, lower):
            await process.start()
        assert [process.broker.node_id for process in (first, second, lower)] == [1001, 1002, 23]
        assert registered(cluster) == {1, 1001, 1002, 23}

    play(scenario)


def test_a_broker_keeps_the_id_that_it_took() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        process = broker(cluster, "first")
        await process.start()
        node_id = process.broker.node_id
        await process.stop()
        await process.start()
        assert process.broker.node_id == node_id
        await process.crash(power_loss=True)
        await process.start()
        assert process.broker.node_id == node_id
        assert ids_given(cluster) == node_id - RESERVED_MAX
        assert registered(cluster) == {1, node_id}

    play(scenario)


def test_where_brokers_may_take_no_id_one_without_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        process = broker(cluster, "first", broker_id_generation_enable="false")
        with pytest.raises(ConfigError, match="enable=false: set one of the two"):
            await process.start()
        await process.crash()
        assert ids_given(cluster) == 0
        process.properties["broker.id"] = "7"
        await process.start()
        assert process.broker.node_id == 7

    play(scenario)
