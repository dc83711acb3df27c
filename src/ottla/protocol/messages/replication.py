"""What the controller and brokers of a cluster say to each other."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class LeaderAndIsrPartitionState:
    """An entry of `ungrouped_partition_states` of `LeaderAndIsrRequest`, among others."""

    topic_name: String = wire(until=1, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = wire(since=3, factory=list, ignorable=True)
    removing_replicas: list[Int32] = wire(since=3, factory=list, ignorable=True)
    is_new: Bool = wire(since=1, default=False, ignorable=True)
    leader_recovery_state: Int8 = wire(since=6, default=0)


@struct
class LeaderAndIsrTopicState:
    """An entry of `topic_states` of `LeaderAndIsrRequest`."""

    topic_name: String
    topic_id: Uuid = wire(since=5, default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader:
    """An entry of `live_leaders` of `LeaderAndIsrRequest`."""

    broker_id: Int32
    host_name: String
    port: Int32


@message(key=4, versions=(0, 7), flexible=4, listeners=("zkBroker",))
class LeaderAndIsrRequest:
    """The controller tells a broker which partitions it leads or follows."""

    controller_id: Int32
    is_kraft_controller: Bool = wire(since=7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = wire(since=2, default=-1, ignorable=True)
    type: Int8 = wire(since=5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = wire(until=1, factory=list)
    topic_states: list[LeaderAndIsrTopicState] = wire(since=2, factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionError:
    """An entry of `partition_errors` of `LeaderAndIsrResponse`, among others."""

    topic_name: String = wire(until=4, default="", ignorable=True)
    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class LeaderAndIsrTopicError:
    """An entry of `topics` of `LeaderAndIsrResponse`."""

    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


@message(key=4, versions=(0, 7), flexible=4)
class LeaderAndIsrResponse:
    """What the broker made of each partition."""

    error_code: Int16 = wire(default=0)
    partition_errors: list[LeaderAndIsrPartitionError] = wire(until=4, factory=list)
    topics: list[LeaderAndIsrTopicError] = wire(since=5, factory=list)


@struct
class StopReplicaPartitionV0:
    """An entry of `ungrouped_partitions` of `StopReplicaRequest`."""

    topic_name: String
    partition_index: Int32


@struct
class StopReplicaTopicV1:
    """An entry of `topics` of `StopReplicaRequest`."""

    name: String
    partition_indexes: list[Int32]


@struct
class StopReplicaPartitionState:
    """An entry of `partition_states` of `StopReplicaTopicState`."""

    partition_index: Int32
    leader_epoch: Int32 = wire(default=-1)
    delete_partition: Bool


@struct
class StopReplicaTopicState:
    """An entry of `topic_states` of `StopReplicaRequest`."""

    topic_name: String
    partition_states: list[StopReplicaPartitionState]


@message(key=5, versions=(0, 4), flexible=2, listeners=("zkBroker",))
class StopReplicaRequest:
    """The controller tells a broker to stop, and maybe delete, replicas."""

    controller_id: Int32
    is_kraft_controller: Bool = wire(since=4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = wire(since=1, default=-1, ignorable=True)
    delete_partitions: Bool = wire(until=2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = wire(until=0, factory=list)
    topics: list[StopReplicaTopicV1] = wire(since=1, until=2, factory=list)
    topic_states: list[StopReplicaTopicState] = wire(since=3, factory=list)


@struct
class StopReplicaPartitionError:
    """An entry of `partition_errors` of `StopReplicaResponse`."""

    topic_name: String
    partition_index: Int32
    error_code: Int16 = wire(default=0)


@message(key=5, versions=(0, 4), flexible=2)
class StopReplicaResponse:
    """What the broker made of each replica."""

    error_code: Int16 = wire(default=0)
    partition_errors: list[StopReplicaPartitionError]


@struct
class UpdateMetadataPartitionState:
    """An entry of `ungrouped_partition_states` of `UpdateMetadataRequest`, among others."""

    topic_name: String = wire(until=4, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = wire(since=4, factory=list, ignorable=True)


@struct
class UpdateMetadataTopicState:
    """An entry of `topic_states` of `UpdateMetadataRequest`."""

    topic_name: String
    topic_id: Uuid = wire(since=7, default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataEndpoint:
    """An entry of `endpoints` of `UpdateMetadataBroker`."""

    port: Int32
    host: String
    listener: String = wire(since=3, default="", ignorable=True)
    security_protocol: Int16


@struct
class UpdateMetadataBroker:
    """An entry of `live_brokers` of `UpdateMetadataRequest`."""

    id: Int32
    v0_host: String = wire(until=0, default="", ignorable=True)
    v0_port: Int32 = wire(until=0, default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = wire(since=1, factory=list, ignorable=True)
    rack: String | None = wire(since=2, default=None, ignorable=True)


@message(key=6, versions=(0, 8), flexible=6, listeners=("zkBroker",))
class UpdateMetadataRequest:
    """The controller sends a broker the state of the whole cluster."""

    controller_id: Int32
    is_kraft_controller: Bool = wire(since=8, default=False)
    type: Int8 = wire(since=8, tag=0, default=0)
    controller_epoch: Int32
    broker_epoch: Int64 = wire(since=5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = wire(until=4, factory=list)
    topic_states: list[UpdateMetadataTopicState] = wire(since=5, factory=list)
    live_brokers: list[UpdateMetadataBroker]


@message(key=6, versions=(0, 8), flexible=6)
class UpdateMetadataResponse:
    """Whether the broker took the new metadata."""

    error_code: Int16 = wire(default=0)


@message(key=7, versions=(0, 3), flexible=3, listeners=("zkBroker", "controller"))
class ControlledShutdownRequest:
    """A broker that is about to stop asks the controller to move its leaders away."""

    broker_id: Int32
    broker_epoch: Int64 = wire(since=2, default=-1, ignorable=True)


@struct
class RemainingPartition:
    """An entry of `remaining_partitions` of `ControlledShutdownResponse`."""

    topic_name: String
    partition_index: Int32


@message(key=7, versions=(0, 3), flexible=3)
class ControlledShutdownResponse:
    """The partitions that the broker still leads."""

    error_code: Int16 = wire(default=0)
    remaining_partitions: list[RemainingPartition]


@struct
class BrokerState:
    """An entry of `new_isr_with_epochs` of `AlterPartitionRequestPartitionData`."""

    broker_id: Int32
    broker_epoch: Int64 = wire(default=-1)


@struct
class AlterPartitionRequestPartitionData:
    """An entry of `partitions` of `AlterPartitionRequestTopicData`."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = wire(until=2, factory=list)
    new_isr_with_epochs: list[BrokerState] = wire(since=3, factory=list)
    leader_recovery_state: Int8 = wire(since=1, default=0)
    partition_epoch: Int32


@struct
class AlterPartitionRequestTopicData:
    """An entry of `topics` of `AlterPartitionRequest`."""

    topic_name: String = wire(until=1, default="", ignorable=True)
    topic_id: Uuid = wire(since=2, default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData]


@message(key=56, versions=(0, 3), flexible=0, listeners=("controller",))
class AlterPartitionRequest:
    """A leader asks the controller to change an ISR."""

    broker_id: Int32
    broker_epoch: Int64 = wire(default=-1)
    topics: list[AlterPartitionRequestTopicData]


@struct
class AlterPartitionResponsePartitionData:
    """An entry of `partitions` of `AlterPartitionResponseTopicData`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = wire(since=1, default=0, ignorable=True)
    partition_epoch: Int32


@struct
class AlterPartitionResponseTopicData:
    """An entry of `topics` of `AlterPartitionResponse`."""

    topic_name: String = wire(until=1, default="", ignorable=True)
    topic_id: Uuid = wire(since=2, default=ZERO_UUID, ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData]


@message(key=56, versions=(0, 3), flexible=0)
class AlterPartitionResponse:
    """The state of each partition after the change."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    topics: list[AlterPartitionResponseTopicData]


@message(key=67, versions=(0, 0), flexible=0, listeners=("controller",))
class AllocateProducerIdsRequest:
    """A broker asks the controller for a block of producer ids."""

    broker_id: Int32
    broker_epoch: Int64 = wire(default=-1)


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    """The block of producer ids."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    producer_id_start: Int64
    producer_id_len: Int32
