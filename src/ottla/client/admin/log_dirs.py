"""Log directories of brokers and the replicas in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.client.admin.calls import AdminCalls
from ottla.client.leaders import by_topic
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
    DescribeLogDirsResult,
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


class LogDirCalls(AdminCalls):
    async def describe_log_dirs(
        self,
        broker_id: int,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[LogDirectory]:
        """What lies in the directories of a broker: all replicas, or those of these partitions."""
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        found = await self._cluster.ask_node(
            broker_id,
            DescribeLogDirsRequest(topics=topics),
            DescribeLogDirsResponse,
            deadline=self._deadline(timeout_s),
        )
        raise_if(error_of(found.error_code, None, f"the log directories of broker {broker_id}"))
        return list(map(_log_directory, found.results))

    async def describe_log_dirs_of_brokers(
        self,
        broker_ids: Collection[int] | None = None,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[int, list[LogDirectory] | ApiError]:
        """What lies in the directories of several brokers; of all where none is named."""
        deadline = self._deadline(timeout_s)
        wanted = sorted((await self._cluster.refresh((), deadline)).nodes) if broker_ids is None else broker_ids
        return await self._for_each(
            wanted, lambda broker_id: self.describe_log_dirs(broker_id, partitions, timeout_s=deadline.left_s)
        )

    async def alter_replica_log_dirs(
        self, broker_id: int, directories: Mapping[TopicPartition, str], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Has a broker move its replicas into these directories of its own; it returns before they are there.

        A replica that the broker does not have answers REPLICA_NOT_AVAILABLE, and is made in that directory if it
        comes.
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
        response = await self._cluster.ask_node(
            broker_id,
            AlterReplicaLogDirsRequest(dirs=dirs),
            AlterReplicaLogDirsResponse,
            deadline=self._deadline(timeout_s),
        )
        return {
            TopicPartition(topic.topic_name, each.partition_index): error_of(
                each.error_code, None, f"{topic.topic_name}-{each.partition_index} on broker {broker_id}"
            )
            for topic in response.results
            for each in topic.partitions
        }


def _log_directory(found: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        path=found.log_dir,
        error=error_of(found.error_code, None, found.log_dir),
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
        replicas=tuple(
            ReplicaInDirectory(
                TopicPartition(topic.name, replica.partition_index),
                replica.partition_size,
                replica.offset_lag,
                replica.is_future_key,
            )
            for topic in found.topics
            for replica in topic.partitions
        ),
    )
