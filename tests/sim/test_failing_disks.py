"""Disks that fail under a broker, in a simulated world: what soaks have found, one by one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch
from ottla.testing.wire_client import WireClient
from ottla.testing.world import EPOCH_MS, BrokerProcess, SlowOffload, World

DIRECTORIES: Final = ("/data-0", "/data-1")
TOPIC: Final = "orders"


class Stage:
    """A broker with two log directories, and a client."""

    def __init__(self) -> None:
        self.world = World(1)
        self.process: BrokerProcess = self.world.broker(
            "broker-1",
            {
                "log.dirs": ",".join(DIRECTORIES),
                "log.retention.check.interval.ms": "1000",
                "log.cleaner.backoff.ms": "1000",
            },
        )
        self.world.excuses = lambda message: DIRECTORIES[1] in message

    def play(self, scenario: Callable[[Stage], Awaitable[None]]) -> None:
        async def whole() -> None:
            await self.process.start()
            await scenario(self)
            await self.process.stop()

        self.world.run(whole(), seconds=3600)

    async def client(self) -> WireClient:
        return WireClient(await self.world.network.host("client").connect(*self.process.address))

    async def create(self, partitions: int, settings: dict[str, str] | None = None) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in (settings or {}).items()],
        )
        (result,) = (await (await self.client()).call(CreateTopicsRequest(topics=[topic]), 7)).topics
        assert result.error_code == ErrorCode.NONE, result

    async def delete(self) -> None:
        state = DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
        (result,) = (await (await self.client()).call(request, 6)).responses
        assert result.error_code == ErrorCode.NONE, result

    async def produce(self, partition: int, value: bytes = b"x" * 100) -> tuple[int, int]:
        """Error code and offset."""
        records = bytes(batch.build([b"key"], [value], EPOCH_MS))
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=records)])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        answer = (await (await self.client()).call(request, 9)).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def restart(self) -> None:
        await self.process.stop()
        self.process.disk.heal()
        await self.process.start()

    def partitions_on(self, directory: str) -> list[int]:
        return [
            partition.name.partition
            for partition in self.process.broker.replicas
            if partition.log.directory.startswith(directory)
        ]


def test_retention_goes_on_where_a_directory_fails_under_one_of_its_partitions() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(4, {"internal.segment.bytes": "200", "retention.bytes": "300"})
        for partition in range(4):
            for _ in range(8):
                assert (await stage.produce(partition))[0] == ErrorCode.NONE
        stage.process.disk.fail("/data-1/*", "rename", errno.EIO)
        await asyncio.sleep(2)
        assert not stage.process.broker.logs.directories[1].is_online
        for partition in stage.partitions_on("/data-0"):
            assert stage.process.broker.replicas.find(TOPIC, partition).log.log_start_offset > 0

    Stage().play(scenario)


def test_a_disk_that_fails_under_compaction_takes_its_directory_offline_and_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(
            2, {"internal.segment.bytes": "200", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        )
        for partition in range(2):
            for _ in range(8):
                assert (await stage.produce(partition))[0] == ErrorCode.NONE
        stage.process.disk.fail("/data-1/*.cleaned", "write", errno.EIO)
        await asyncio.sleep(8)
        assert not stage.process.broker.logs.directories[1].is_online
        (partition,) = stage.partitions_on("/data-0")
        assert stage.process.broker.logs.clean_offset(stage.process.broker.replicas.find(TOPIC, partition).name) > 0

    Stage().play(scenario)


def test_a_producer_id_that_cannot_be_saved_is_asked_for_again_over_the_same_connection() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        fault = stage.process.disk.fail("/data-0/.ottla-metadata/*", "write", errno.ENOSPC)
        refused = ErrorCode((await client.call(request, 4)).error_code)
        assert refused.retriable, refused.name
        stage.process.disk.heal(fault)
        assert (await client.call(request, 4)).error_code == ErrorCode.NONE

    Stage().play(scenario)


def test_a_partition_that_could_not_be_made_on_a_failing_disk_is_not_there_twice_afterwards() -> None:
    """It would be found on the first directory, empty, and what was acknowledged on the other one would be gone."""

    async def scenario(stage: Stage) -> None:
        stage.world.excuses = lambda message: DIRECTORIES[0] in message
        stage.process.disk.fail("/data-0/orders-*/partition.metadata*", "write", errno.EIO)
        await stage.create(2)
        outcomes = [await stage.produce(partition) for partition in range(2)]
        assert (ErrorCode.NONE, 0) in outcomes, "the other directory works"
        await stage.restart()
        for partition, (error_code, _) in enumerate(outcomes):
            is_there = error_code == ErrorCode.NONE
            assert await stage.produce(partition) == (ErrorCode.NONE, 1 if is_there else 0)

    Stage().play(scenario)


def test_a_topic_that_is_deleted_and_made_anew_while_its_disk_is_offline_begins_anew() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(2)
        for partition in range(2):
            assert await stage.produce(partition, b"old") == (ErrorCode.NONE, 0)
        fault = stage.process.disk.fail("/data-1/*", "write", errno.EIO)
        (lost,) = stage.partitions_on("/data-1")
        assert (await stage.produce(lost))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        await stage.delete()
        stage.process.disk.heal(fault)
        await stage.create(2)
        assert await stage.produce(lost, b"new") == (ErrorCode.NONE, 0)
        await stage.restart()
        assert await stage.produce(lost, b"newer") == (ErrorCode.NONE, 1)
        aside = [name for name in stage.process.disk.list_directory("/data-1") if name.endswith("-stray")]
        assert len(aside) == 1, "what was not asked to go is kept"

    Stage().play(scenario)


def test_a_topic_of_an_old_name_is_made_where_the_old_one_was_left_behind() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(2)
        stage.process.disk.fail("/data-1/*", "write", errno.EIO)
        (lost,) = stage.partitions_on("/data-1")
        assert (await stage.produce(lost))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        await stage.delete()
        await stage.restart()
        await stage.create(2)
        for partition in range(2):
            assert await stage.produce(partition) == (ErrorCode.NONE, 0)

    Stage().play(scenario)


def test_a_compaction_whose_segments_retention_takes_meanwhile_is_given_up_without_harm() -> None:
    async def scenario(stage: Stage) -> None:
        stage.world.excuses = lambda message: False
        settings = {"internal.segment.bytes": "200", "cleanup.policy": "compact,delete", "retention.bytes": "2000"}
        await stage.create(1, settings | {"min.cleanable.dirty.ratio": "0", "flush.messages": "1"})
        for _ in range(8):
            await stage.produce(0)
        await asyncio.sleep(1.5)  # flushed, and to be compacted in the next second
        offload = stage.process.broker.offload
        assert isinstance(offload, SlowOffload)
        offload.delay_s = 20.0
        await asyncio.sleep(1.0)
        for _ in range(30):
            await stage.produce(0)
        await asyncio.sleep(30.0)
        assert stage.process.broker.replicas.find(TOPIC, 0).log.log_start_offset > 8
        assert all(directory.is_online for directory in stage.process.broker.logs.directories)

    Stage().play(scenario)


def test_a_topic_that_grows_while_a_disk_is_offline_does_not_make_its_lost_partitions_anew() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(2)
        for partition in range(2):
            assert await stage.produce(partition) == (ErrorCode.NONE, 0)
        stage.process.disk.fail("/data-1/*", "write", errno.EIO)
        (lost,) = stage.partitions_on("/data-1")
        assert (await stage.produce(lost))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        grown = CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
        (result,) = (await (await stage.client()).call(request, 3)).results
        assert result.error_code == ErrorCode.NONE, result
        assert (await stage.produce(lost))[0] in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await stage.restart()
        assert await stage.produce(lost) == (ErrorCode.NONE, 1)

    Stage().play(scenario)
