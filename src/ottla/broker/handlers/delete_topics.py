"""DeleteTopics: by name or by id, each with its own error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.cluster.image import ClusterImage
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


class Wish(NamedTuple):
    """A topic as the request names it."""

    name: str | None
    topic_id: UUID


async def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    wishes = [Wish(topic.name, topic.topic_id) for topic in request.topics]
    wishes += [Wish(name, ZERO_UUID) for name in request.topic_names]
    by_topic: dict[object, list[Wish]] = {}
    async for wish in broker.turns.over(wishes):
        by_topic.setdefault(_topic_of(broker.image, wish), []).append(wish)
    responses = [await _delete(broker, same) async for same in broker.turns.over(by_topic.values())]
    return DeleteTopicsResponse(responses=responses)


def _topic_of(image: ClusterImage, wish: Wish) -> object:
    """The same for two wishes that mean the same topic, be it by name or by id."""
    if wish.name is not None and wish.topic_id != ZERO_UUID:
        return wish
    return wish.name if wish.topic_id == ZERO_UUID else image.names_by_id.get(wish.topic_id, wish.topic_id)


async def _delete(broker: Broker, wishes: list[Wish]) -> DeletableTopicResult:
    """The one answer to all wishes that mean a topic; if there are several, it stays."""
    name = next((wish.name for wish in wishes if wish.name is not None), None)
    topic_id = next((wish.topic_id for wish in wishes if wish.topic_id != ZERO_UUID), ZERO_UUID)
    try:
        if len(wishes) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named more than once")
        name = _name(broker, name, topic_id)
        if not broker.config.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "topics are not deleted here (delete.topic.enable)")
        deletion = broker.controller.delete_topic(name, None if topic_id == ZERO_UUID else topic_id)
        topic = await asyncio.shield(deletion)
    except ApiError as error:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


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
