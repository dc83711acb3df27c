"""A simulated cluster under everything that may happen to it, and a look at what is left: a seed is a history."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from ottla.testing.cluster_climate import DIRECTORIES, ClusterClimate
from ottla.testing.cluster_faults import ClusterFaults
from ottla.testing.cluster_workload import (
    GroupReads,
    IdempotentProducer,
    Transactions,
    Work,
    check_order,
    commit_offsets,
    consume,
    join_group,
    produce_once,
    read_committed,
    transact,
    watch_ends,
)
from ottla.testing.simulated_cluster import SimulatedCluster, login_of
from ottla.testing.world import World

TOPIC: Final = "t"
TRANSACTIONS_TOPIC: Final = "x"
UNCLEAN_TOPIC: Final = "u"
TRANSACTIONS_PARTITIONS: Final = 2
SECONDS_MAX: Final = 1800.0
ACKNOWLEDGED_S_MAX: Final = 60.0  # until something is acknowledged once the faults are over
IDEMPOTENT: Final = ("i", "j")
MEMBERS: Final = ("m", "n")


def soak_cluster(seed: int, climate: ClusterClimate | None = None, *, is_secured: bool = False) -> None:
    """Runs one history; SimulationError says what went wrong and how to replay it.

    `is_secured`: brokers and clients log in, and ACLs say what clients may do.
    """
    drawn = ClusterClimate.of(Random(f"{seed}/climate")) if climate is None else climate
    world = World(seed, drawn.network)
    world.excuses = lambda message: any(directory in message for directory in DIRECTORIES)
    settings = {"log.dirs": ",".join(DIRECTORIES), **drawn.settings}
    login = login_of("alice") if is_secured else None
    cluster = SimulatedCluster(world, drawn.brokers, settings, drawn.ensemble, login)
    for broker in cluster.brokers.values():
        broker.disk_delay_s = drawn.disk_delay_s
    file = "test_cluster_security.py" if is_secured else "test_cluster.py"
    replay = f"OTTLA_SIM_SEED={seed} python -m pytest tests/sim/{file}"
    world.run(_history(cluster, drawn, is_secured=is_secured), seconds=SECONDS_MAX, replay=replay)


async def _history(cluster: SimulatedCluster, climate: ClusterClimate, *, is_secured: bool) -> None:
    world = cluster.world
    world.trace(str(climate))
    await cluster.start()
    if is_secured:
        await cluster.allow_clients()
    await cluster.create_topic(TOPIC, climate.partitions, {"internal.segment.bytes": str(climate.segment_bytes)})
    if climate.has_transactions:
        await cluster.create_topic(TRANSACTIONS_TOPIC, TRANSACTIONS_PARTITIONS)
    if climate.has_unclean:
        await cluster.create_topic(UNCLEAN_TOPIC, 1, {"unclean.leader.election.enable": "true"}, may_lose=True)
    outcomes = Transactions()
    work = Work(cluster, climate, TOPIC)
    transactional = Work(cluster, climate, TRANSACTIONS_TOPIC)
    clients: list[Coroutine[Any, Any, None]] = [
        cluster.watch(),
        produce_once(work, "a"),
        *(IdempotentProducer(work, name).run() for name in IDEMPOTENT),
        consume(work, "c"),
        consume(work, "f", from_any=True),
        watch_ends(work, "w"),
        commit_offsets(work, "o"),
    ]
    if climate.has_unclean:
        clients.append(produce_once(Work(cluster, climate, UNCLEAN_TOPIC), "u"))
    if climate.has_transactions:
        clients.append(transact(transactional, "tx", outcomes))
        clients.append(read_committed(transactional, "r", outcomes))
    if climate.has_group:
        reads = GroupReads()
        clients += [join_group(work, member, reads) for member in MEMBERS]
    tasks = [world.loop.create_task(client, name="client") for client in clients]
    await asyncio.sleep(1.0)
    await ClusterFaults(cluster, climate, TOPIC).come()
    await cluster.settle(is_quiet=False)
    await asyncio.sleep(1.0)
    # Over a slow network, six faults may be over before the first answers are there.
    deadline = world.loop.time() + ACKNOWLEDGED_S_MAX
    while not any(seen.acknowledged for seen in cluster.observed.values()) and world.loop.time() < deadline:
        await asyncio.sleep(1.0)
    await _end(tasks)
    await cluster.settle(is_quiet=True)
    cluster.look()
    cluster.check()
    check_order(work, IDEMPOTENT)
    outcomes.check(transactional)
    acknowledged = sum(len(seen.acknowledged) for seen in cluster.observed.values())
    assert acknowledged, "nothing was acknowledged: the history says nothing"
    await cluster.close()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
