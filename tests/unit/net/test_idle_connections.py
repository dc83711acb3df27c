"""Which connections are closed because nothing happens on them. Time is virtual: none of it is measured."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing.raw_requests import fetch, metadata
from ottla.testing.scene import Scene, perform
from ottla.testing.wire_client import WireClient

IDLE_S = 600
SETTINGS = {"connections.max.idle.ms": str(IDLE_S * 1000)}


async def is_served(client: WireClient) -> bool:
    try:
        return bool((await client.call(metadata(), 12)).brokers)
    except OSError:
        return False


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic()
        idle, half_open, polling, working = [await scene.connect() for _ in range(4)]
        await asyncio.get_running_loop().sock_sendall(half_open._socket, b"\0\0")
        poll = asyncio.create_task(polling.call(fetch("t", max_wait_ms=3 * IDLE_S * 1000), 11, timeout_s=4 * IDLE_S))
        for _ in range(4):
            await asyncio.sleep(IDLE_S / 2)
            assert await is_served(working)
        assert not await is_served(idle)
        assert not await is_served(half_open)
        assert not poll.done(), "who waits for records is busy"
        assert (await poll).responses[0].partitions[0].error_code == 0
        assert await is_served(polling), "it was idle for a moment only"

    perform(play, SETTINGS, seconds=10 * IDLE_S)


def test_a_connection_that_is_just_within_its_time_stays() -> None:
    async def play(scene: Scene) -> None:
        client = await scene.connect()
        for _ in range(5):
            await asyncio.sleep(IDLE_S * 0.95)
            assert await is_served(client)
        await asyncio.sleep(IDLE_S * 1.3)
        assert not await is_served(client)

    perform(play, SETTINGS, seconds=20 * IDLE_S)


@pytest.mark.parametrize("limit", ["max.connections", "max.connections.per.ip"])
def test_limits_count_those_who_are_there(limit: str) -> None:
    async def play(scene: Scene) -> None:
        for _ in range(10):  # they come and go, more often than the limit
            clients = [await scene.connect("one-host") for _ in range(3)]
            for client in clients:
                assert await is_served(client)
            refused = await scene.connect("one-host")
            assert not await is_served(refused)
            scene.hang_up()
            await asyncio.sleep(1)

    perform(play, {limit: "3"})
