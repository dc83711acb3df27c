"""Records of `__cluster_metadata`, the log in which Apache Kafka without ZooKeeper keeps its metadata.

Ottla only reads them, from the directory of a broker that it takes over, and so only those that say what it serves.
"""

from ottla.protocol.schema import message, wire
from ottla.protocol.wire import Int8, Int32, Int64, String, Uuid


@message(record_type=2, versions=(0, 0), flexible=0)
class TopicRecord:
    """A topic was created."""

    name: String
    topic_id: Uuid


@message(record_type=3, versions=(0, 2), flexible=0)
class PartitionRecord:
    """A partition as it is from here on."""

    partition_id: Int32 = wire(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = wire(default=-1)
    leader_recovery_state: Int8 = wire(tag=0, default=0)
    leader_epoch: Int32 = wire(default=-1)
    partition_epoch: Int32 = wire(default=-1)
    directories: list[Uuid] = wire(since=1, default=[])
    eligible_leader_replicas: list[Int32] | None = wire(since=2, tag=1, default=None)
    last_known_elr: list[Int32] | None = wire(since=2, tag=2, default=None)


@message(record_type=4, versions=(0, 0), flexible=0)
class ConfigRecord:
    """A setting was made, or taken away."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


@message(record_type=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord:
    """What changed of a partition; the leader's epoch grows with a change of leader."""

    partition_id: Int32 = wire(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = wire(tag=0, default=None)
    leader: Int32 = wire(tag=1, default=-2)
    replicas: list[Int32] | None = wire(tag=2, default=None)
    removing_replicas: list[Int32] | None = wire(tag=3, default=None)
    adding_replicas: list[Int32] | None = wire(tag=4, default=None)
    leader_recovery_state: Int8 = wire(tag=5, default=-1)
    directories: list[Uuid] | None = wire(since=1, tag=8, default=None)
    eligible_leader_replicas: list[Int32] | None = wire(since=2, tag=6, default=None)
    last_known_elr: list[Int32] | None = wire(since=2, tag=7, default=None)


@message(record_type=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: Uuid


@message(record_type=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord:
    """A broker took a block of producer ids; the next one begins with `next_producer_id`."""

    broker_id: Int32
    broker_epoch: Int64 = wire(default=-1)
    next_producer_id: Int64


@message(record_type=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord:
    """The records that follow have effect together, or not at all."""

    name: String | None = wire(tag=0, default=None)


@message(record_type=24, versions=(0, 0), flexible=0)
class EndTransactionRecord:
    """The records since the beginning have effect."""


@message(record_type=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord:
    """The records since the beginning have no effect."""

    reason: String | None = wire(tag=0, default=None)
