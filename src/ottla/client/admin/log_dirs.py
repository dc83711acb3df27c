"""Log directories of brokers and the replicas in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.client.admin.leaders import by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True)
class ReplicaInDirectory:
    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One directory of a broker. Sizes of the disk are -1 where the broker is too old to tell."""

    path: str
    error: ApiError | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaInDirectory, ...]


async def describe_log_dirs(
    cluster: Cluster, node_id: int, partitions: Collection[TopicPartition] | None = None
) -> list[LogDirectory]:
    """What lies in the directories of a broker; all replicas where none is named."""
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]
    found = await cluster.ask_node(node_id, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    raise_if(error_of(found.error_code, None, f"the log directories of broker {node_id}"))
    return [
        LogDirectory(
            path=each.log_dir,
            error=error_of(each.error_code, None, each.log_dir),
            total_bytes=each.total_bytes,
            usable_bytes=each.usable_bytes,
            replicas=tuple(
                ReplicaInDirectory(
                    TopicPartition(topic.name, replica.partition_index),
                    replica.partition_size,
                    replica.offset_lag,
                    replica.is_future_key,
                )
                for topic in each.topics
                for replica in topic.partitions
            ),
        )
        for each in found.results
    ]


async def alter_replica_log_dirs(
    cluster: Cluster, node_id: int, directories: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ApiError | None]:
    """Has a broker move its replicas into these directories of its own; it returns before they are there.

    A replica that the broker does not have answers REPLICA_NOT_AVAILABLE, and is made in that directory if it comes.
    """
    by_directory: dict[str, list[TopicPartition]] = {}
    for partition, path in directories.items():
        by_directory.setdefault(path, []).append(partition)
    dirs = [
        AlterReplicaLogDir(
            path=path,
            topics=[
                AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        for path, partitions in by_directory.items()
    ]
    response = await cluster.ask_node(node_id, AlterReplicaLogDirsRequest(dirs=dirs), AlterReplicaLogDirsResponse)
    return {
        TopicPartition(topic.topic_name, each.partition_index): error_of(
            each.error_code, None, f"{topic.topic_name}-{each.partition_index} on broker {node_id}"
        )
        for topic in response.results
        for each in topic.partitions
    }
