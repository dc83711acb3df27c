"""The cluster as one immutable value: brokers, topics, partitions.

Whoever changes metadata makes a new image; whoever reads keeps the one it has for as long as it needs one view.
Leaders, epochs and ISRs are here; the high watermark is not: it moves with every append and belongs to the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

from ottla.ids import TopicPartition

NO_LEADER = -1
# The log of a KRaft quorum; no topic may have its name.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener of a broker is reached."""

    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker that is alive; `epoch` tells its incarnations apart."""

    node_id: int
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition. `version` is the metadata store's, for conditional changes.

    `offline` names the brokers that lost their replica with a log directory. No store keeps it: a start finds it anew.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]  # by partition number

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything known of the cluster at one moment."""

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerNode] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicState] = field(default_factory=lambda: MappingProxyType({}))
    names_by_id: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader_of(self, state: PartitionState) -> int:
        """The leader as far as it is alive."""
        return state.leader if state.leader in self.brokers else NO_LEADER

    def offline_replicas(self, state: PartitionState) -> list[int]:
        """The replicas that cannot be had: their broker is away, or the log directory that held them."""
        return [node for node in state.replicas if node not in self.brokers or node in state.offline]

    def with_brokers(self, brokers: Iterable[BrokerNode], controller_id: int) -> ClusterImage:
        return replace(
            self,
            brokers=MappingProxyType({broker.node_id: broker for broker in brokers}),
            controller_id=controller_id,
        )

    def with_topics(self, changed: Iterable[TopicState], removed: Iterable[str] = ()) -> ClusterImage:
        topics = dict(self.topics)
        names = dict(self.names_by_id)
        for name in removed:
            names.pop(topics.pop(name).topic_id)
        for topic in changed:
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
        return replace(self, topics=MappingProxyType(topics), names_by_id=MappingProxyType(names))
