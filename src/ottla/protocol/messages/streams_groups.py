"""Streams groups (KIP-1071): tasks of a topology instead of partitions."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int8, Int16, Int32, Int64, String, UInt16


@struct
class KeyValue:
    """An entry of `topic_configs` of `TopicInfo`, among others."""

    key: String
    value: String


@struct
class TopicInfo:
    """An entry of `state_changelog_topics` of `StreamsGroupHeartbeatRequestSubtopology`, among others."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


@struct
class CopartitionGroup:
    """An entry of `copartition_groups` of `StreamsGroupHeartbeatRequestSubtopology`."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class StreamsGroupHeartbeatRequestSubtopology:
    """An entry of `subtopologies` of `StreamsGroupHeartbeatRequestTopology`."""

    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@struct
class StreamsGroupHeartbeatRequestTopology:
    """The value of `topology` of `StreamsGroupHeartbeatRequest`."""

    epoch: Int32
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology]


@struct
class TaskIds:
    """An entry of `active_tasks` of `StreamsGroupHeartbeatRequest`, among others."""

    subtopology_id: String
    partitions: list[Int32]


@struct
class Endpoint:
    """The value of `user_endpoint` of `StreamsGroupHeartbeatRequest`, among others."""

    host: String
    port: UInt16


@struct
class TaskOffset:
    """An entry of `task_offsets` of `StreamsGroupHeartbeatRequest`, among others."""

    subtopology_id: String
    partition: Int32
    offset: Int64


@message(key=88, versions=(0, 0), flexible=0, listeners=("broker",))
class StreamsGroupHeartbeatRequest:
    """Joins, stays in or leaves a streams group, with topology and tasks."""

    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = wire(default=None)
    rack_id: String | None = wire(default=None)
    rebalance_timeout_ms: Int32 = wire(default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = wire(default=None)
    active_tasks: list[TaskIds] | None = wire(default=None)
    standby_tasks: list[TaskIds] | None = wire(default=None)
    warmup_tasks: list[TaskIds] | None = wire(default=None)
    process_id: String | None = wire(default=None)
    user_endpoint: Endpoint | None = wire(default=None)
    client_tags: list[KeyValue] | None = wire(default=None)
    task_offsets: list[TaskOffset] | None = wire(default=None)
    task_end_offsets: list[TaskOffset] | None = wire(default=None)
    shutdown_application: Bool = wire(default=False)


@struct
class Status:
    """An entry of `status` of `StreamsGroupHeartbeatResponse`."""

    status_code: Int8
    status_detail: String


@struct
class TopicPartition:
    """An entry of `active_partitions` and `standby_partitions` of `EndpointToPartitions`."""

    topic: String
    partitions: list[Int32]


@struct
class EndpointToPartitions:
    """An entry of `partitions_by_user_endpoint` of `StreamsGroupHeartbeatResponse`."""

    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@message(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse:
    """The member's epoch and tasks, and what the topology still lacks."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = wire(default=None)
    standby_tasks: list[TaskIds] | None = wire(default=None)
    warmup_tasks: list[TaskIds] | None = wire(default=None)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = wire(default=None)


@message(key=89, versions=(0, 0), flexible=0, listeners=("broker",))
class StreamsGroupDescribeRequest:
    """Asks for the state, topology and members of streams groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


@struct
class StreamsGroupDescribeResponseSubtopology:
    """An entry of `subtopologies` of `StreamsGroupDescribeResponseTopology`."""

    subtopology_id: String
    source_topics: list[String]
    repartition_sink_topics: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@struct
class StreamsGroupDescribeResponseTopology:
    """The value of `topology` of `DescribedGroup`."""

    epoch: Int32
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = wire(default=None)


@struct
class Assignment:
    """The value of `assignment` and `target_assignment` of `Member`."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class Member:
    """An entry of `members` of `DescribedGroup`."""

    member_id: String
    member_epoch: Int32
    instance_id: String | None = wire(default=None)
    rack_id: String | None = wire(default=None)
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = wire(default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


@struct
class DescribedGroup:
    """An entry of `groups` of `StreamsGroupDescribeResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: StreamsGroupDescribeResponseTopology | None = wire(default=None)
    members: list[Member]
    authorized_operations: Int32 = wire(default=-2147483648)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse:
    """State, topology and members of each group."""

    throttle_time_ms: Int32 = wire(default=0)
    groups: list[DescribedGroup]
