"""Topics: create, delete, add partitions, move replicas, elect leaders."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment:
    """An entry of `assignments` of `CreatableTopic`."""

    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    """An entry of `configs` of `CreatableTopic`."""

    name: String
    value: String | None


@struct
class CreatableTopic:
    """An entry of `topics` of `CreateTopicsRequest`."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(key=19, versions=(0, 7), flexible=5, listeners=("broker", "controller"), advertised=(2, 7))
class CreateTopicsRequest:
    """Creates topics, by count or by hand-made assignment."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = wire(default=60000)
    validate_only: Bool = wire(since=1, default=False)


@struct
class CreatableTopicConfigs:
    """An entry of `configs` of `CreatableTopicResult`."""

    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = wire(default=-1)
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    """An entry of `topics` of `CreateTopicsResponse`."""

    name: String
    topic_id: Uuid = wire(since=7, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(since=1, default=None, ignorable=True)
    topic_config_error_code: Int16 = wire(since=5, tag=0, default=0, ignorable=True)
    num_partitions: Int32 = wire(since=5, default=-1, ignorable=True)
    replication_factor: Int16 = wire(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire(since=5, factory=list, ignorable=True)


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsResponse:
    """The outcome of each creation, with the resulting configuration."""

    throttle_time_ms: Int32 = wire(since=2, default=0, ignorable=True)
    topics: list[CreatableTopicResult]


@struct
class DeleteTopicState:
    """An entry of `topics` of `DeleteTopicsRequest`."""

    name: String | None = wire(default=None)
    topic_id: Uuid


@message(key=20, versions=(0, 6), flexible=4, listeners=("broker", "controller"), advertised=(1, 6))
class DeleteTopicsRequest:
    """Deletes topics by name or id."""

    topics: list[DeleteTopicState] = wire(since=6, factory=list)
    topic_names: list[String] = wire(until=5, factory=list, ignorable=True)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    """An entry of `responses` of `DeleteTopicsResponse`."""

    name: String | None = wire(nullable_since=6)
    topic_id: Uuid = wire(since=6, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(since=5, default=None, ignorable=True)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsResponse:
    """The outcome of each deletion."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    responses: list[DeletableTopicResult]


@struct
class CreatePartitionsAssignment:
    """An entry of `assignments` of `CreatePartitionsTopic`."""

    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    """An entry of `topics` of `CreatePartitionsRequest`."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@message(key=37, versions=(0, 3), flexible=2, listeners=("broker", "controller"))
class CreatePartitionsRequest:
    """Adds partitions to topics."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@struct
class CreatePartitionsTopicResult:
    """An entry of `results` of `CreatePartitionsResponse`."""

    name: String
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """The outcome per topic."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[CreatePartitionsTopicResult]


@struct
class ReassignablePartition:
    """An entry of `partitions` of `ReassignableTopic`."""

    partition_index: Int32
    replicas: list[Int32] | None = wire(default=None)


@struct
class ReassignableTopic:
    """An entry of `topics` of `AlterPartitionReassignmentsRequest`."""

    name: String
    partitions: list[ReassignablePartition]


@message(key=45, versions=(0, 1), flexible=0, listeners=("broker", "controller"))
class AlterPartitionReassignmentsRequest:
    """Starts or cancels moves of replicas."""

    timeout_ms: Int32 = wire(default=60000)
    allow_replication_factor_change: Bool = wire(since=1, default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    """An entry of `partitions` of `ReassignableTopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class ReassignableTopicResponse:
    """An entry of `responses` of `AlterPartitionReassignmentsResponse`."""

    name: String
    partitions: list[ReassignablePartitionResponse]


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    allow_replication_factor_change: Bool = wire(since=1, default=True, ignorable=True)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    responses: list[ReassignableTopicResponse]


@struct
class ListPartitionReassignmentsTopics:
    """An entry of `topics` of `ListPartitionReassignmentsRequest`."""

    name: String
    partition_indexes: list[Int32]


@message(key=46, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class ListPartitionReassignmentsRequest:
    """Asks which replicas are being moved."""

    timeout_ms: Int32 = wire(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(default=None)


@struct
class OngoingPartitionReassignment:
    """An entry of `partitions` of `OngoingTopicReassignment`."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment:
    """An entry of `topics` of `ListPartitionReassignmentsResponse`."""

    name: String
    partitions: list[OngoingPartitionReassignment]


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """The moves in progress."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    topics: list[OngoingTopicReassignment]


@struct
class TopicPartitions:
    """An entry of `topic_partitions` of `ElectLeadersRequest`."""

    topic: String
    partitions: list[Int32]


@message(key=43, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class ElectLeadersRequest:
    """Elects preferred or unclean leaders."""

    election_type: Int8 = wire(since=1, default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = wire(default=60000)


@struct
class PartitionResult:
    """An entry of `partition_result` of `ReplicaElectionResult`."""

    partition_id: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@struct
class ReplicaElectionResult:
    """An entry of `replica_election_results` of `ElectLeadersResponse`."""

    topic: String
    partition_result: list[PartitionResult]


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult]
