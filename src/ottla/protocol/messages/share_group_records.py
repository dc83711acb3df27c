"""Records of `__consumer_offsets` that share groups write."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int32, Int64, String, Uuid


@message(record_type=9, versions=(0, 0))
class ShareGroupPartitionMetadataKey:
    """Key of a share group's topics, in the early form of Kafka 3.9."""

    group_id: String


@struct
class TopicPartitionsInfo:
    """An entry of `initialized_topics` of `ShareGroupPartitionMetadataValue`, among others."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class TopicInfo:
    """An entry of `deleting_topics` of `ShareGroupPartitionMetadataValue`, among others."""

    topic_id: Uuid
    topic_name: String


@message(record_type=9, versions=(0, 0), flexible=0)
class ShareGroupPartitionMetadataValue:
    """The topics of a share group, in the early form of Kafka 3.9."""

    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


@message(record_type=10, versions=(0, 0))
class ShareGroupMemberMetadataKey:
    """Key of a member of a share group."""

    group_id: String
    member_id: String


@message(record_type=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue:
    """A member of a share group: who it is and what it subscribes to."""

    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


@message(record_type=11, versions=(0, 0))
class ShareGroupMetadataKey:
    """Key of a share group's epoch."""

    group_id: String


@message(record_type=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue:
    """The epoch of a share group."""

    epoch: Int32
    metadata_hash: Int64


@message(record_type=12, versions=(0, 0))
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a share group's target assignment."""

    group_id: String


@message(record_type=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a share group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire(tag=0, default=0)


@message(record_type=13, versions=(0, 0))
class ShareGroupTargetAssignmentMemberKey:
    """Key of a member's target assignment."""

    group_id: String
    member_id: String


@struct
class TopicPartition:
    """An entry of `topic_partitions` of `ShareGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue:
    """The partitions that a member is to have."""

    topic_partitions: list[TopicPartition]


@message(record_type=14, versions=(0, 0))
class ShareGroupCurrentMemberAssignmentKey:
    """Key of a member's current assignment."""

    group_id: String
    member_id: String


@struct
class TopicPartitions:
    """An entry of `assigned_partitions` of `ShareGroupCurrentMemberAssignmentValue`."""

    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions that a member has."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message(record_type=15, versions=(0, 0))
class ShareGroupStatePartitionMetadataKey:
    """Key of the partitions whose share state is set up."""

    group_id: String


@message(record_type=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose share state is being set up, is set up or goes away."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
