"""Our producer and a real broker in a world that does its worst: every record once, in order, each future decided once.

What the network and the broker do is a function of the seed: connections are reset, hosts are cut off, the broker is
stopped and killed. The delivery timeout is longer than any of that, so every record has to arrive.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from ottla.aio import Producer
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.records import batch
from ottla.testing.seeds import portion_id, portions
from ottla.testing.simulated_connector import simulated_connector
from ottla.testing.wire_client import WireClient
from ottla.testing.world import EPOCH_MS, BrokerProcess, World

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 120


async def create_topic(world: World, process: BrokerProcess) -> None:
    client = WireClient(await world.network.host("admin").connect(*process.address))
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    await client.call(CreateTopicsRequest(topics=[topic]), 7)
    client.close()


async def do_harm(world: World, process: BrokerProcess, rng: random.Random) -> None:
    for _ in range(rng.randrange(2, 7)):
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        match rng.randrange(4):
            case 0:
                for sock in world.network.connections("client"):
                    world.network.reset(sock)
            case 1:
                world.network.cut("client", process.name)
                await asyncio.sleep(rng.uniform(0.0, 4.0))
                world.network.heal()
            case 2:
                await process.stop()
                await asyncio.sleep(rng.uniform(0.0, 2.0))
                await process.start()
            case 3:
                await process.crash()
                await asyncio.sleep(rng.uniform(0.0, 2.0))
                await process.start()


def stored(process: BrokerProcess, partition: int) -> list[bytes]:
    log = process.broker.replicas.find(TOPIC, partition).log
    values: list[bytes] = []
    while (piece := log.read(len(values), 1)) is not None:  # a batch
        values += [bytes(value or b"") for value in batch.decode(piece.records.read()).values]
    return values


async def scenario(world: World, seed: int) -> None:
    rng = random.Random(seed)
    process = world.broker("broker-1")
    await process.start()
    await create_topic(world, process)
    host, port = process.address
    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=f"{host}:{port}",
        connector=simulated_connector(world.network.host("client")),
        linger_s=rng.choice([0.0, 0.005, 0.1]),
        batch_size=rng.choice([0, 200, 16384]),
        buffer_memory=rng.choice([2_000, 32 * 1024 * 1024]),
        request_timeout_s=2.0,
        delivery_timeout_s=600.0,
        max_block_s=600.0,
        compression_type=rng.choice(["none", "lz4"]),
    )
    producer._rng.seed(seed)
    decided: Counter[bytes] = Counter()
    order: dict[int, list[int]] = {}
    harm = asyncio.create_task(do_harm(world, process, rng))
    async with producer:
        futures = []
        for number in range(RECORDS):
            value = b"%d" % number

            def delivered(metadata, error, value=value) -> None:
                assert error is None, error
                decided[value] += 1
                order.setdefault(metadata.partition, []).append(metadata.offset)

            partition = number % PARTITIONS if number % 5 else None
            futures.append(producer.send(TOPIC, value, partition=partition, timestamp=EPOCH_MS, on_delivery=delivered))
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.01, 0.05]))
            if number % 40 == 39:
                await producer.room()
        places = [await future for future in futures]
        await harm
    assert set(decided.values()) == {1}
    assert len(decided) == RECORDS
    for offsets in order.values():
        told = [offset for offset in offsets if offset >= 0]
        assert told == sorted(told)
    found = [stored(process, partition) for partition in range(PARTITIONS)]
    assert Counter(value for values in found for value in values) == decided
    for number, place in enumerate(places):
        if place.offset >= 0:  # else it is in the log, and its answer was lost
            assert found[place.partition][place.offset] == b"%d" % number
    for partition, values in enumerate(found):
        named = [int(value) for value in values if int(value) % 5 and int(value) % PARTITIONS == partition]
        assert named == sorted(named)
    assert producer._accumulator.pool.available_bytes == producer._accumulator.pool.limit_bytes
    await process.stop()


@pytest.mark.parametrize("seeds", portions(30, per_test=10), ids=portion_id)
def test_every_record_arrives_once_and_in_order(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        world.run(scenario(world, seed), seconds=3600, replay=f"OTTLA_SIM_SEED={seed} pytest {__file__}")
