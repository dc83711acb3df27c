"""How long writes wait when a leader or the controller goes: counted on virtual time, so that no machine is too slow.

The settings are the broker's defaults where they decide about that. A client writes one record after the other at
acks=all and, where one is refused, asks any broker who leads and sends it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from ottla.cluster import nodes
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.testing.network import Conditions
from ottla.testing.raw_requests import create_topic, metadata, one_batch, produce
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.simulated_ensemble import EnsembleConditions
from ottla.testing.world import World

NAME = TopicPartition("t", 0)
CREATE_VERSION, PRODUCE_VERSION, METADATA_VERSION = 5, 9, 12
CONTROLLER, OTHER, THIRD = 1, 2, 3  # the first to start is elected
SEEDS = range(4)
SESSION_S = 2.0
LOOK_S = 0.01
CLIENT_RETRY_S = 0.02
REQUEST_TIMEOUT_S = 0.5  # also of a connection to a machine that is off
FAILOVER_S = 2.0  # what we promise from the end of the session on
AT_ONCE_S = 0.5  # some tens of messages, each of which takes up to 20 ms here
DEFAULTS = {
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "1000",
    "controlled.shutdown.retry.backoff.ms": "5000",
    "auto.leader.rebalance.enable": "false",
}
SLOW = Conditions(latency_s=0.005, jitter_s=0.015)

Fault = Callable[[SimulatedCluster, "Writer", int], Awaitable[None]]


class Writer:
    """Writes until it is cancelled, and notes when each record was acknowledged."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._leader = cluster.states()[NAME].leader
        self.acknowledged: list[float] = []

    async def run(self) -> None:
        while True:
            if await self._is_written():
                self.acknowledged.append(self._cluster.world.loop.time())
            else:
                await asyncio.sleep(CLIENT_RETRY_S)
                await self._find_leader()

    async def _is_written(self) -> bool:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await self._cluster.asked(
                    self._leader, produce(NAME.topic, one_batch(b"x")), PRODUCE_VERSION
                )
        except (OSError, TimeoutError):
            return False
        return response.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    async def _find_leader(self) -> None:
        for node_id in self._cluster.brokers:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    response = await self._cluster.asked(node_id, metadata(NAME.topic), METADATA_VERSION)
            except (OSError, TimeoutError):
                continue
            leader = response.topics[0].partitions[0].leader_id
            if leader >= 0:
                self._leader = leader
                return

    @property
    def longest_gap_s(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.acknowledged))

    async def wait_for_more(self, count: int = 20) -> None:
        enough = len(self.acknowledged) + count
        while len(self.acknowledged) < enough:
            await asyncio.sleep(CLIENT_RETRY_S)


def controller_of(cluster: SimulatedCluster) -> int | None:
    entry = cluster.ensemble.tree.entry(nodes.CONTROLLER)
    return None if entry is None else int(nodes.decode(nodes.CONTROLLER, entry.data)["brokerid"])


async def end_of_session(cluster: SimulatedCluster, node_id: int) -> float:
    """When the registration of a broker is gone."""
    while cluster.ensemble.tree.entry(nodes.broker_path(node_id)) is not None:
        await asyncio.sleep(LOOK_S)
    return cluster.world.loop.time()


async def scenario(cluster: SimulatedCluster, leader: int, fault: Fault) -> None:
    await cluster.start()
    assert controller_of(cluster) == CONTROLLER
    others = [node_id for node_id in cluster.brokers if node_id != leader]
    await cluster.asked(
        CONTROLLER, create_topic(NAME.topic, -1, -1, assignments={0: [leader, *others]}), CREATE_VERSION
    )
    await cluster.settle(is_quiet=True)
    writer = Writer(cluster)
    writing = asyncio.ensure_future(writer.run())
    await writer.wait_for_more()
    await fault(cluster, writer, leader)
    writing.cancel()
    await asyncio.wait([writing])
    await cluster.close()


def run(seed: int, leader: int, fault: Fault) -> None:
    world = World(seed, SLOW)
    conditions = EnsembleConditions(session_timeout_s=SESSION_S, lag_s_max=0.02)
    world.run(scenario(SimulatedCluster(world, settings=DEFAULTS, ensemble=conditions), leader, fault), seconds=600)


@pytest.mark.parametrize("leader", [CONTROLLER, OTHER], ids=["the controller", "another broker"])
@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "without power"])
def test_writes_go_on_soon_after_the_session_of_a_dead_leader_has_ended(leader: int, power_loss: bool) -> None:
    async def fault(cluster: SimulatedCluster, writer: Writer, leader: int) -> None:
        await cluster.crash(leader, power_loss=power_loss)
        ended = await end_of_session(cluster, leader)
        await writer.wait_for_more()
        assert next(moment for moment in writer.acknowledged if moment > ended) < ended + FAILOVER_S
        assert controller_of(cluster) != leader

    for seed in SEEDS:
        run(seed, leader, fault)


@pytest.mark.parametrize("leader", [CONTROLLER, OTHER], ids=["the controller", "another broker"])
def test_writes_do_not_wait_for_a_leader_that_is_stopped(leader: int) -> None:
    async def fault(cluster: SimulatedCluster, writer: Writer, leader: int) -> None:
        await cluster.stop(leader)
        await writer.wait_for_more()
        assert writer.longest_gap_s < AT_ONCE_S

    for seed in SEEDS:
        run(seed, leader, fault)


@pytest.mark.parametrize("stopped", [CONTROLLER, OTHER], ids=["the controller", "another broker"])
def test_a_broker_that_is_being_stopped_does_not_come_back_into_sync(stopped: int) -> None:
    """Writers would wait for it until its session has ended."""

    async def fault(cluster: SimulatedCluster, writer: Writer, leader: int) -> None:
        first = len(cluster.ensemble.commits)
        await cluster.stop(stopped)
        path = nodes.state_path(*NAME)
        written = [commit.changes[path] for commit in cluster.ensemble.commits[first:] if path in commit.changes]
        in_sync = [stopped in nodes.decode_state(path, entry.data, (), 0).isr for entry in written if entry is not None]
        assert in_sync
        assert not any(in_sync)
        assert writer.longest_gap_s < AT_ONCE_S

    for seed in SEEDS:
        run(seed, THIRD, fault)


def test_a_controller_that_is_stopped_is_not_registered_any_more_when_the_next_one_is_elected() -> None:
    """The next one does not know who is about to leave: it would let leaders take back whoever is registered."""

    async def fault(cluster: SimulatedCluster, writer: Writer, leader: int) -> None:
        first = len(cluster.ensemble.commits)
        await cluster.stop(CONTROLLER)
        deleted = [
            path
            for commit in cluster.ensemble.commits[first:]
            for path, entry in commit.changes.items()
            if entry is None and path in (nodes.broker_path(CONTROLLER), nodes.CONTROLLER)
        ]
        assert deleted == [nodes.broker_path(CONTROLLER), nodes.CONTROLLER]

    for seed in SEEDS:
        run(seed, OTHER, fault)
