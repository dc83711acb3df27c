"""Records of `__consumer_offsets` that streams groups write."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, Int64, String, UInt16


@message(record_type=17, versions=(0, 0))
class StreamsGroupMetadataKey:
    """Key of a streams group's epoch."""

    group_id: String


@struct
class LastAssignmentConfig:
    """An entry of `last_assignment_configs` of `StreamsGroupMetadataValue`."""

    key: String
    value: String


@message(record_type=17, versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue:
    """The epoch of a streams group and what it was computed from."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = wire(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = wire(tag=1, default=None)


@message(record_type=19, versions=(0, 0))
class StreamsGroupMemberMetadataKey:
    """Key of a member of a streams group."""

    group_id: String
    member_id: String


@struct
class Endpoint:
    """The value of `user_endpoint` of `StreamsGroupMemberMetadataValue`."""

    host: String
    port: UInt16


@struct
class KeyValue:
    """An entry of `client_tags` of `StreamsGroupMemberMetadataValue`."""

    key: String
    value: String


@message(record_type=19, versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue:
    """A member of a streams group: who and where it is."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = wire(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = wire(default=None)
    client_tags: list[KeyValue]


@message(record_type=20, versions=(0, 0))
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a streams group's target assignment."""

    group_id: String


@message(record_type=20, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of a streams group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire(tag=0, default=0)


@message(record_type=21, versions=(0, 0))
class StreamsGroupTargetAssignmentMemberKey:
    """Key of a member's target tasks."""

    group_id: String
    member_id: String


@struct
class StreamsGroupTargetAssignmentMemberValueTaskIds:
    """An entry of `active_tasks` of `StreamsGroupTargetAssignmentMemberValue`, among others."""

    subtopology_id: String
    partitions: list[Int32]


@message(record_type=21, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks that a member is to have."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]


@message(record_type=22, versions=(0, 0))
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of a member's current tasks."""

    group_id: String
    member_id: String


@struct
class StreamsGroupCurrentMemberAssignmentValueTaskIds:
    """An entry of `active_tasks` of `StreamsGroupCurrentMemberAssignmentValue`, among others."""

    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = wire(tag=0, default=None)


@message(record_type=22, versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue:
    """The tasks that a member has, and those it still gives up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]


@message(record_type=23, versions=(0, 0))
class StreamsGroupTopologyKey:
    """Key of a streams group's topology."""

    group_id: String


@struct
class TopicConfig:
    """An entry of `topic_configs` of `TopicInfo`."""

    key: String
    value: String


@struct
class TopicInfo:
    """An entry of `state_changelog_topics` and `repartition_source_topics` of `Subtopology`."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


@struct
class CopartitionGroup:
    """An entry of `copartition_groups` of `Subtopology`."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class Subtopology:
    """An entry of `subtopologies` of `StreamsGroupTopologyValue`."""

    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@message(record_type=23, versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue:
    """The topology of a streams group."""

    epoch: Int32
    subtopologies: list[Subtopology]
