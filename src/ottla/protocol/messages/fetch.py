"""Fetch: record batches on their way out, to consumers and to followers."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Int8, Int16, Int32, Int64, RecordsOut, String, Uuid


@struct
class ReplicaState:
    """The value of `replica_state` of `FetchRequest`."""

    replica_id: Int32 = wire(default=-1)
    replica_epoch: Int64 = wire(default=-1)


@struct
class FetchPartition:
    """An entry of `partitions` of `FetchTopic`."""

    partition: Int32
    current_leader_epoch: Int32 = wire(since=9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = wire(since=12, default=-1)
    log_start_offset: Int64 = wire(since=5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = wire(since=17, tag=0, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = wire(since=18, tag=1, default=9223372036854775807, ignorable=True)


@struct
class FetchTopic:
    """An entry of `topics` of `FetchRequest`."""

    topic: String = wire(until=12, default="", ignorable=True)
    topic_id: Uuid = wire(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """An entry of `forgotten_topics_data` of `FetchRequest`."""

    topic: String = wire(until=12, default="", ignorable=True)
    topic_id: Uuid = wire(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


@message(key=1, versions=(0, 18), flexible=12, listeners=("broker", "controller"), advertised=(4, 18))
class FetchRequest:
    """Reads record batches from partitions, within a fetch session from version 7 on."""

    cluster_id: String | None = wire(since=12, tag=0, default=None, ignorable=True)
    replica_id: Int32 = wire(until=14, default=-1)
    replica_state: ReplicaState | None = wire(since=15, tag=1, nullable=False, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = wire(since=3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = wire(since=4, default=0, ignorable=True)
    session_id: Int32 = wire(since=7, default=0, ignorable=True)
    session_epoch: Int32 = wire(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = wire(since=7, factory=list)
    rack_id: String = wire(since=11, default="", ignorable=True)


@struct
class EpochEndOffset:
    """The value of `diverging_epoch` of `PartitionData`."""

    epoch: Int32 = wire(default=-1)
    end_offset: Int64 = wire(default=-1)


@struct
class LeaderIdAndEpoch:
    """The value of `current_leader` of `PartitionData`."""

    leader_id: Int32 = wire(default=-1)
    leader_epoch: Int32 = wire(default=-1)


@struct
class SnapshotId:
    """The value of `snapshot_id` of `PartitionData`."""

    end_offset: Int64 = wire(default=-1)
    epoch: Int32 = wire(default=-1)


@struct
class AbortedTransaction:
    """An entry of `aborted_transactions` of `PartitionData`."""

    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    """An entry of `partitions` of `FetchableTopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    high_watermark: Int64
    last_stable_offset: Int64 = wire(since=4, default=-1, ignorable=True)
    log_start_offset: Int64 = wire(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = wire(since=12, tag=0, nullable=False, default=None)
    current_leader: LeaderIdAndEpoch | None = wire(since=12, tag=1, nullable=False, default=None)
    snapshot_id: SnapshotId | None = wire(since=12, tag=2, nullable=False, default=None)
    aborted_transactions: list[AbortedTransaction] | None = wire(since=4, factory=list, ignorable=True)
    preferred_read_replica: Int32 = wire(since=11, default=-1)
    records: RecordsOut | None


@struct
class FetchableTopicResponse:
    """An entry of `responses` of `FetchResponse`."""

    topic: String = wire(until=12, default="", ignorable=True)
    topic_id: Uuid = wire(since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    """An entry of `node_endpoints` of `FetchResponse`."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = wire(default=None)


@message(key=1, versions=(0, 18), flexible=12)
class FetchResponse:
    """Record batches per partition, with the watermarks that bound them."""

    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    error_code: Int16 = wire(since=7, default=0, ignorable=True)
    session_id: Int32 = wire(since=7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = wire(since=16, tag=0, factory=list)
