"""Transactions of version 2 that follow each other at once: the markers of one meet the records of the next.

Such markers have the epoch of the next transaction. In a cluster they come to some leaders while those ask the
coordinator about what that one writes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.transactions import EndTxnResponse
from ottla.testing.network import Conditions
from ottla.testing.raw_requests import create_topic, one_batch, produce
from ottla.testing.raw_transactions import GROUP_KEY, TRANSACTION_KEY, end_request, init_request, offsets_request
from ottla.testing.simulated_cluster import SimulatedCluster
from ottla.testing.world import World

TOPIC, ID, GROUP = "t", "tx", "group"
PARTITIONS = 6
ROUNDS = 12
PRODUCE_VERSION, END_VERSION, OFFSETS_VERSION = 12, 5, 5  # the first of version 2
SLOW = Conditions(latency_s=0.001, jitter_s=0.03)


class Producer:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[int, int] = {}
        self._ids = (-1, -1)

    async def start(self) -> None:
        for key_type, key in ((TRANSACTION_KEY, ID), (GROUP_KEY, GROUP)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            while (found := (await self._cluster.asked(1, request, 4)).coordinators[0]).error_code:
                await asyncio.sleep(0.1)
            self._coordinators[key_type] = found.node_id
        while (answer := await self._ask_coordinator(init_request(ID), 4)).error_code:
            await asyncio.sleep(0.1)
        self._ids = (answer.producer_id, answer.producer_epoch)

    async def _ask_coordinator(self, request: object, version: int) -> Any:
        return await self._cluster.asked(self._coordinators[TRANSACTION_KEY], request, version)

    async def send(self, partition: int) -> ErrorCode:
        producer_id, epoch = self._ids
        records = one_batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        request = produce(TOPIC, records, partition=partition, transactional_id=ID)
        leader = self._cluster.states()[TopicPartition(TOPIC, partition)].leader
        answer = await self._cluster.asked(leader, request, PRODUCE_VERSION)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def commit_offsets(self) -> ErrorCode:
        request = offsets_request(ID, *self._ids, GROUP, TOPIC, 1)
        answer = await self._cluster.asked(self._coordinators[GROUP_KEY], request, OFFSETS_VERSION)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end(self) -> None:
        answer: EndTxnResponse = await self._ask_coordinator(end_request(ID, *self._ids, commit=True), END_VERSION)
        assert not answer.error_code
        self._ids = (answer.producer_id, answer.producer_epoch)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_while_markers_of_the_transaction_before_come_belongs_to_the_next(seed: int) -> None:
    world = World(seed, SLOW)
    cluster = SimulatedCluster(world, settings={"add.partitions.to.txn.retry.backoff.max.ms": "60000"})

    async def scenario() -> None:
        await cluster.start()
        await cluster.asked(1, create_topic(TOPIC, PARTITIONS, 3), 5)
        await cluster.settle(is_quiet=True)
        producer = Producer(cluster)
        await producer.start()
        for _ in range(ROUNDS):
            writes = [producer.send(partition) for partition in range(PARTITIONS)]
            assert set(await asyncio.gather(*writes, producer.commit_offsets())) == {ErrorCode.NONE}
            await producer.end()
        await cluster.close()

    world.run(scenario(), seconds=600)
