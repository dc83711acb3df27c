"""Metadata: brokers, topics and partition leaders; unknown topics are created where that is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.broker.first_image import first_image
from ottla.cluster.image import NO_LEADER, ClusterImage, TopicState
from ottla.errors import ApiError, ErrorCode
from ottla.ids import is_valid_topic_name
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.turns import STEP, Steps

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


FIRST_TOPIC_ID_VERSION = 12
FIRST_ERROR_VERSION = 13


async def handle(broker: Broker, request: MetadataRequest, context: Context) -> MetadataResponse:
    image = await first_image(
        lambda: broker.image, broker.image_changed
    )  # one view for the whole answer, however many turns it takes
    topics = request.topics
    if topics is None or (not topics and context.version == 0):
        return _response(broker, request, context, await broker.turns.finish(_all_known(image)))
    if not await broker.turns.finish(_can_be_asked(topics, context.version)):
        return await broker.turns.finish(_refused(topics, context.version, ErrorCode.INVALID_REQUEST))
    wanted, missing = await broker.turns.finish(_named_once(image, topics))
    created: Mapping[str, ApiError | None] = {}
    # Without an image nobody knows what is missing.
    is_allowed = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable and image.brokers
    if missing and is_allowed:
        # A client that hangs up must not leave a topic half made.
        created = await broker.carried_out(broker.controller.auto_create(missing, charge=context.charge(strict=False)))
        image = broker.image
    return _response(broker, request, context, await broker.turns.finish(_answers(image, wanted, created)))


def _all_known(image: ClusterImage) -> Steps[list[MetadataResponseTopic]]:
    answers = []
    for state in image.topics.values():
        answers.append((yield from _known(image, state)))
        if len(answers) % STEP == 0:
            yield
    return answers


def _named_once(
    image: ClusterImage, topics: list[MetadataRequestTopic]
) -> Steps[tuple[list[MetadataRequestTopic], list[str]]]:
    """Each topic once, and where some are named by id, only those; and the names of those that are not there."""
    by_id: dict[UUID, MetadataRequestTopic] = {}
    by_name: dict[str | None, MetadataRequestTopic] = {}
    missing: dict[str, None] = {}
    for number, topic in enumerate(topics, 1):
        if topic.topic_id != ZERO_UUID:
            by_id[topic.topic_id] = topic
        else:
            by_name[topic.name] = topic
            if topic.name is not None and topic.name not in image.topics:
                missing[topic.name] = None
        if number % STEP == 0:
            yield
    if by_id:
        return list(by_id.values()), []
    return list(by_name.values()), list(missing)


def _answers(
    image: ClusterImage, topics: list[MetadataRequestTopic], created: Mapping[str, ApiError | None]
) -> Steps[list[MetadataResponseTopic]]:
    """A client that asks again finds the topic that was just created, so it gets a retriable error for now."""
    answers = []
    for topic in topics:
        if topic.name is not None and topic.name in created:
            error = created[topic.name]
            code = ErrorCode.LEADER_NOT_AVAILABLE if error is None else error.code
            answers.append(MetadataResponseTopic(error_code=code, name=topic.name, partitions=[]))
        else:
            answers.append((yield from _answer(image, topic)))
        if len(answers) % STEP == 0:
            yield
    return answers


def _can_be_asked(topics: list[MetadataRequestTopic], version: int) -> Steps[bool]:
    """Whether every topic is named in a way that the version knows: ids came before they could be asked for."""
    has_id = has_nameless = False
    for number, topic in enumerate(topics, 1):
        has_id = has_id or topic.topic_id != ZERO_UUID
        has_nameless = has_nameless or topic.name is None
        if number % STEP == 0:
            yield
    if version < FIRST_TOPIC_ID_VERSION:
        return not has_id and not has_nameless
    return has_id or not has_nameless  # where some are named by id, the others are not looked at


def _refused(topics: list[MetadataRequestTopic], version: int, code: ErrorCode) -> Steps[MetadataResponse]:
    """An error of the whole request: most versions of this answer have no place for one but the topics."""
    answers = []
    for topic in topics:
        answers.append(
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        )
        if len(answers) % STEP == 0:
            yield
    error_code = code if version >= FIRST_ERROR_VERSION else ErrorCode.NONE
    return MetadataResponse(error_code=error_code, brokers=[], cluster_id=None, topics=answers)


def _answer(image: ClusterImage, entry: MetadataRequestTopic) -> Steps[MetadataResponseTopic]:
    try:
        return (yield from _known(image, _find(image, entry)))
    except ApiError as error:
        name = entry.name if entry.topic_id == ZERO_UUID else None
        return MetadataResponseTopic(error_code=error.code, name=name, topic_id=entry.topic_id, partitions=[])


def _find(image: ClusterImage, entry: MetadataRequestTopic) -> TopicState:
    if entry.topic_id != ZERO_UUID:
        topic = image.topic_by_id(entry.topic_id)
        if topic is None:
            raise ApiError(image.code_of_missing(ErrorCode.UNKNOWN_TOPIC_ID))
        return topic
    assert entry.name is not None, "a topic without name and id is refused before"
    if not is_valid_topic_name(entry.name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic = image.topics.get(entry.name)
    if topic is None:
        raise ApiError(image.code_of_missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return topic


def _known(image: ClusterImage, topic: TopicState) -> Steps[MetadataResponseTopic]:
    partitions = []
    for index, state in enumerate(topic.partitions):
        leader = image.leader_of(state)
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=image.offline_replicas(state),
            )
        )
        if len(partitions) % STEP == 0:
            yield
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
    )


def _response(
    broker: Broker, request: MetadataRequest, context: Context, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = broker.image
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:  # also of those that are not there, but not of unknown ids
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node, endpoint in broker.endpoints(context.session.listener_name)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
