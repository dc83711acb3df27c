"""DescribeTopicPartitions: topics page by page, so that a cluster of many partitions fits into many answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorized import TOPIC_OPERATIONS
from ottla.broker.first_image import first_image
from ottla.broker.rights import chosen
from ottla.cluster.image import NO_LEADER, ClusterImage, TopicState
from ottla.errors import ErrorCode
from ottla.ids import is_valid_topic_name
from ottla.protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.turns import Steps
from ottla.security.acls import Operation, Resource

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    image = await first_image(
        lambda: broker.image, broker.image_changed
    )  # one view for the whole answer, however many turns it takes
    return await broker.turns.finish(_described(broker, image, request, context))


def _described(
    broker: Broker, image: ClusterImage, request: DescribeTopicPartitionsRequest, context: Context
) -> Steps[DescribeTopicPartitionsResponse]:
    asked = {topic.name for topic in request.topics}
    start_topic, start_index = "", 0
    if request.cursor is not None:
        start_topic, start_index = request.cursor.topic_name, request.cursor.partition_index
        if start_index < 0 or (asked and start_topic not in asked):
            return (yield from _refused(request, ErrorCode.INVALID_REQUEST))
    names = sorted(asked or (yield from _visible(image, context)))
    left = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield
        if name < start_topic:
            continue
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(image, name))
            continue
        first = start_index if name == start_topic else 0
        indexes = range(first, min(len(topic.partitions), first + left))
        topics.append(_known(image, topic, indexes))
        left -= len(indexes)
        if indexes.stop < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=indexes.stop)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _visible(image: ClusterImage, context: Context) -> Steps[list[str]]:
    """All topics that the peer may see: neither they nor the place where a page ends tell of others."""
    rights = context.rights
    if rights is None:
        return list(image.topics)
    return (
        yield from chosen(
            list(image.topics), lambda name: rights.may(Operation.DESCRIBE, Resource.TOPIC, name, quietly=True)
        )
    )


def _refused(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> Steps[DescribeTopicPartitionsResponse]:
    """The answer to a cursor that no answer of ours ever had: the error stands with the topics."""
    topics = []
    for topic in request.topics:
        topics.append(
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[])
        )
        yield
    return DescribeTopicPartitionsResponse(topics=topics)


def _unknown(image: ClusterImage, name: str) -> DescribeTopicPartitionsResponseTopic:
    if not is_valid_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = image.code_of_missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _known(image: ClusterImage, topic: TopicState, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        state = topic.partitions[index]
        leader = image.leader_of(state)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=image.offline_replicas(state),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
