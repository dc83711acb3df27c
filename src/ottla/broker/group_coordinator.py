"""The coordinator of groups: which topic keeps them, and how changes of topics reach their machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from uuid import UUID

from ottla.broker.coordinators import Coordinator, CoordinatorParts, CoordinatorShard
from ottla.broker.journal import Replay
from ottla.broker.metadata_changes import RequestedTopic
from ottla.cluster.image import ClusterImage, TopicState
from ottla.config.broker import BrokerConfig
from ottla.config.group import GroupConfig
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import TopicInfo, TopicsView
from ottla.records.layout import Compression

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator(Coordinator[GroupMachine]):
    """The groups that this broker coordinates."""

    def __init__(self, parts: CoordinatorParts, config_of: Callable[[str], GroupConfig], rng: random.Random) -> None:
        """`config_of`: the settings of one group."""
        super().__init__(
            parts,
            OFFSETS_TOPIC,
            make_machine=self._new_machine,
            make_replay=lambda machine: Replay(machine.replay, machine.complete_transaction),
            new_topic=offsets_topic,
            compression=lambda: Compression(parts.config().offsets_topic_compression_codec),
        )
        self._config_of = config_of
        self._rng = rng
        self._image: ClusterImage | None = None
        # Of all brokers that were ever seen: a broker that goes for a while takes no rack away.
        self._racks: dict[int, str | None] = {}
        self._view = TopicsView()

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(GroupSettings.of(self._parts.config()), self._view, self._new_id, self._config_of)

    def _new_id(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def update_image(self, image: ClusterImage) -> None:
        racks = {**self._racks, **{node.node_id: node.rack for node in image.brokers.values()}}
        earlier, self._image = self._image, image
        if racks != self._racks:
            self._racks, earlier, self._view = racks, None, TopicsView()
        changes = image.changes_since(earlier)
        if changes.changed or changes.removed:
            removed = [topic.name for topic in changes.removed]
            self._view = self._view.changed(topic_infos(changes.changed, racks), removed)
            for shard in self._shards.values():
                if removed:  # offsets of a deleted topic go, thousands perhaps from each
                    self._parts.turns.in_line(partial(self._report_topics, shard))
                else:
                    self._report_topics(shard)
        super().update_image(image)

    def configure(self, config: BrokerConfig) -> None:
        """Settings changed: machines take them at once."""
        settings = GroupSettings.of(config)
        for shard in self._shards.values():
            shard.machine.configure(settings)

    def _start(self, shard: CoordinatorShard[GroupMachine]) -> None:
        super()._start(shard)
        self._report_topics(shard)  # what happened while it was being loaded

    def _report_topics(self, shard: CoordinatorShard[GroupMachine]) -> None:
        if shard.runner is not None and not shard.runner.is_over and shard.partition.is_leader:
            now_ms = shard.runner.now_ms()
            shard.runner.carry_out(shard.machine.topics_changed(self._view, now_ms), now_ms)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """A marker stands in a partition of the offsets topic. One that is being loaded finds it in its log."""
        shard = self._shards.get(partition)
        if shard is not None and shard.runner is not None:
            shard.runner.take_in(
                lambda machine: machine.complete_transaction(producer_id, committed), shard.partition.log.end_offset
            )


def topic_infos(topics: Iterable[TopicState], racks: Mapping[int, str | None]) -> dict[str, TopicInfo]:
    """What groups need to know of these topics, with the racks of their replicas."""

    @cache
    def racks_of(replicas: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(sorted(rack for replica in replicas if (rack := racks.get(replica)) is not None))

    has_racks = any(rack is not None for rack in racks.values())
    return {
        topic.name: TopicInfo(
            topic.topic_id,
            len(topic.partitions),
            tuple(racks_of(partition.replicas) for partition in topic.partitions) if has_racks else (),
        )
        for topic in topics
    }


def offsets_topic(config: BrokerConfig) -> RequestedTopic:
    return RequestedTopic(
        OFFSETS_TOPIC,
        partition_count=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )
