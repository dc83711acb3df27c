"""How ends of transactions and the records that come meanwhile meet: the whole broker, in a world without real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.marker_delivery import MARKERS_AT_ONCE_MAX
from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.transactions import DescribeTransactionsRequest
from ottla.records.layout import Compression
from ottla.storage.admission import DECOMPRESSED_AT_ONCE_BYTES_MAX
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import (
    TRANSACTION_KEY,
    add_request,
    end_request,
    init_request,
    marker_request,
)
from ottla.testing.wire_client import WireClient
from ottla.testing.world import BrokerProcess, World

TOPIC, ID = "t", "tx"
SETTINGS = {"transaction.state.log.num.partitions": "1"}
WAIT_S = 30.0


class Producer:
    """A transactional producer of version 1, whose epochs stay what they are."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.producer_id, self.epoch = -1, -1

    async def start(self) -> None:
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[ID])
        while (await self.client.call(request, 4)).coordinators[0].error_code:
            await asyncio.sleep(0.01)
        while (answer := await self.client.call(init_request(ID), 4)).error_code:
            await asyncio.sleep(0.01)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self, *partitions: int) -> None:
        while True:
            answer = await self.client.call(add_request(ID, self.producer_id, self.epoch, TOPIC, *partitions), 3)
            (topic,) = answer.results_by_topic_v3_and_below
            codes = {one.partition_error_code for one in topic.results_by_partition}
            if codes != {ErrorCode.CONCURRENT_TRANSACTIONS}:
                break
            await asyncio.sleep(0.01)
        assert codes == {ErrorCode.NONE}

    def batch(self, sequence: int, *values: bytes, **options: Any) -> bytes:
        of_producer: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
        }
        return one_batch(*values, is_transactional=True, **of_producer, **options)

    async def send(self, records: bytes, partition: int = 0) -> Any:
        request = produce(TOPIC, records, partition=partition, transactional_id=ID)
        return (await self.client.call(request, 11)).responses[0].partition_responses[0]

    async def end(self, client: WireClient, *, commit: bool) -> ErrorCode:
        answer = await client.call(end_request(ID, self.producer_id, self.epoch, commit=commit), 4)
        return ErrorCode(answer.error_code)

    async def wait_for_state(self, state: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[ID])
        async with asyncio.timeout(WAIT_S):
            while (await self.client.call(request, 0)).transaction_states[0].transaction_state != state:
                await asyncio.sleep(0.05)


Connect = Callable[[], Coroutine[Any, Any, WireClient]]
Scenario = Callable[[BrokerProcess, Connect], Coroutine[Any, Any, None]]


def in_a_world(scenario: Scenario) -> None:
    """Plays a scenario with one broker and connections to it."""
    world = World(seed=1)

    async def play() -> None:
        process = world.broker("broker", SETTINGS)
        await process.start()
        clients: list[WireClient] = []

        async def connect() -> WireClient:
            clients.append(WireClient(await world.network.host("client").connect(*process.address)))
            return clients[-1]

        await scenario(process, connect)
        for client in clients:
            client.close()
        await process.stop()

    world.run(play(), seconds=600)


async def last_stable_offset(client: WireClient) -> tuple[int, int]:
    found = (await client.call(fetch(TOPIC, isolation_level=1), 11)).responses[0].partitions[0]
    return found.high_watermark, found.last_stable_offset


@pytest.mark.parametrize("count", [1, MARKERS_AT_ONCE_MAX + 6], ids=["small", "large"])
def test_the_end_of_every_transaction_of_an_id_is_told_not_only_of_the_first(count: int) -> None:
    async def scenario(process: BrokerProcess, connect: Connect) -> None:
        client = await connect()
        assert not (await client.call(create_topic(TOPIC, count), 7)).topics[0].error_code
        producer = Producer(client)
        await producer.start()
        for number in range(3):
            await producer.add(*range(count))
            assert not (await producer.send(producer.batch(number, b"v"))).error_code
            assert await producer.end(client, commit=True) == ErrorCode.NONE
            await producer.wait_for_state("CompleteCommit")
            assert await last_stable_offset(client) == (2 * number + 2, 2 * number + 2)

    in_a_world(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_that_was_checked_while_its_transaction_ended_is_refused(commit: bool) -> None:
    async def scenario(process: BrokerProcess, connect: Connect) -> None:
        client, other = await connect(), await connect()
        assert not (await client.call(create_topic(TOPIC, 1), 7)).topics[0].error_code
        producer = Producer(client)
        await producer.start()
        await producer.add(0)
        assert not (await producer.send(producer.batch(0, b"v"))).error_code
        process.broker.offload.delay_s = 10.0  # type: ignore[attr-defined]
        large = producer.batch(1, bytes(DECOMPRESSED_AT_ONCE_BYTES_MAX), compression=Compression.GZIP)
        sending = asyncio.create_task(producer.send(large))
        await asyncio.sleep(0.5)
        assert not sending.done()
        assert await producer.end(other, commit=commit) == ErrorCode.NONE
        answer = await sending
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert await last_stable_offset(client) == (2, 2), "nothing is open that no end would reach"

    in_a_world(scenario)


def test_an_end_that_a_later_coordinator_has_written_is_not_told_again() -> None:
    async def scenario(process: BrokerProcess, connect: Connect) -> None:
        client = await connect()
        assert not (await client.call(create_topic(TOPIC, 2), 7)).topics[0].error_code
        producer = Producer(client)
        await producer.start()
        await producer.add(0, 1)
        for partition in range(2):
            assert not (await producer.send(producer.batch(0, b"v"), partition)).error_code
        marker = marker_request(producer.producer_id, producer.epoch, TOPIC, 0, commit=True, coordinator_epoch=99)
        assert not (await client.call(marker, 1)).markers[0].topics[0].partitions[0].error_code
        assert await producer.end(client, commit=True) == ErrorCode.NONE
        await producer.wait_for_state("CompleteCommit")
        assert await last_stable_offset(client) == (2, 2)

    in_a_world(scenario)


def test_a_coordinator_that_was_deposed_does_not_try_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(process: BrokerProcess, connect: Connect) -> None:
        client = await connect()
        assert not (await client.call(create_topic(TOPIC, 1), 7)).topics[0].error_code
        producer = Producer(client)
        await producer.start()
        await producer.add(0)
        marker = marker_request(producer.producer_id, producer.epoch, TOPIC, 0, commit=True, coordinator_epoch=99)
        assert not (await client.call(marker, 1)).markers[0].topics[0].partitions[0].error_code
        assert not (await producer.send(producer.batch(0, b"v"))).error_code
        caplog.clear()
        assert await producer.end(client, commit=True) == ErrorCode.NONE
        await asyncio.sleep(120)
        await producer.wait_for_state("PrepareCommit")
        assert await last_stable_offset(client) == (2, 1)

    with caplog.at_level("INFO", "ottla.broker.marker_delivery"):
        in_a_world(scenario)
    told = [record.levelname for record in caplog.records if "marker" in record.message]
    assert told == ["WARNING", "WARNING", "INFO"], "at once, by the task, and left"
