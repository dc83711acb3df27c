"""What a controller knows during its term: brokers, topics, what is offline, what is being deleted. Pure.

It is built by one reading of the metadata store and changes only by what was written there, so it can be dropped whole
when the term ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from ottla.cluster.image import NO_LEADER, BrokerNode, PartitionState, TopicState
from ottla.ids import TopicPartition

NOT_WRITTEN = -1  # the version of a partition's state that no node holds yet


def unwritten(replicas: Iterable[int]) -> PartitionState:
    """A partition that is assigned and has no state yet: it never had a leader."""
    return PartitionState(tuple(replicas), NO_LEADER, leader_epoch=-1, isr=(), version=NOT_WRITTEN)


@dataclass(slots=True)
class ControllerContext:
    """The state of one term. `epoch_version` is that of the epoch's node, on which every write is conditional."""

    controller_id: int
    epoch: int
    epoch_version: int
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, TopicState] = field(default_factory=dict)
    names_by_id: dict[UUID, str] = field(default_factory=dict)
    offline: dict[int, set[TopicPartition]] = field(default_factory=dict)  # replicas on failed directories, by broker
    deleting: set[str] = field(default_factory=set)  # topics that are marked for deletion

    # -- looking -------------------------------------------------------------------------------------------------------

    def state(self, partition: TopicPartition) -> PartitionState:
        return self.topics[partition.topic].partitions[partition.partition]

    def find(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        for topic in self.topics.values():
            for index, state in enumerate(topic.partitions):
                yield TopicPartition(topic.name, index), state

    def partitions_on(self, node_id: int) -> list[TopicPartition]:
        return [partition for partition, state in self.partitions() if node_id in state.replicas]

    def is_replica_online(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether its broker is alive and its log directory works."""
        return node_id in self.brokers and partition not in self.offline.get(node_id, ())

    def online_replicas(self, partition: TopicPartition) -> list[int]:
        """The brokers whose replica of a partition is online."""
        return [node for node in self.state(partition).replicas if self.is_replica_online(partition, node)]

    # -- changing ------------------------------------------------------------------------------------------------------

    def set_topic(self, topic: TopicState) -> None:
        before = self.topics.get(topic.name)
        if before is not None:
            self.names_by_id.pop(before.topic_id, None)
        self.topics[topic.name] = topic
        self.names_by_id[topic.topic_id] = topic.name

    def set_states(self, changed: dict[TopicPartition, PartitionState]) -> None:
        """New states of partitions; each topic is copied once."""
        by_topic: dict[str, list[PartitionState]] = {}
        for partition, state in changed.items():
            partitions = by_topic.get(partition.topic)
            if partitions is None:
                partitions = by_topic[partition.topic] = list(self.topics[partition.topic].partitions)
            partitions[partition.partition] = state
        for name, partitions in by_topic.items():
            self.topics[name] = replace(self.topics[name], partitions=tuple(partitions))

    def forget_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.names_by_id.pop(topic.topic_id, None)
        for lost in self.offline.values():
            lost.difference_update([partition for partition in lost if partition.topic == name])
        self.deleting.discard(name)
