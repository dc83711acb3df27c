"""Finding offsets: by time, by leader epoch, and deleting what lies below one."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    """An entry of `partitions` of `ListOffsetsTopic`."""

    partition_index: Int32
    current_leader_epoch: Int32 = wire(since=4, default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = wire(until=0, default=1)


@struct
class ListOffsetsTopic:
    """An entry of `topics` of `ListOffsetsRequest`."""

    name: String
    partitions: list[ListOffsetsPartition]


@message(key=2, versions=(0, 11), flexible=6, listeners=("broker",), advertised=(1, 11))
class ListOffsetsRequest:
    """Asks for the offset at a time, or for the earliest or latest one."""

    replica_id: Int32
    isolation_level: Int8 = wire(since=2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = wire(since=10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    """An entry of `partitions` of `ListOffsetsTopicResponse`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)
    old_style_offsets: list[Int64] = wire(until=0, factory=list)
    timestamp: Int64 = wire(since=1, default=-1)
    offset: Int64 = wire(since=1, default=-1)
    leader_epoch: Int32 = wire(since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    """An entry of `topics` of `ListOffsetsResponse`."""

    name: String
    partitions: list[ListOffsetsPartitionResponse]


@message(key=2, versions=(0, 11), flexible=6)
class ListOffsetsResponse:
    """The offset found for each partition."""

    throttle_time_ms: Int32 = wire(since=2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


@struct
class OffsetForLeaderPartition:
    """An entry of `partitions` of `OffsetForLeaderTopic`."""

    partition: Int32
    current_leader_epoch: Int32 = wire(since=2, default=-1, ignorable=True)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    """An entry of `topics` of `OffsetForLeaderEpochRequest`."""

    topic: String
    partitions: list[OffsetForLeaderPartition]


@message(key=23, versions=(0, 4), flexible=4, listeners=("broker",), advertised=(2, 4))
class OffsetForLeaderEpochRequest:
    """Asks where a leader epoch ended, to find the point where two logs part."""

    replica_id: Int32 = wire(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """An entry of `partitions` of `OffsetForLeaderTopicResult`."""

    error_code: Int16 = wire(default=0)
    partition: Int32
    leader_epoch: Int32 = wire(since=1, default=-1, ignorable=True)
    end_offset: Int64 = wire(default=-1)


@struct
class OffsetForLeaderTopicResult:
    """An entry of `topics` of `OffsetForLeaderEpochResponse`."""

    topic: String
    partitions: list[EpochEndOffset]


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """The end offset of each leader epoch asked for."""

    throttle_time_ms: Int32 = wire(since=2, default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]


@struct
class DeleteRecordsPartition:
    """An entry of `partitions` of `DeleteRecordsTopic`."""

    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    """An entry of `topics` of `DeleteRecordsRequest`."""

    name: String
    partitions: list[DeleteRecordsPartition]


@message(key=21, versions=(0, 2), flexible=2, listeners=("broker",))
class DeleteRecordsRequest:
    """Moves the start of partitions forward."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    """An entry of `partitions` of `DeleteRecordsTopicResult`."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = wire(default=0)


@struct
class DeleteRecordsTopicResult:
    """An entry of `topics` of `DeleteRecordsResponse`."""

    name: String
    partitions: list[DeleteRecordsPartitionResult]


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """The new start of each partition."""

    throttle_time_ms: Int32 = wire(default=0)
    topics: list[DeleteRecordsTopicResult]
