"""Looks at everything in the end, through the ports for clients and from inside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.config.dynamic import DEFAULT_BROKER, ConfigResourceType, ConfigScope
from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.audit import audit
from ottla.testing.ledger import Bounds, Stored, whole_batches
from ottla.testing.soak.actor import LONG_POLL_MS, Topic
from ottla.testing.soak.admin import METADATA_VERSION
from ottla.testing.soak.readers import EARLIEST, OffsetAsker, received

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak


class Verdict(OffsetAsker):
    """The last client. All disks work, the network is quiet."""

    haste = 0.0

    def __init__(self, soak: Soak) -> None:
        super().__init__(soak, "verdict")

    async def find(self) -> None:
        await self._check_topics()
        self._check_settings()
        for topic in self.soak.topics.values():
            for partition in range(topic.partition_count):
                await self._check_partition(topic, partition)
        self.close()
        await asyncio.sleep(LONG_POLL_MS / 1000 + 1)  # the last long polls end, and goodbyes arrive
        self._check_nothing_is_left()
        ends = {key: bounds.end for key, bounds in self.soak.watch.bounds().items()}
        await self.soak.process.stop()
        await self.soak.process.start()
        survived = {key: bounds.end for key, bounds in self.soak.watch.bounds().items()}
        assert survived == ends, "a clean stop changed the logs"

    async def _check_topics(self) -> None:
        response = await self.call(MetadataRequest(topics=None), METADATA_VERSION)
        there = {topic.topic_id: topic for topic in response.topics}
        for topic in list(self.soak.topics.values()):
            if topic.topic_id not in there:
                self.soak.drop(topic)
            else:
                topic.partition_count = len(there[topic.topic_id].partitions)

    def _check_settings(self) -> None:
        configs = self.soak.process.broker.configs
        self.soak.settings.check(configs.overrides_of(DEFAULT_BROKER))
        for topic in self.soak.topics.values():
            topic.settings.check(configs.overrides_of(ConfigScope(ConfigResourceType.TOPIC, topic.name)))

    async def _check_partition(self, topic: Topic, partition: int) -> None:
        log = self.soak.process.broker.replicas.find(topic.name, partition).log
        licence = self.soak.ledger.licences.of(topic.key(partition))
        audit(log, may_have_gaps=licence.compacts)
        while True:
            answer = await self.list_offset(topic, partition, EARLIEST, 1)
            assert answer.error_code == ErrorCode.NONE, answer
            stored = await self._read_from(topic, partition, answer.offset)
            if stored is not None:
                break
        bounds = Bounds(answer.offset, log.end_offset)
        self.soak.ledger.check_whole(topic.key(partition), stored, bounds, self.soak.latest_ms())

    async def _read_from(self, topic: Topic, partition: int, position: int) -> list[Stored] | None:
        """All that there is from the beginning of a partition; None where retention was faster."""
        stored: list[Stored] = []
        while True:
            answer = await self._fetch(topic, partition, position)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            assert answer.error_code == ErrorCode.NONE, answer
            found = list(whole_batches(received(answer)))
            if not found:
                return stored
            for header, records in found:
                stored += records
                position = header.last_offset + 1
            assert position <= answer.high_watermark, answer

    async def _fetch(self, topic: Topic, partition: int, position: int) -> PartitionData:
        entry = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=10_000)
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic.name, partitions=[entry])])
        data: PartitionData = (await self.call(request, 4)).responses[0].partitions[0]
        return data

    def _check_nothing_is_left(self) -> None:
        broker = self.soak.process.broker
        self.soak.watch.look()
        assert not broker.server.connections, "all clients are gone, and connections are left"
        for partition in broker.replicas:
            waiter_count = partition.moved.waiter_count + partition.committed.waiter_count
            assert waiter_count == 0, f"somebody waits for {partition.name}, and nobody asks"
        assert len(broker.fetch_sessions) <= broker.config.max_incremental_fetch_session_cache_slots
