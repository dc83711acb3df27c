"""Share groups (KIP-932): several consumers work on one partition."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int8, Int16, Int32, Int64, RecordsOut, String, Uuid


@message(key=76, versions=(0, 1), flexible=0, listeners=("broker",), advertised=(1, 1))
class ShareGroupHeartbeatRequest:
    """Joins, stays in or leaves a share group."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = wire(default=None)
    subscribed_topic_names: list[String] | None = wire(default=None)


@struct
class ShareGroupHeartbeatResponseTopicPartitions:
    """An entry of `topic_partitions` of `ShareGroupHeartbeatResponseAssignment`."""

    topic_id: Uuid
    partitions: list[Int32]


@struct
class ShareGroupHeartbeatResponseAssignment:
    """The value of `assignment` of `ShareGroupHeartbeatResponse`."""

    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions]


@message(key=76, versions=(0, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    """The member's epoch and, if it changed, its assignment."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    member_id: String | None = wire(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ShareGroupHeartbeatResponseAssignment | None = wire(default=None)


@message(key=77, versions=(0, 1), flexible=0, listeners=("broker",), advertised=(1, 1))
class ShareGroupDescribeRequest:
    """Asks for the state and members of share groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


@struct
class ShareGroupDescribeResponseTopicPartitions:
    """An entry of `topic_partitions` of `ShareGroupDescribeResponseAssignment`."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class ShareGroupDescribeResponseAssignment:
    """The value of `assignment` of `Member`."""

    topic_partitions: list[ShareGroupDescribeResponseTopicPartitions]


@struct
class Member:
    """An entry of `members` of `DescribedGroup`."""

    member_id: String
    rack_id: String | None = wire(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: ShareGroupDescribeResponseAssignment


@struct
class DescribedGroup:
    """An entry of `groups` of `ShareGroupDescribeResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = wire(default=-2147483648)


@message(key=77, versions=(0, 1), flexible=0)
class ShareGroupDescribeResponse:
    """State and members of each group."""

    throttle_time_ms: Int32 = wire(default=0)
    groups: list[DescribedGroup]


@struct
class AcknowledgementBatch:
    """An entry of `acknowledgement_batches` of `FetchPartition`, among others."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class FetchPartition:
    """An entry of `partitions` of `FetchTopic`."""

    partition_index: Int32
    partition_max_bytes: Int32 = wire(until=0, default=0)
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    """An entry of `topics` of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """An entry of `forgotten_topics_data` of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[Int32]


@message(key=78, versions=(0, 2), flexible=0, listeners=("broker",), advertised=(1, 2))
class ShareFetchRequest:
    """Acquires records of a share group, and acknowledges earlier ones."""

    group_id: String | None = wire(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = wire(default=0x7FFFFFFF)
    max_records: Int32 = wire(since=1, default=0)
    batch_size: Int32 = wire(since=1, default=0)
    share_acquire_mode: Int8 = wire(since=2, default=0, ignorable=True)
    is_renew_ack: Bool = wire(since=2, default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    """The value of `current_leader` of `ShareFetchResponsePartitionData`, among others."""

    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords:
    """An entry of `acquired_records` of `ShareFetchResponsePartitionData`."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class ShareFetchResponsePartitionData:
    """An entry of `partitions` of `ShareFetchableTopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = wire(default=None)
    current_leader: LeaderIdAndEpoch
    records: RecordsOut | None = wire(nullable_until=0)
    acquired_records: list[AcquiredRecords]


@struct
class ShareFetchableTopicResponse:
    """An entry of `responses` of `ShareFetchResponse`."""

    topic_id: Uuid
    partitions: list[ShareFetchResponsePartitionData]


@struct
class NodeEndpoint:
    """An entry of `node_endpoints` of `ShareFetchResponse`, among others."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = wire(default=None)


@message(key=78, versions=(0, 2), flexible=0)
class ShareFetchResponse:
    """Records, and the ranges of them that were acquired."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    acquisition_lock_timeout_ms: Int32 = wire(since=1, default=0)
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class AcknowledgePartition:
    """An entry of `partitions` of `AcknowledgeTopic`."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    """An entry of `topics` of `ShareAcknowledgeRequest`."""

    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@message(key=79, versions=(0, 2), flexible=0, listeners=("broker",), advertised=(1, 2))
class ShareAcknowledgeRequest:
    """Acknowledges records of a share group."""

    group_id: String | None = wire(default=None)
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = wire(since=2, default=False)
    topics: list[AcknowledgeTopic]


@struct
class ShareAcknowledgeResponsePartitionData:
    """An entry of `partitions` of `ShareAcknowledgeTopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    """An entry of `responses` of `ShareAcknowledgeResponse`."""

    topic_id: Uuid
    partitions: list[ShareAcknowledgeResponsePartitionData]


@message(key=79, versions=(0, 2), flexible=0)
class ShareAcknowledgeResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    acquisition_lock_timeout_ms: Int32 = wire(since=2, default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """An entry of `topics` of `DescribeShareGroupOffsetsRequestGroup`."""

    topic_name: String
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """An entry of `groups` of `DescribeShareGroupOffsetsRequest`."""

    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(key=90, versions=(0, 1), flexible=0, listeners=("broker",))
class DescribeShareGroupOffsetsRequest:
    """Asks where share groups stand in their partitions."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """An entry of `partitions` of `DescribeShareGroupOffsetsResponseTopic`."""

    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = wire(since=1, default=-1, ignorable=True)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """An entry of `topics` of `DescribeShareGroupOffsetsResponseGroup`."""

    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """An entry of `groups` of `DescribeShareGroupOffsetsResponse`."""

    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """The start offset of each group and partition."""

    throttle_time_ms: Int32 = wire(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class AlterShareGroupOffsetsRequestPartition:
    """An entry of `partitions` of `AlterShareGroupOffsetsRequestTopic`."""

    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    """An entry of `topics` of `AlterShareGroupOffsetsRequest`."""

    topic_name: String
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(key=91, versions=(0, 0), flexible=0, listeners=("broker",))
class AlterShareGroupOffsetsRequest:
    """Moves the start offsets of an empty share group."""

    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    """An entry of `partitions` of `AlterShareGroupOffsetsResponseTopic`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    """An entry of `responses` of `AlterShareGroupOffsetsResponse`."""

    topic_name: String
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """An entry of `topics` of `DeleteShareGroupOffsetsRequest`."""

    topic_name: String


@message(key=92, versions=(0, 0), flexible=0, listeners=("broker",))
class DeleteShareGroupOffsetsRequest:
    """Forgets the offsets of a share group by topic."""

    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """An entry of `responses` of `DeleteShareGroupOffsetsResponse`."""

    topic_name: String
    topic_id: Uuid
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """The outcome per topic."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
