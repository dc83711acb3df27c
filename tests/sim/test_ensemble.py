"""The simulated ensemble keeps ZooKeeper's promises, and breaks what it may break."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.store.api import BadVersion, Create, NodeExists, Put, SessionState, StoreError, StoreUnavailable
from ottla.testing.simulated_ensemble import EnsembleConditions, SimulatedEnsemble
from ottla.testing.world import World


def ensemble_of(world: World, **conditions: float) -> SimulatedEnsemble:
    return SimulatedEnsemble(
        world.loop, world.rng("ensemble"), lambda: 0, EnsembleConditions(**conditions), world.trace
    )


@pytest.mark.parametrize("seed", range(20))
def test_counters_of_several_clients_lose_nothing_though_connections_break_and_sessions_end(seed: int) -> None:
    """Each client counts up conditionally and reads after every doubt, so the sum is what they know they did."""
    world = World(seed)
    ensemble = ensemble_of(world, break_chance=0.05, session_timeout_s=1.0)
    done = {"a": 0, "b": 0, "c": 0}

    async def count(name: str, rng: Random) -> None:
        store = ensemble.connect(name)
        last_seen = -1
        while done[name] < 20:
            await asyncio.sleep(rng.random() * 0.05)
            try:
                node = await store.get("/counter")
                assert node is not None
                last, _, value = node.data.decode().rpartition(" ")
                if last == f"{name}{done[name]}":
                    done[name] += 1  # the answer was lost, the commit was not
                    continue
                assert node.version >= last_seen, "a session never goes back"
                last_seen = node.version if store.session.state is SessionState.CONNECTED else -1
                new = f"{name}{done[name]} {int(value) + 1}".encode()
                await store.commit(Put("/counter", new, node.version))
                done[name] += 1
            except BadVersion:
                continue
            except StoreUnavailable:
                last_seen = -1
                while store.session.state is not SessionState.CONNECTED:
                    await store.session.changed.wait()
        await store.close()

    async def trouble(rng: Random) -> None:
        for _ in range(10):
            await asyncio.sleep(rng.random())
            name = rng.choice("abc")
            ensemble.cut(name)
            await asyncio.sleep(rng.random() * 2)
            ensemble.heal(name)

    async def scenario() -> int:
        setup = ensemble.connect("setup")
        await retried(setup.commit, Create("/counter", b"- 0"))
        await setup.close()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(trouble(world.rng("trouble")))
            for name in done:
                tasks.create_task(count(name, world.rng(name)))
        entry = ensemble.tree.entry("/counter")
        assert entry is not None
        return int(entry.data.rpartition(b" ")[2])

    total = world.run(scenario(), seconds=10_000)
    # One that overwrote an answer that was lost before its client could read it counts what nobody knows of.
    assert total >= sum(done.values()) == 60


async def retried(commit: object, operation: object) -> None:
    while True:
        try:
            await commit(operation)  # type: ignore[operator]
            return
        except NodeExists:
            return
        except StoreError:
            await asyncio.sleep(0.1)


def test_a_session_that_cannot_be_reached_ends_and_its_nodes_go_with_it() -> None:
    world = World(1)
    ensemble = ensemble_of(world, session_timeout_s=2.0)

    async def scenario() -> None:
        mine, other = ensemble.connect("mine"), ensemble.connect("other")
        await mine.commit(Create("/mine", ephemeral=True))
        calls: list[float] = []
        other.watch_node("/mine", lambda: calls.append(world.loop.time()))
        started = world.loop.time()
        ensemble.cut("mine")
        assert mine.session.state is SessionState.SUSPENDED
        await asyncio.sleep(5)
        # Its creation may have been seen late as well.
        assert [at - started < 2.2 for at in calls if at - started >= 2.0] == [True]
        assert mine.session.state is SessionState.SUSPENDED, "it cannot know"
        old_id = mine.session.session_id
        states = []
        ensemble.heal("mine")
        while mine.session.state is not SessionState.CONNECTED:
            await mine.session.changed.wait()
            states.append(mine.session.state)
        assert states == [SessionState.LOST, SessionState.CONNECTED]
        assert mine.session.session_id != old_id
        assert await mine.get("/mine") is None
        await mine.close()
        await other.close()

    world.run(scenario(), seconds=100)


def test_an_ensemble_that_was_down_ends_no_session_while_its_clients_come_back() -> None:
    world = World(2)
    ensemble = ensemble_of(world, session_timeout_s=2.0)

    async def scenario() -> None:
        store = ensemble.connect("mine")
        await store.commit(Create("/mine", ephemeral=True))
        ensemble.go_down()
        await asyncio.sleep(100)
        with pytest.raises(StoreUnavailable):
            await store.get("/mine")
        ensemble.come_up()
        while store.session.state is not SessionState.CONNECTED:
            await store.session.changed.wait()
        assert await store.get("/mine") is not None
        await store.close()

    world.run(scenario(), seconds=1000)


def test_a_reader_may_be_behind_and_a_writer_never_misses_its_own_commit() -> None:
    world = World(3)
    ensemble = ensemble_of(world, lag_s_max=5.0, message_s_max=0.001)

    async def scenario() -> None:
        writer, reader = ensemble.connect("writer"), ensemble.connect("reader")
        await writer.commit(Create("/a", b"0"))
        behind = 0
        for number in range(1, 20):
            await writer.commit(Put("/a", str(number).encode()))
            own = await writer.get("/a")
            assert own is not None
            assert own.data == str(number).encode()
            others = await reader.get("/a")
            behind += others is None or others.data != own.data
        assert behind
        await writer.close()
        await reader.close()

    world.run(scenario(), seconds=1000)
