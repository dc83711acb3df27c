"""The cluster as a whole: its brokers, its features, its quorum."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, UInt16, Uuid


@message(key=60, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class DescribeClusterRequest:
    """Asks for the brokers and the controller of the cluster."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = wire(since=1, default=1)
    include_fenced_brokers: Bool = wire(since=2, default=False)


@struct
class DescribeClusterBroker:
    """An entry of `brokers` of `DescribeClusterResponse`."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = wire(default=None)
    is_fenced: Bool = wire(since=2, default=False)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """The brokers, the controller and the cluster id."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    endpoint_type: Int8 = wire(since=1, default=1)
    cluster_id: String
    controller_id: Int32 = wire(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = wire(default=-2147483648)


@struct
class FeatureUpdateKey:
    """An entry of `feature_updates` of `UpdateFeaturesRequest`."""

    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = wire(until=0, default=False)
    upgrade_type: Int8 = wire(since=1, default=1)


@message(key=57, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class UpdateFeaturesRequest:
    """Changes the finalized level of features."""

    timeout_ms: Int32 = wire(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = wire(since=1, default=False)


@struct
class UpdatableFeatureResult:
    """An entry of `results` of `UpdateFeaturesResponse`."""

    feature: String
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """The outcome per feature."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    results: list[UpdatableFeatureResult] = wire(until=1, factory=list, ignorable=True)


@message(key=64, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class UnregisterBrokerRequest:
    """Removes a broker that has left from the cluster's list."""

    broker_id: Int32


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    """Whether the broker was taken off."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class DescribeQuorumRequestPartitionData:
    """An entry of `partitions` of `DescribeQuorumRequestTopicData`."""

    partition_index: Int32


@struct
class DescribeQuorumRequestTopicData:
    """An entry of `topics` of `DescribeQuorumRequest`."""

    topic_name: String
    partitions: list[DescribeQuorumRequestPartitionData]


@message(key=55, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class DescribeQuorumRequest:
    """Asks for the state of the metadata quorum."""

    topics: list[DescribeQuorumRequestTopicData]


@struct
class ReplicaState:
    """An entry of `current_voters` and `observers` of `DescribeQuorumResponsePartitionData`."""

    replica_id: Int32
    replica_directory_id: Uuid = wire(since=2, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = wire(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = wire(since=1, default=-1, ignorable=True)


@struct
class DescribeQuorumResponsePartitionData:
    """An entry of `partitions` of `DescribeQuorumResponseTopicData`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(since=2, default=None, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class DescribeQuorumResponseTopicData:
    """An entry of `topics` of `DescribeQuorumResponse`."""

    topic_name: String
    partitions: list[DescribeQuorumResponsePartitionData]


@struct
class Listener:
    """An entry of `listeners` of `Node` and of `listeners` of `AddRaftVoterRequest`."""

    name: String
    host: String
    port: UInt16


@struct
class Node:
    """An entry of `nodes` of `DescribeQuorumResponse`."""

    node_id: Int32
    listeners: list[Listener]


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    """Leader, voters and observers of each quorum partition."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(since=2, default=None, ignorable=True)
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = wire(since=2, factory=list)


@message(key=80, versions=(0, 1), flexible=0, listeners=("controller", "broker"))
class AddRaftVoterRequest:
    """Adds a voter to the metadata quorum."""

    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = wire(since=1, default=True)


@message(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse:
    """Whether the voter was added."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=81, versions=(0, 0), flexible=0, listeners=("controller", "broker"))
class RemoveRaftVoterRequest:
    """Removes a voter from the metadata quorum."""

    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


@message(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse:
    """Whether the voter was removed."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
