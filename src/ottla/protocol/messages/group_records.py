"""Records of `__consumer_offsets` that classic and consumer groups write.

A key is an int16 record type and its body of version 0, a value an int16 version and its body.
"""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bytes, Int8, Int32, Int64, String, Uuid


@message(record_type=0, versions=(0, 0))
class LegacyOffsetCommitKey:
    """Key of a committed offset in the oldest format."""

    group: String
    topic: String
    partition: Int32


@message(record_type=0, versions=(0, 0))
class LegacyOffsetCommitValue:
    """A committed offset in the oldest format."""

    offset: Int64
    metadata: String
    commit_timestamp: Int64


@message(record_type=1, versions=(0, 0))
class OffsetCommitKey:
    """Key of a committed offset."""

    group: String
    topic: String
    partition: Int32


@message(record_type=1, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    """A committed offset; null means that it was deleted."""

    offset: Int64
    leader_epoch: Int32 = wire(since=3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = wire(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = wire(since=4, tag=0, default=ZERO_UUID, ignorable=True)


@message(record_type=2, versions=(0, 0))
class GroupMetadataKey:
    """Key of a classic group."""

    group: String


@struct
class MemberMetadata:
    """An entry of `members` of `GroupMetadataValue`."""

    member_id: String
    group_instance_id: String | None = wire(since=3, default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = wire(since=1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(record_type=2, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A classic group: its generation and members."""

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = wire(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata]


@message(record_type=3, versions=(0, 0))
class ConsumerGroupMetadataKey:
    """Key of a consumer group's epoch."""

    group_id: String


@message(record_type=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group."""

    epoch: Int32
    metadata_hash: Int64 = wire(tag=0, default=0)


@message(record_type=4, versions=(0, 0))
class ConsumerGroupPartitionMetadataKey:
    """Key of what a consumer group knew of its topics."""

    group_id: String


@struct
class PartitionMetadata:
    """An entry of `partition_metadata` of `TopicMetadata`."""

    partition: Int32
    racks: list[String]


@struct
class TopicMetadata:
    """An entry of `topics` of `ConsumerGroupPartitionMetadataValue`."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(record_type=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    """What a consumer group knew of its topics; only read, newer groups keep a hash."""

    topics: list[TopicMetadata]


@message(record_type=5, versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    """Key of a member of a consumer group."""

    group_id: String
    member_id: String


@struct
class ClassicProtocol:
    """An entry of `supported_protocols` of `ClassicMemberMetadata`."""

    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """The value of `classic_member_metadata` of `ConsumerGroupMemberMetadataValue`."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(record_type=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """A member of a consumer group: who it is and what it subscribes to."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = wire(default=-1)
    server_assignor: String | None
    # Left out it would be a classic member to Kafka, one that speaks no protocol.
    classic_member_metadata: ClassicMemberMetadata | None = wire(tag=0, default=None, writes_null=True)


@message(record_type=6, versions=(0, 0))
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a consumer group's target assignment."""

    group_id: String


@message(record_type=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a consumer group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire(tag=0, default=0)


@message(record_type=7, versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of a member's target assignment."""

    group_id: String
    member_id: String


@struct
class TopicPartition:
    """An entry of `topic_partitions` of `ConsumerGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions that a member is to have."""

    topic_partitions: list[TopicPartition]


@message(record_type=8, versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of a member's current assignment."""

    group_id: String
    member_id: String


@struct
class TopicPartitions:
    """An entry of `assigned_partitions` of `ConsumerGroupCurrentMemberAssignmentValue`, among others."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = wire(tag=0, default=None)


@message(record_type=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member has, and those it still gives up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(record_type=16, versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    """Key of a resolved regular expression."""

    group_id: String
    regular_expression: String


@message(record_type=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression matched."""

    topics: list[String]
    version: Int64
    timestamp: Int64
