"""What the handlers of groups share: who asks, and which of the named partitions there are."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cluster.features import GROUP_VERSION
from ottla.errors import ApiError, ErrorCode
from ottla.groups.group import Caller
from ottla.security.acls import Operation, Resource

if TYPE_CHECKING:
    from ottla.broker.cluster_features import ClusterFeatures
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage
    from ottla.config.broker import BrokerConfig

COMMITTED_AT_ONCE_MAX = 1000  # offsets that are decided in one turn


def caller_of(context: Context) -> Caller:
    # The slash is Java's way to write an address; tools that show the hosts of members expect it.
    rights = context.rights
    may_describe = None if rights is None else partial(rights.may, Operation.DESCRIBE, Resource.TOPIC, quietly=True)
    return Caller(context.version, context.client_id or "", f"/{context.session.client_host}", may_describe)


def may_begin_consumer_group(config: BrokerConfig, features: ClusterFeatures | None) -> bool:
    """Whether a group may begin to use the protocol of KIP-848; ApiError where nobody may use it here, or not yet.

    False where some live broker does not serve it, one of Apache Kafka 3.9: a group is lost when its coordinator moves
    there, so none begins. One that runs may go on while its coordinator stays here. `features` are those of a cluster.
    """
    if "consumer" not in config.group_coordinator_rebalance_protocols:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "group.coordinator.rebalance.protocols of the broker does not have the protocol 'consumer'",
        )
    return features is None or features.has(GROUP_VERSION)


def partition_count(image: ClusterImage, topic: str) -> int:
    """How many partitions a topic has; none where it is not there."""
    state = image.topics.get(topic)
    return 0 if state is None else len(state.partitions)


def commits_in_pieces(request: Any) -> list[Any]:
    """A request to commit offsets as several that are decided one after the other; one that is small as it is.

    Offsets of different partitions have nothing to do with each other, and each has its own answer.
    """
    if sum(len(topic.partitions) for topic in request.topics) <= COMMITTED_AT_ONCE_MAX:
        return [request]
    pieces: list[Any] = []
    topics: list[Any] = []
    room = COMMITTED_AT_ONCE_MAX
    for topic in request.topics:
        start = 0
        while start < len(topic.partitions):
            part = copy(topic)
            part.partitions = topic.partitions[start : start + room]
            topics.append(part)
            start += len(part.partitions)
            room -= len(part.partitions)
            if not room:
                pieces.append(_with_topics(request, topics))
                topics, room = [], COMMITTED_AT_ONCE_MAX
    if topics:
        pieces.append(_with_topics(request, topics))
    return pieces


def _with_topics(request: Any, topics: list[Any]) -> Any:
    piece = copy(request)
    piece.topics = topics
    return piece


def topics_of_pieces(answers: Any) -> list[Any]:
    """The topics of the answers to the pieces of a request, each of them once."""
    topics: list[Any] = []
    for answer in answers:
        for topic in answer.topics:
            if topics and topics[-1].name == topic.name:
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
    return topics
