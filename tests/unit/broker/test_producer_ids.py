"""Producer ids come in blocks, and none is given out twice, whoever asks."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.cluster import nodes
from ottla.errors import ApiError
from ottla.testing.memory_store import MemoryStore


def test_ids_rise_from_0_and_a_block_costs_one_write() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        ids = ProducerIds(store, 1)
        assert [await ids.next() for _ in range(BLOCK_SIZE + 2)] == list(range(BLOCK_SIZE + 2))
        node = await store.get(nodes.PRODUCER_IDS)
        assert node is not None
        assert node.version == 1, "two writes for a thousand and two ids"
        assert node.data == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'

    asyncio.run(scenario())


def test_brokers_and_restarts_never_share_an_id() -> None:
    async def scenario() -> None:
        store = MemoryStore(delay=lambda: asyncio.sleep(0))
        taken: list[int] = []

        async def one_life(node_id: int) -> None:
            ids = ProducerIds(store, node_id)
            for _ in range(3):
                taken.append(await ids.next())
                await asyncio.sleep(0)

        await asyncio.gather(*(one_life(number % 3) for number in range(12)))
        assert len(set(taken)) == len(taken) == 36

    asyncio.run(scenario())


def test_many_who_ask_at_once_get_different_ids() -> None:
    async def scenario() -> None:
        ids = ProducerIds(MemoryStore(delay=lambda: asyncio.sleep(0)), 1)
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(50)))) == list(range(50))

    asyncio.run(scenario())


def test_a_store_that_fails_gives_none_and_the_next_try_works() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        ids = ProducerIds(store, 1)
        store._failure = OSError("full")
        with pytest.raises(ApiError, match="try again") as refused:
            await ids.next()
        assert refused.value.code.retriable
        store._failure = None
        assert await ids.next() == 0

    asyncio.run(scenario())
