"""Offsets of the oldest consumers: version 0 of OffsetCommit and OffsetFetch keeps them in the metadata store.

Consumers of that time moved from ZooKeeper to the broker's requests; tools that read their offsets there still do.
"""

from __future__ import annotations

from ottla.broker.group_requests import partition_count
from ottla.cluster import nodes
from ottla.cluster.image import ClusterImage
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
from ottla.runtime.turns import Turns
from ottla.store.api import Store, StoreError
from ottla.store.recipes import put_or_create

NO_OFFSET = -1


async def commit_to_store(store: Store, request: OffsetCommitRequest, metadata_bytes_max: int) -> OffsetCommitResponse:
    """Writes each offset to its node; the request names only partitions that exist."""
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if len(partition.committed_metadata or "") > metadata_bytes_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                path = nodes.consumer_offset_path(request.group_id, topic.name, partition.partition_index)
                try:
                    await put_or_create(store, path, str(partition.committed_offset).encode())
                except StoreError:
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
            answers.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


async def fetch_from_store(
    store: Store, image: ClusterImage, request: OffsetFetchRequest, turns: Turns
) -> OffsetFetchResponse:
    """Reads each offset from its node; one that was never committed is an unknown partition, as it was then."""
    topics = []
    async for topic in turns.over(request.topics or ()):
        answers = []
        async for index in turns.over(topic.partition_indexes):
            node = None
            if 0 <= index < partition_count(image, topic.name):
                node = await store.get(nodes.consumer_offset_path(request.group_id, topic.name, index))
            offset = NO_OFFSET if node is None or not node.data.isdigit() else int(node.data)
            code = ErrorCode.NONE if offset != NO_OFFSET else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=offset, metadata="", error_code=code
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=answers))
    return OffsetFetchResponse(topics=topics)
