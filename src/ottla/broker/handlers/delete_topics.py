"""DeleteTopics: by name or by id, each with its own error."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.client_quotas import Charge
from ottla.broker.patience import Patience
from ottla.cluster.image import ClusterImage
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.stepping import all_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_STRICT_VERSION = 5  # from here on whoever deletes too much is refused (KIP-599)


class TopicToDelete(NamedTuple):
    """A topic as the request names it."""

    name: str | None
    topic_id: UUID


async def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    charge = context.charge(strict=context.version >= FIRST_STRICT_VERSION)
    by_topic: dict[object, list[TopicToDelete]] = {}
    async for entry in broker.turns.over(_entries(request)):
        by_topic.setdefault(_topic_of(broker.image, entry), []).append(entry)
    patience = Patience(request.timeout_ms)
    deletions = (patience.run(partial(_delete, broker, same, charge, context.version)) for same in by_topic.values())
    return DeleteTopicsResponse(responses=await all_of(deletions, broker.turns))


def _entries(request: DeleteTopicsRequest) -> Iterator[TopicToDelete]:
    yield from (TopicToDelete(topic.name, topic.topic_id) for topic in request.topics)
    yield from (TopicToDelete(name, ZERO_UUID) for name in request.topic_names)


def _topic_of(image: ClusterImage, entry: TopicToDelete) -> object:
    """The same for two entries that mean the same topic, be it by name or by id."""
    if entry.name is not None and entry.topic_id != ZERO_UUID:
        return entry
    return entry.name if entry.topic_id == ZERO_UUID else image.names_by_id.get(entry.topic_id, entry.topic_id)


async def _delete(
    broker: Broker, entries: list[TopicToDelete], charge: Charge, version: int, wait_s: float
) -> DeletableTopicResult:
    """The one answer to all entries that mean a topic; if there are several, it stays."""
    name = next((entry.name for entry in entries if entry.name is not None), None)
    topic_id = next((entry.topic_id for entry in entries if entry.topic_id != ZERO_UUID), ZERO_UUID)
    try:
        broker.controller.check_controller()
        if not broker.config.delete_topic_enable:
            is_known = version >= FIRST_VERSION_WITH_DELETION_DISABLED
            code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
            raise ApiError(code, "topics cannot be deleted: delete.topic.enable is false")
        if len(entries) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named more than once")
        name = _name(broker, name, topic_id)
        deletion = broker.controller.delete_topic(
            name, None if topic_id == ZERO_UUID else topic_id, wait_s=wait_s, charge=charge
        )
        topic = await broker.carried_out(deletion)
    except ApiError as error:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _name(broker: Broker, name: str | None, topic_id: UUID) -> str:
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is given by name or by id, not by both")
    if name is not None:
        return name
    if topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic to delete has neither a name nor an id")
    known = broker.image.names_by_id.get(topic_id)
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    return known
