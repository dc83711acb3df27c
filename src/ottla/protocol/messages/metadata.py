"""Metadata of topics: who leads which partition, and the state of its producers."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


@struct
class MetadataRequestTopic:
    """An entry of `topics` of `MetadataRequest`."""

    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    name: String | None = wire(nullable_since=10)


@message(key=3, versions=(0, 13), flexible=9, listeners=("broker",))
class MetadataRequest:
    """Asks for brokers, topics and partition leaders; null topics ask for all."""

    topics: list[MetadataRequestTopic] | None = wire(nullable_since=1)
    allow_auto_topic_creation: Bool = wire(since=4, default=True)
    include_cluster_authorized_operations: Bool = wire(since=8, until=10, default=False)
    include_topic_authorized_operations: Bool = wire(since=8, default=False)


@struct
class MetadataResponseBroker:
    """An entry of `brokers` of `MetadataResponse`."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = wire(since=1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """An entry of `partitions` of `MetadataResponseTopic`."""

    error_code: Int16 = wire(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire(since=7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = wire(since=5, factory=list, ignorable=True)


@struct
class MetadataResponseTopic:
    """An entry of `topics` of `MetadataResponse`."""

    error_code: Int16 = wire(default=0)
    name: String | None = wire(nullable_since=12)
    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = wire(since=1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = wire(since=8, default=-2147483648)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse:
    """The brokers, and the partitions of each topic with leader and replicas."""

    throttle_time_ms: Int32 = wire(since=3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = wire(since=2, default=None, ignorable=True)
    controller_id: Int32 = wire(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = wire(since=8, until=10, default=-2147483648)
    error_code: Int16 = wire(since=13, default=0, ignorable=True)


@struct
class DescribeTopicPartitionsRequestTopicRequest:
    """An entry of `topics` of `DescribeTopicPartitionsRequest`."""

    name: String


@struct
class Cursor:
    """The value of `cursor` of `DescribeTopicPartitionsRequest`, among others."""

    topic_name: String
    partition_index: Int32


@message(key=75, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeTopicPartitionsRequest:
    """Asks for topics page by page, from a cursor on."""

    topics: list[DescribeTopicPartitionsRequestTopicRequest]
    response_partition_limit: Int32 = wire(default=2000)
    cursor: Cursor | None = wire(default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    """An entry of `partitions` of `DescribeTopicPartitionsResponseTopic`."""

    error_code: Int16 = wire(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = wire(default=None)
    last_known_elr: list[Int32] | None = wire(default=None)
    offline_replicas: list[Int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    """An entry of `topics` of `DescribeTopicPartitionsResponse`."""

    error_code: Int16 = wire(default=0)
    name: String | None
    topic_id: Uuid
    is_internal: Bool = wire(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = wire(default=-2147483648)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    """One page of topics and partitions, and the cursor of the next."""

    throttle_time_ms: Int32 = wire(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = wire(default=None)


@struct
class DescribeProducersRequestTopicRequest:
    """An entry of `topics` of `DescribeProducersRequest`."""

    name: String
    partition_indexes: list[Int32]


@message(key=61, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeProducersRequest:
    """Asks which producers have recently written to partitions."""

    topics: list[DescribeProducersRequestTopicRequest]


@struct
class ProducerState:
    """An entry of `active_producers` of `PartitionResponse`."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = wire(default=-1)
    last_timestamp: Int64 = wire(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = wire(default=-1)


@struct
class PartitionResponse:
    """An entry of `partitions` of `TopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    """An entry of `topics` of `DescribeProducersResponse`."""

    name: String
    partitions: list[PartitionResponse]


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """The active producers of each partition."""

    throttle_time_ms: Int32 = wire(default=0)
    topics: list[TopicResponse]
