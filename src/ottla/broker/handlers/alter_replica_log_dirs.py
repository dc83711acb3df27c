"""AlterReplicaLogDirs: moves replicas of this broker between its log directories, while they are in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    # Of a replica that is named twice the last word counts.
    paths = {
        TopicPartition(topic.name, index): entry.path
        for entry in request.dirs
        for topic in entry.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    async for name, path in broker.turns.over(paths.items()):
        code = await _move(broker, name, path)
        results.setdefault(name.topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=topic, partitions=each) for topic, each in results.items()]
    )


async def _move(broker: Broker, name: TopicPartition, path: str) -> ErrorCode:
    try:
        await broker.directory_moves.move(name, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
