"""Log directories and the replicas in them."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int16, Int32, Int64, String


@struct
class AlterReplicaLogDirTopic:
    """An entry of `topics` of `AlterReplicaLogDir`."""

    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    """An entry of `dirs` of `AlterReplicaLogDirsRequest`."""

    path: String
    topics: list[AlterReplicaLogDirTopic]


@message(key=34, versions=(0, 2), flexible=2, listeners=("broker",), advertised=(1, 2))
class AlterReplicaLogDirsRequest:
    """Moves replicas between the log directories of a broker."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    """An entry of `partitions` of `AlterReplicaLogDirTopicResult`."""

    partition_index: Int32
    error_code: Int16 = wire(default=0)


@struct
class AlterReplicaLogDirTopicResult:
    """An entry of `results` of `AlterReplicaLogDirsResponse`."""

    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[AlterReplicaLogDirTopicResult]


@struct
class DescribableLogDirTopic:
    """An entry of `topics` of `DescribeLogDirsRequest`."""

    topic: String
    partitions: list[Int32]


@message(key=35, versions=(0, 5), flexible=2, listeners=("broker",), advertised=(1, 5))
class DescribeLogDirsRequest:
    """Asks what lies in the log directories of a broker."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    """An entry of `partitions` of `DescribeLogDirsTopic`."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    """An entry of `topics` of `DescribeLogDirsResult`."""

    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """An entry of `results` of `DescribeLogDirsResponse`."""

    error_code: Int16 = wire(default=0)
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = wire(since=4, default=-1, ignorable=True)
    usable_bytes: Int64 = wire(since=4, default=-1, ignorable=True)
    is_cordoned: Bool = wire(since=5, default=False, ignorable=True)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsResponse:
    """Sizes and lags of the replicas in each directory."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(since=3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
