"""DeleteTopics: by name or by id, each with its own error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    wishes = [(topic.name, topic.topic_id) for topic in request.topics]
    wishes += [(name, ZERO_UUID) for name in request.topic_names]
    responses = []
    for name, topic_id in wishes:
        try:
            if wishes.count((name, topic_id)) > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named more than once")
            name = _name(broker, name, topic_id)
            if not broker.config.delete_topic_enable:
                raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "topics are not deleted here (delete.topic.enable)")
            topic = await asyncio.shield(broker.controller.delete_topic(name))
            responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        except ApiError as error:
            responses.append(
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
                )
            )
    return DeleteTopicsResponse(responses=responses)


def _name(broker: Broker, name: str | None, topic_id: UUID) -> str:
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not both")
    if name is not None:
        return name
    if topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic to delete has neither a name nor an id")
    known = broker.image.names_by_id.get(topic_id)
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    return known
