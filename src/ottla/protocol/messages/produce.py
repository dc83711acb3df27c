"""Produce: record batches on their way in."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


@struct
class PartitionProduceData:
    """An entry of `partition_data` of `TopicProduceData`."""

    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    """An entry of `topic_data` of `ProduceRequest`."""

    name: String = wire(until=12, default="", ignorable=True)
    topic_id: Uuid = wire(since=13, default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@message(key=0, versions=(0, 13), flexible=9, listeners=("broker",))
class ProduceRequest:
    """Appends record batches to partitions."""

    transactional_id: String | None = wire(since=3, default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    """An entry of `record_errors` of `PartitionProduceResponse`."""

    batch_index: Int32
    batch_index_error_message: String | None = wire(default=None)


@struct
class LeaderIdAndEpoch:
    """The value of `current_leader` of `PartitionProduceResponse`."""

    leader_id: Int32 = wire(default=-1)
    leader_epoch: Int32 = wire(default=-1)


@struct
class PartitionProduceResponse:
    """An entry of `partition_responses` of `TopicProduceResponse`."""

    index: Int32
    error_code: Int16 = wire(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = wire(since=2, default=-1, ignorable=True)
    log_start_offset: Int64 = wire(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire(since=8, factory=list, ignorable=True)
    error_message: String | None = wire(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = wire(since=10, tag=0, nullable=False, default=None)


@struct
class TopicProduceResponse:
    """An entry of `responses` of `ProduceResponse`."""

    name: String = wire(until=12, default="", ignorable=True)
    topic_id: Uuid = wire(since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    """An entry of `node_endpoints` of `ProduceResponse`."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = wire(default=None)


@message(key=0, versions=(0, 13), flexible=9)
class ProduceResponse:
    """Where each batch was appended, or why it was not."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire(since=10, tag=0, factory=list)
