"""A world by itself: a real broker in it serves, stops, crashes and comes back, and every run can be replayed."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.records import batch
from ottla.testing.audit import audit
from ottla.testing.wire_client import WireClient
from ottla.testing.world import BrokerProcess, SimulationError, World

TOPIC = "orders"


async def connect(world: World, process: BrokerProcess) -> WireClient:
    return WireClient(await world.network.host("client").connect(*process.address))


async def create_topic(client: WireClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    response = await client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == ErrorCode.NONE, response


async def produce(client: WireClient, value: bytes) -> int:
    records = batch.build(None, [value], 1_700_000_000_000)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(records))])
    response = await client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.base_offset)


def stored(process: BrokerProcess) -> int:
    log = process.broker.replicas.find(TOPIC, 0).log
    assert log.name == TopicPartition(TOPIC, 0)
    audit(log)
    return log.end_offset


async def crash_in_an_operation(process: BrokerProcess) -> None:
    await process.disk_stops(3, written=0.5)
    await process.crash()


async def a_small_life(world: World) -> None:
    process = world.broker("broker-1")
    process.disk_delay_s = 0.05
    await process.start()
    client = await connect(world, process)
    await create_topic(client)
    for number in range(5):
        assert await produce(client, b"first") == number
    await process.stop()
    await process.start()
    client = await connect(world, process)
    assert stored(process) == 5
    for number in range(5):
        assert await produce(client, b"second") == 5 + number
    await process.crash()
    await process.start()
    assert stored(process) == 10
    await process.crash(power_loss=True)
    await process.start()
    assert 5 <= stored(process) <= 10
    await process.stop()


def digest_of(seed: int) -> str:
    world = World(seed)
    world.run(a_small_life(world), seconds=3600)
    return world.trace.digest


def test_a_broker_serves_stops_crashes_and_loses_power() -> None:
    digest_of(1)


def test_a_seed_replays_a_run_exactly_and_another_seed_is_another_run() -> None:
    first = digest_of(7)
    assert digest_of(7) == first
    assert digest_of(8) != first


def test_a_seed_replays_a_run_in_another_process_too(tmp_path: Any) -> None:
    """Neither the hashes of strings nor the addresses of objects may decide anything."""
    program = (
        "import importlib.util;"
        f"spec = importlib.util.spec_from_file_location('t', {__file__!r});"
        "t = importlib.util.module_from_spec(spec); spec.loader.exec_module(t); print(t.digest_of(7))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {digest_of(7)}


def test_a_crash_in_the_middle_of_an_operation_leaves_a_log_that_recovers() -> None:
    async def scenario(world: World) -> None:
        process = world.broker("broker-1")
        await process.start()
        client = await connect(world, process)
        await create_topic(client)
        for _ in range(20):
            acknowledged = stored(process)
            crash = asyncio.create_task(crash_in_an_operation(process))
            while not crash.done():
                try:
                    acknowledged = await produce(client, b"x" * 100) + 1
                except (OSError, TimeoutError):
                    await crash
            await process.start()
            assert acknowledged <= stored(process) <= acknowledged + 1
            client = await connect(world, process)
        await process.stop()

    world = World(3)
    world.run(scenario(world), seconds=3600)


def run_and_fail(main: Coroutine[Any, Any, None], world: World, seconds: float = 100) -> str:
    with pytest.raises(SimulationError) as caught:
        world.run(main, seconds=seconds, replay="make replay")
    return str(caught.value)


def test_a_run_that_lasts_too_long_fails_and_says_how_to_replay_it() -> None:
    message = run_and_fail(asyncio.sleep(101), World(11))
    assert "seed 11: TimeoutError" in message
    assert "to replay it: make replay" in message


def test_a_task_that_is_left_over_fails_the_run() -> None:
    async def scenario() -> None:
        world.loop.create_task(asyncio.sleep(1000), name="the-forgotten-one")

    world = World(1)
    assert "the-forgotten-one" in run_and_fail(scenario(), world)


def test_an_exception_that_nobody_sees_fails_the_run() -> None:
    async def fail() -> None:
        raise LookupError("nobody looks")

    async def scenario() -> None:
        world.loop.create_task(fail())
        await asyncio.sleep(1)

    world = World(1)
    assert "nobody looks" in run_and_fail(scenario(), world)


def test_an_error_in_the_log_fails_the_run() -> None:
    async def scenario() -> None:
        logging.getLogger("ottla.anything").error("this went wrong")

    assert "this went wrong" in run_and_fail(scenario(), World(1))
