"""Deleting the oldest records of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.admin.leaders import ask_leaders, by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes what lies before the offset given for each partition (-1: everything); returns the new log starts."""

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | ApiError]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=before[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        connection = await cluster.leader_connection(node_id)
        request = DeleteRecordsRequest(topics=topics, timeout_ms=cluster.options.timeout_ms)
        response = await connection.request(request, DeleteRecordsResponse)
        outcomes: dict[TopicPartition, int | ApiError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                error = error_of(each.error_code, None, f"{topic.name}-{each.partition_index}")
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = each.low_watermark if error is None else error
        return outcomes

    return await ask_leaders(cluster, before, ask)
