"""The cluster as one immutable value: brokers, topics, partitions.

Whoever changes metadata makes a new image; whoever reads keeps the one it has for as long as it needs one view. Whoever
keeps in step with it asks for what changed since the image it knows, which costs as much as there is of that: a change
of one topic must not be a walk over all of them.
Leaders, epochs and ISRs are here; the high watermark is not: it moves with every append and belongs to the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

NO_LEADER = -1
# The log of a KRaft quorum; no topic may have its name.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}  # with their numbers


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where a listener of a broker is reached."""

    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker that is alive; `epoch` tells its incarnations apart."""

    node_id: int
    endpoints: Mapping[str, BrokerEndpoint]  # by listener name
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition. `version` is the metadata store's, for conditional changes.

    `offline` names the brokers that lost their replica with a log directory. No store keeps it: a start finds it out
    again.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    is_recovering: bool = False  # its leader was elected though it may lack records, and has not looked yet


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]  # by partition number

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """From one image to another: topics that are new or not as before, and those that went, as they were.

    A topic that was deleted and recreated under its name is among both.
    """

    changed: tuple[TopicState, ...] = ()
    removed: tuple[TopicState, ...] = ()


@dataclass(frozen=True, slots=True)
class _Origin:
    """The topics that an image was made of, and what was changed of them."""

    topics: Mapping[str, TopicState]
    changes: TopicChanges


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything known of the cluster at one moment."""

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerNode] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicState] = field(default_factory=lambda: MappingProxyType({}))
    names_by_id: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    # Names with a '.' or a '_', by what they look like where the two are the same.
    names_by_look: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    _origin: _Origin | None = field(default=None, compare=False, repr=False)

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def code_of_missing(self, code: ErrorCode) -> ErrorCode:
        """What to say of a topic that is not here: `code`, but nothing final before the cluster is known at all."""
        return code if self.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def endpoint(self, node_id: int, listener_name: str) -> BrokerEndpoint | None:
        """Where a broker is reached by a listener; None if the broker, or that listener of it, is not known."""
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.endpoints.get(listener_name)

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
        looks = dict(self.names_by_look)
        changed = tuple(changed)
        gone = []
        for name in removed:
            gone.append(topics.pop(name))
            if looks.get(look_of(name)) == name:
                del looks[look_of(name)]
        for topic in changed:
            before = topics.get(topic.name)
            if before is not None and before.topic_id != topic.topic_id:
                gone.append(before)
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
            if has_look(topic.name):
                looks.setdefault(look_of(topic.name), topic.name)
        for topic in gone:
            names.pop(topic.topic_id)
        return replace(
            self,
            topics=MappingProxyType(topics),
            names_by_id=MappingProxyType(names),
            names_by_look=MappingProxyType(looks),
            _origin=_Origin(self.topics, TopicChanges(changed, tuple(gone))),
        )

    def changes_since(self, earlier: ClusterImage | None) -> TopicChanges:
        """What became of the topics; quick where this image was made of the earlier one."""
        before: Mapping[str, TopicState] = {} if earlier is None else earlier.topics
        if before is self.topics:
            return TopicChanges()
        if self._origin is not None and self._origin.topics is before:
            return self._origin.changes
        return TopicChanges(
            tuple(topic for name, topic in self.topics.items() if before.get(name) is not topic),
            tuple(
                topic
                for name, topic in before.items()
                if name not in self.topics or self.topics[name].topic_id != topic.topic_id
            ),
        )


def has_look(name: str) -> bool:
    """Whether another name may look the same where '.' and '_' are not told apart, as in names of metrics."""
    return "." in name or "_" in name


def look_of(name: str) -> str:
    return name.replace(".", "_")
