"""Offsets of the oldest consumers: version 0 of OffsetCommit and OffsetFetch keeps them in the metadata store.

Consumers of that time moved from ZooKeeper to the broker's requests; those who read their offsets there still do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_requests import partition_count
from ottla.cluster import nodes
from ottla.errors import ErrorCode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.store.api import StoreError
from ottla.store.recipes import put_or_create

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

NO_OFFSET = -1


async def commit_to_store(broker: Broker, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Writes each offset to its node; the request names only partitions that there are."""
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if len(partition.committed_metadata or "") > broker.config.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                path = nodes.consumer_offset_path(request.group_id, topic.name, partition.partition_index)
                try:
                    await put_or_create(broker.store, path, str(partition.committed_offset).encode())
                except StoreError:
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
            answers.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


async def fetch_from_store(broker: Broker, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Reads each offset from its node; who has none is told that the partition is unknown, as it was then."""
    topics = []
    for topic in request.topics or ():
        answers = []
        for index in topic.partition_indexes:
            node = None
            if 0 <= index < partition_count(broker.image, topic.name):
                node = await broker.store.get(nodes.consumer_offset_path(request.group_id, topic.name, index))
            offset = NO_OFFSET if node is None or not node.data.isdigit() else int(node.data)
            code = ErrorCode.NONE if offset != NO_OFFSET else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=offset, metadata="", error_code=code
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=answers))
    return OffsetFetchResponse(topics=topics)
