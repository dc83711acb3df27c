"""DescribeLogDirs: what lies in the log directories of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.runtime.turns import Steps, in_turns
from ottla.storage.log import Log
from ottla.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(broker: Broker, request: DescribeLogDirsRequest, context: Context) -> Steps[DescribeLogDirsResponse]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            wanted.update((topic.topic, index) for index in topic.partitions)
            yield
    results = []
    for directory in broker.logs.directories:
        results.append((yield from _result(broker, directory, wanted)))
        yield
    return DescribeLogDirsResponse(results=results)


def _result(
    broker: Broker, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> Steps[DescribeLogDirsResult]:
    if not directory.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    # Of a copy: logs come and go while others have their turn.
    for name, log in sorted([*directory.logs.items(), *directory.future_logs.items()], key=lambda item: item[0]):
        yield
        if wanted is None or name in wanted:
            topics.setdefault(name.topic, []).append(_entry(broker, name, log, directory))
    total, usable = broker.disk.space(directory.path)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
    )


def _entry(broker: Broker, name: TopicPartition, log: Log, directory: LogDirectory) -> DescribeLogDirsPartition:
    """A log lags behind what it knows to be committed, one that is being moved behind the log that it copies."""
    is_future = directory.future_logs.get(name) is log
    partition = broker.replicas.get(name)
    end_offset = log.end_offset
    if partition is not None:
        end_offset = partition.log.end_offset if is_future else partition.high_watermark
    return DescribeLogDirsPartition(
        partition_index=name.partition,
        partition_size=log.size_bytes,
        offset_lag=max(0, end_offset - log.end_offset),
        is_future_key=is_future,
    )
