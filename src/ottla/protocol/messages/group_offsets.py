"""Offsets that groups commit."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    """An entry of `partitions` of `OffsetCommitRequestTopic`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=6, default=-1, ignorable=True)
    commit_timestamp: Int64 = wire(since=1, until=1, default=-1)
    committed_metadata: String | None


@struct
class OffsetCommitRequestTopic:
    """An entry of `topics` of `OffsetCommitRequest`."""

    name: String = wire(until=9, default="", ignorable=True)
    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@message(key=8, versions=(0, 10), flexible=8, listeners=("broker",), advertised=(2, 10))
class OffsetCommitRequest:
    """Commits offsets of a group."""

    group_id: String
    generation_id_or_member_epoch: Int32 = wire(since=1, default=-1, ignorable=True)
    member_id: String = wire(since=1, default="", ignorable=True)
    group_instance_id: String | None = wire(since=7, default=None)
    retention_time_ms: Int64 = wire(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    """An entry of `partitions` of `OffsetCommitResponseTopic`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class OffsetCommitResponseTopic:
    """An entry of `topics` of `OffsetCommitResponse`."""

    name: String = wire(until=9, default="", ignorable=True)
    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@message(key=8, versions=(0, 10), flexible=8)
class OffsetCommitResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(since=3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetFetchRequestTopic:
    """An entry of `topics` of `OffsetFetchRequest`."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    """An entry of `topics` of `OffsetFetchRequestGroup`."""

    name: String = wire(until=9, default="", ignorable=True)
    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    """An entry of `groups` of `OffsetFetchRequest`."""

    group_id: String
    member_id: String | None = wire(since=9, default=None, ignorable=True)
    member_epoch: Int32 = wire(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@message(key=9, versions=(0, 10), flexible=6, listeners=("broker",), advertised=(1, 10))
class OffsetFetchRequest:
    """Asks for the committed offsets of groups."""

    group_id: String = wire(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = wire(until=7, nullable_since=2, factory=list)
    groups: list[OffsetFetchRequestGroup] = wire(since=8, factory=list)
    require_stable: Bool = wire(since=7, default=False)


@struct
class OffsetFetchResponsePartition:
    """An entry of `partitions` of `OffsetFetchResponseTopic`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=5, default=-1, ignorable=True)
    metadata: String | None
    error_code: Int16 = wire(default=0)


@struct
class OffsetFetchResponseTopic:
    """An entry of `topics` of `OffsetFetchResponse`."""

    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    """An entry of `partitions` of `OffsetFetchResponseTopics`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(default=-1)
    metadata: String | None
    error_code: Int16 = wire(default=0)


@struct
class OffsetFetchResponseTopics:
    """An entry of `topics` of `OffsetFetchResponseGroup`."""

    name: String = wire(until=9, default="", ignorable=True)
    topic_id: Uuid = wire(since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    """An entry of `groups` of `OffsetFetchResponse`."""

    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = wire(default=0)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse:
    """The committed offsets."""

    throttle_time_ms: Int32 = wire(since=3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(until=7, factory=list)
    error_code: Int16 = wire(since=2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(since=8, factory=list)


@struct
class OffsetDeleteRequestPartition:
    """An entry of `partitions` of `OffsetDeleteRequestTopic`."""

    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    """An entry of `topics` of `OffsetDeleteRequest`."""

    name: String
    partitions: list[OffsetDeleteRequestPartition]


@message(key=47, versions=(0, 0), listeners=("broker",))
class OffsetDeleteRequest:
    """Forgets committed offsets of a group."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    """An entry of `partitions` of `OffsetDeleteResponseTopic`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class OffsetDeleteResponseTopic:
    """An entry of `topics` of `OffsetDeleteResponse`."""

    name: String
    partitions: list[OffsetDeleteResponsePartition]


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse:
    """The outcome per partition."""

    error_code: Int16 = wire(default=0)
    throttle_time_ms: Int32 = wire(default=0)
    topics: list[OffsetDeleteResponseTopic]
