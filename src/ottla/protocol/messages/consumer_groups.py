"""Consumer groups of the protocol of KIP-848, where the coordinator assigns."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int8, Int16, Int32, String, Uuid


@struct
class ConsumerGroupHeartbeatRequestTopicPartitions:
    """An entry of `topic_partitions` of `ConsumerGroupHeartbeatRequest`, among others."""

    topic_id: Uuid
    partitions: list[Int32]


@message(key=68, versions=(0, 1), flexible=0, listeners=("broker",))
class ConsumerGroupHeartbeatRequest:
    """Joins, stays in or leaves a consumer group, and says what is subscribed and owned."""

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = wire(default=None)
    rack_id: String | None = wire(default=None)
    rebalance_timeout_ms: Int32 = wire(default=-1)
    subscribed_topic_names: list[String] | None = wire(default=None)
    subscribed_topic_regex: String | None = wire(since=1, default=None)
    server_assignor: String | None = wire(default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = wire(default=None)


@struct
class ConsumerGroupHeartbeatResponseAssignment:
    """The value of `assignment` of `ConsumerGroupHeartbeatResponse`."""

    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions]


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, if it changed, its assignment."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    member_id: String | None = wire(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = wire(default=None)


@message(key=69, versions=(0, 1), flexible=0, listeners=("broker",))
class ConsumerGroupDescribeRequest:
    """Asks for the state and members of consumer groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


@struct
class ConsumerGroupDescribeResponseTopicPartitions:
    """An entry of `topic_partitions` of `ConsumerGroupDescribeResponseAssignment`."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class ConsumerGroupDescribeResponseAssignment:
    """The value of `assignment` and `target_assignment` of `Member`."""

    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions]


@struct
class Member:
    """An entry of `members` of `DescribedGroup`."""

    member_id: String
    instance_id: String | None = wire(default=None)
    rack_id: String | None = wire(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = wire(default=None)
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: Int8 = wire(since=1, default=-1, ignorable=True)


@struct
class DescribedGroup:
    """An entry of `groups` of `ConsumerGroupDescribeResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = wire(default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """State, epochs and members of each group."""

    throttle_time_ms: Int32 = wire(default=0)
    groups: list[DescribedGroup]
