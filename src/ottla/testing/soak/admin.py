"""Clients that change the cluster: topics and their partitions, settings, and where a log begins."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Mapping
from typing import Final

from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.testing.ledger import EVERYTHING, Licence
from ottla.testing.soak.actor import GONE, Actor, Disconnected, Topic

TOPICS: Final = ("orders", "payments", "events")
PARTITIONS_MAX: Final = 4
METADATA_VERSION: Final = 12
SET: Final = 0  # the operation of an IncrementalAlterConfigs
DAY_MS: Final = 86_400_000


def licence_of(settings: Mapping[str, str]) -> Licence:
    """What settings of a topic or of the broker let go."""

    def limit(*names: str) -> float:
        wanted = (float(settings[name]) for name in names if name in settings)
        return min((value for value in wanted if value >= 0), default=math.inf)

    is_compacted = "compact" in settings.get("cleanup.policy", "")
    return Licence(
        retention_ms=limit("retention.ms", "log.retention.ms"),
        retention_bytes=limit("retention.bytes", "log.retention.bytes"),
        compacts=is_compacted,
        tombstones_ms=min(limit("delete.retention.ms"), DAY_MS if is_compacted else math.inf),
    )


class Admin(Actor):
    """Makes topics, changes and deletes some; after an unclear answer it looks at what exists."""

    async def think(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.05, 1.0))

    async def act(self) -> None:
        topic = self.soak.topics.get(name := self.rng.choice(TOPICS))
        climate = self.soak.climate
        try:
            if topic is None:
                await self._create(name)
            elif self.rng.random() < 0.2:
                await self._delete(topic)
            elif climate.adds_partitions and self.rng.random() < 0.4 and topic.partition_count < PARTITIONS_MAX:
                await self._add_partition(topic)
            elif climate.alters_configs and self.rng.random() < 0.7:
                await self._alter_topic(topic)
            elif climate.alters_configs:
                await self._alter_broker()
        except Disconnected:
            while not await self._look_again():
                await self.think()

    def _check(self, error_code: int, asked_at: float, *expected: int) -> None:
        """Disconnected where the answer leaves open what happened; an error that nothing explains is one of ours."""
        if error_code != ErrorCode.NONE and error_code not in expected:
            assert error_code == ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode(error_code).name
            assert self.soak.metadata_sickness.was_there_since(asked_at), "the metadata store works, and says no"
        if error_code != ErrorCode.NONE:
            raise Disconnected

    async def _create(self, name: str) -> None:
        settings = self.soak.climate.topic_settings(self.rng)
        item = CreatableTopic(
            name=name,
            num_partitions=self.rng.randint(1, 3),
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
        )
        asked_at, licence = self.soak.time(), licence_of(settings)
        with self.soak.ledger.licences.asking(name, licence):
            (result,) = (await self.call(CreateTopicsRequest(topics=[item]), 7)).topics
            # There already: an earlier attempt arrived after we looked.
            self._check(result.error_code, asked_at, ErrorCode.TOPIC_ALREADY_EXISTS)
        self.soak.ledger.licences.grant(result.topic_id, licence)
        self.soak.topics[name] = Topic(name, result.topic_id, result.num_partitions, settings)

    async def _delete(self, topic: Topic) -> None:
        topic.is_doomed = True
        self.soak.reused_names.add(topic.name)
        asked_at = self.soak.time()
        state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        (result,) = (await self.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)).responses
        if result.error_code not in GONE:  # gone already: by an earlier attempt
            self._check(result.error_code, asked_at)
        self.soak.drop(topic)

    async def _add_partition(self, topic: Topic) -> None:
        asked_at = self.soak.time()
        item = CreatePartitionsTopic(name=topic.name, count=topic.partition_count + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[item], timeout_ms=1000, validate_only=False)
        (result,) = (await self.call(request, 3)).results
        # Too many already: an earlier attempt arrived after we looked.
        self._check(result.error_code, asked_at, ErrorCode.INVALID_PARTITIONS, *(GONE if topic.is_doomed else ()))
        topic.partition_count += 1

    async def _alter_topic(self, topic: Topic) -> None:
        setting = self.soak.climate.changed_topic_setting(self.rng)
        await self._alter(ConfigResourceType.TOPIC, topic.name, setting, (topic.name, topic.topic_id), topic)

    async def _alter_broker(self) -> None:
        setting = self.soak.climate.changed_broker_setting(self.rng)
        await self._alter(ConfigResourceType.BROKER, "", setting, (EVERYTHING, EVERYTHING), None)

    async def _alter(
        self,
        kind: ConfigResourceType,
        resource: str,
        setting: tuple[str, str],
        scopes: tuple[Hashable, Hashable],
        topic: Topic | None,
    ) -> None:
        name, value = setting
        entry = IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=SET, value=value)
        item = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind, resource_name=resource, configs=[entry]
        )
        asked_at, licence = self.soak.time(), licence_of({name: value})
        while_asked, from_now_on = scopes
        settings = self.soak.settings if topic is None else topic.settings
        with self.soak.ledger.licences.asking(while_asked, licence), settings.asking(name, value):
            request = IncrementalAlterConfigsRequest(resources=[item], validate_only=False)
            (result,) = (await self.call(request, 1)).responses
            self._check(result.error_code, asked_at, *(GONE if topic is not None and topic.is_doomed else ()))
        self.soak.ledger.licences.grant(from_now_on, licence)

    async def _look_again(self) -> bool:
        """Brings what is known in line with what exists; whether the broker could be asked."""
        try:
            response = await self.call(MetadataRequest(topics=None), METADATA_VERSION)
        except Disconnected:
            return not self.soak.is_on
        there = {topic.topic_id: topic for topic in response.topics}
        for topic in list(self.soak.topics.values()):
            if topic.topic_id not in there:
                self.soak.drop(topic)
        for topic_id, topic in there.items():
            known = self.soak.topics.get(topic.name)
            if known is None:
                self.soak.topics[topic.name] = Topic(topic.name, topic_id, len(topic.partitions))
            else:
                assert len(topic.partitions) >= known.partition_count, f"{topic.name} has lost a partition"
                known.partition_count = len(topic.partitions)
        return True


class Janitor(Actor):
    """Deletes records from the beginning of logs."""

    async def think(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    async def act(self) -> None:
        topic = self.soak.some_topic(self.rng)
        if topic is None:
            return
        ledger, partition = self.soak.ledger, self.rng.randrange(topic.partition_count)
        key = topic.key(partition)
        end, losses, asked_at = ledger.high_watermark(key), ledger.losses, self.soak.time()
        offset = -1 if self.rng.random() < 0.2 else self.rng.randint(0, end)
        item = DeleteRecordsTopic(
            name=topic.name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        # -1 is wherever the log ends when the request is served.
        with ledger.licences.asking((topic.name, partition), Licence(below=math.inf if offset == -1 else offset)):
            response = await self.call(DeleteRecordsRequest(topics=[item], timeout_ms=1000), 2)
            result = response.topics[0].partitions[0]
            if topic.is_doomed:
                raise Disconnected  # the next topic of that name may have answered
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and losses != ledger.losses:
                return
            if result.error_code == ErrorCode.POLICY_VIOLATION and ledger.licences.of(key).compacts:
                return  # its cleanup policy deletes nothing
            if self.refuses(result.error_code, asked_at, topic):
                return
            assert result.low_watermark >= (end if offset == -1 and losses == ledger.losses else offset), result
            ledger.licences.grant(key, Licence(below=result.low_watermark if offset == -1 else offset))
