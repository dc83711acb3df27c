"""How many connections there may be and how fast they may come, by listener and by address. Time is virtual."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from ottla.testing.raw_requests import metadata
from ottla.testing.scene import Scene, perform
from ottla.testing.wire_client import WireClient


async def is_served(client: WireClient, timeout_s: float = 1.0) -> bool:
    try:
        return bool((await client.call(metadata(), 12, timeout_s=timeout_s)).brokers)
    except (OSError, TimeoutError):
        return False


@pytest.mark.parametrize("limit", ["max.connections", "listener.name.plaintext.max.connections"])
def test_whoever_comes_while_there_are_enough_waits_until_one_goes(limit: str) -> None:
    async def play(scene: Scene) -> None:
        clients = [await scene.connect() for _ in range(3)]
        for client in clients:
            assert await is_served(client)
        waiting = await scene.connect()
        answer = asyncio.create_task(waiting.call(metadata(), 12, timeout_s=60))
        await asyncio.sleep(5)
        assert not answer.done()
        clients[0].close()
        assert (await answer).brokers

    perform(play, {limit: "3"})


def test_a_limit_that_is_raised_lets_those_in_who_wait() -> None:
    async def play(scene: Scene) -> None:
        first = await scene.connect()
        assert await is_served(first)
        waiting = await scene.connect()
        answer = asyncio.create_task(waiting.call(metadata(), 12, timeout_s=60))
        await asyncio.sleep(5)
        assert not answer.done()
        server = scene.broker.server
        server.limits.connections_max = 2
        server.limits = server.limits
        assert (await answer).brokers

    perform(play, {"max.connections": "1"})


@pytest.mark.parametrize(
    "limit", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_that_come_too_fast_wait(limit: str) -> None:
    async def play(scene: Scene) -> None:
        started = scene.world.loop.time()
        for _ in range(40):
            client = await scene.connect()
            assert await is_served(client, 60)
            client.close()
        took_s = scene.world.loop.time() - started
        assert 8 < took_s < 20, "twenty at once, the others two per second"

    perform(play, {limit: "2"})


def quota(rate: float | None, ip: str | None) -> Any:
    op = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
    entry = AlterClientQuotasRequestEntryData(entity=[EntityData(entity_type="ip", entity_name=ip)], ops=[op])
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def test_an_address_that_makes_connections_too_fast_is_refused_and_no_other_is() -> None:
    async def play(scene: Scene) -> None:
        assert not (await scene.ask(quota(1.0, None), 1)).entries[0].error_code
        outcomes = []
        for _ in range(20):
            client = await scene.connect("10.0.0.1")
            outcomes.append(await is_served(client, 60))
            client.close()
        assert all(outcomes[:10])
        assert not all(outcomes)
        assert await is_served(await scene.connect("10.0.0.2"))
        await asyncio.sleep(20)
        assert await is_served(await scene.connect("10.0.0.1"))
        assert not (await scene.ask(quota(None, None), 1)).entries[0].error_code
        for _ in range(30):
            client = await scene.connect("10.0.0.1")
            assert await is_served(client)
            client.close()
        await asyncio.sleep(1000)
        assert not scene.broker.server._ip_rates, "what is measured of addresses is forgotten"
        assert not scene.broker.server._held

    perform(play)


def test_the_listener_of_brokers_is_not_kept_waiting_by_clients() -> None:
    settings = {
        "listeners": "CLIENTS://broker:9092,BROKERS://broker:9093",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "max.connections": "2",
    }

    async def play(scene: Scene) -> None:
        first, second = await scene.connect(), await scene.connect()
        assert await is_served(first)
        assert await is_served(second)
        host = scene.world.network.host("other-broker")
        broker = WireClient(await host.connect("broker", 9093))
        assert await is_served(broker)
        assert not await is_served(first), "the one that was idle longest made room"
        assert await is_served(second)
        broker.close()

    perform(play, settings)
