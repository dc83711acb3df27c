"""The producers that partitions remember."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.client.admin.leaders import ask_leaders, by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
    ProducerState,
)


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """The producers that each partition remembers."""

    async def ask(
        node_id: int, asked: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ApiError]:
        topics = [
            DescribeProducersRequestTopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(asked).items()
        ]
        connection = await cluster.leader_connection(node_id)
        response = await connection.request(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        outcomes: dict[TopicPartition, list[ProducerState] | ApiError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                error = error_of(each.error_code, each.error_message, f"{topic.name}-{each.partition_index}")
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = each.active_producers if error is None else error
        return outcomes

    return await ask_leaders(cluster, partitions, ask)
