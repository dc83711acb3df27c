"""A simulated cluster under everything that may happen to it, and a look at what is left: a seed is a history."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.testing.network import Conditions
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

TOPIC: Final = "t"
PARTITIONS: Final = 2
FAULTS: Final = 6
FAULT_S_MAX: Final = 6.0
SECONDS_MAX: Final = 900.0
ACKNOWLEDGED_MIN: Final = 20  # else the run says nothing
CLOCK_JUMP_MS_MAX: Final = 3_600_000
KINDS: Final = ("kill", "power loss", "stop", "network", "zookeeper", "session", "ensemble", "clock")


def soak_cluster(seed: int) -> None:
    """Runs one history; SimulationError says what went wrong and how to replay it."""
    world = World(seed, Conditions())
    replay = f"OTTLA_SIM_SEED={seed} python -m pytest tests/sim/test_cluster.py"
    world.run(_history(SimulatedCluster(world)), seconds=SECONDS_MAX, replay=replay)


async def _history(cluster: SimulatedCluster) -> None:
    world = cluster.world
    rng = world.rng("faults")
    await cluster.start()
    await cluster.create_topic(TOPIC, PARTITIONS)
    work = [
        world.loop.create_task(doing, name="work")
        for doing in (cluster.watch(), cluster.produce("a"), cluster.produce("b"), cluster.consume("c"))
    ]
    await asyncio.sleep(1.0)
    for _ in range(FAULTS):
        await _one_fault(cluster, rng.choice(KINDS))
        await asyncio.sleep(rng.random() * FAULT_S_MAX)
    await cluster.settle(is_quiet=False)
    await asyncio.sleep(1.0)
    for task in work:
        task.cancel()
    await asyncio.wait(work)
    for task in work:
        if not task.cancelled():
            task.result()
    await cluster.settle(is_quiet=True)
    cluster.look()
    cluster.check()
    acknowledged = sum(len(told.acknowledged) for told in cluster.observed.values())
    assert acknowledged >= ACKNOWLEDGED_MIN, f"{acknowledged} records are too few to say anything"
    await cluster.close()


async def _one_fault(cluster: SimulatedCluster, kind: str) -> None:
    world = cluster.world
    rng = world.rng(f"fault at {world.loop.time()}")
    if not cluster.running:
        return
    node_id = rng.choice(cluster.running)
    broker = cluster.brokers[node_id]
    lasts_s = rng.random() * FAULT_S_MAX
    world.trace(f"fault: {kind} of {broker.name} for {lasts_s:.1f} s")
    match kind:
        case "kill":
            await cluster.crash(node_id, power_loss=False)
            await asyncio.sleep(lasts_s)
            cluster.begin_start(node_id)
        case "power loss" if cluster.is_settled():  # a replica may lose what was not on its disk, if others have it
            await cluster.crash(node_id, power_loss=True)
            await asyncio.sleep(lasts_s)
            cluster.begin_start(node_id)
        case "stop":
            await broker.stop()
            await asyncio.sleep(lasts_s)
            cluster.begin_start(node_id)
        case "network":
            other = rng.choice([name for name in cluster.brokers if name != node_id])
            world.network.cut(broker.name, cluster.brokers[other].name)
            await asyncio.sleep(lasts_s)
            world.network.heal()
        case "zookeeper":
            cluster.ensemble.cut(broker.name)
            await asyncio.sleep(lasts_s)
            cluster.ensemble.heal(broker.name)
        case "session":
            cluster.ensemble.end_session(broker.broker.store.session.session_id)
        case "ensemble":
            cluster.ensemble.go_down()
            await asyncio.sleep(lasts_s)
            cluster.ensemble.come_up()
        case "clock":
            broker.clock.skew_ms += rng.randrange(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
