"""Requests that are seen at once to be about nothing but what was allowed to their peer before, by the rules that hold.

Nearly every request is one: a client asks for the same things again and again. Where its check here says so, the rule
of its API would let it pass, and is not asked; nothing is built for it. Where it does not, nothing follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from operator import attrgetter
from typing import Any

from ottla.broker.rights import LOOKED_AT_ONCE_MAX, Rights
from ottla.broker.transactional_produce import has_transactional_batches
from ottla.cluster.image import ClusterImage
from ottla.protocol.wire import ZERO_UUID
from ottla.security.acls import Operation, Resource
from ottla.security.authorizer import right_number

Check = Callable[[Rights, Any, ClusterImage], bool]

DESCRIBE_TOPIC = right_number(Operation.DESCRIBE, Resource.TOPIC)
READ_TOPIC = right_number(Operation.READ, Resource.TOPIC)
WRITE_TOPIC = right_number(Operation.WRITE, Resource.TOPIC)
READ_GROUP = right_number(Operation.READ, Resource.GROUP)


def _are_few(entries: Sized | None) -> bool:
    return entries is not None and 0 < len(entries) <= LOOKED_AT_ONCE_MAX


def _named_topics(right: int, name_of: Callable[[Any], Any]) -> Check:
    """Of entries without topic ids."""

    def check(rights: Rights, request: Any, _: ClusterImage) -> bool:
        known = rights.known(right)
        entries = request.topics
        if len(entries) == 1:
            return name_of(entries[0]) in known
        return _are_few(entries) and known.issuperset(map(name_of, entries))

    return check


def _topics(right: int, entries_of: Callable[[Any], Any]) -> Check:
    """Of entries with a name or a topic id; where they have both, handlers go by the id."""

    def check(rights: Rights, request: Any, image: ClusterImage) -> bool:
        known = rights.known(right)
        entries = entries_of(request)
        if not known or not _are_few(entries):
            return False
        for entry in entries:
            topic_id = entry.topic_id
            is_named = topic_id is ZERO_UUID or topic_id == ZERO_UUID
            if (entry.name if is_named else image.names_by_id.get(topic_id)) not in known:
                return False
        return True

    return check


def _group(rights: Rights, request: Any, _: ClusterImage) -> bool:
    return request.group_id in rights.known(READ_GROUP)


_WRITTEN = _topics(WRITE_TOPIC, attrgetter("topic_data"))
_COMMITTED = _topics(READ_TOPIC, attrgetter("topics"))


def _produce(rights: Rights, request: Any, image: ClusterImage) -> bool:
    return not has_transactional_batches(request) and _WRITTEN(rights, request, image)


def _fetch(_: Rights, request: Any, __: ClusterImage) -> bool:
    """A consumer: its handler asks about each partition of its session."""
    return request.replica_state is None and request.replica_id < 0


def _metadata(rights: Rights, request: Any, image: ClusterImage) -> bool:
    """Topics that are not there may have to be created, and those that are named by id the rule tells from others."""
    if request.include_topic_authorized_operations or request.include_cluster_authorized_operations:
        return False
    known = rights.known(DESCRIBE_TOPIC)
    entries = request.topics
    if not known or not _are_few(entries):
        return False
    topics = image.topics
    for entry in entries:
        topic_id, name = entry.topic_id, entry.name
        if name not in known or name not in topics or (topic_id is not ZERO_UUID and topic_id != ZERO_UUID):
            return False
    return True


def _offset_commit(rights: Rights, request: Any, image: ClusterImage) -> bool:
    return _group(rights, request, image) and _COMMITTED(rights, request, image)


# By API key; for APIs that are not here, the rule is asked each time.
KNOWN_RIGHTS: dict[int, Check] = {
    0: _produce,
    1: _fetch,
    2: _named_topics(DESCRIBE_TOPIC, attrgetter("name")),
    3: _metadata,
    8: _offset_commit,
    11: _group,
    12: _group,
    13: _group,
    14: _group,
    23: _named_topics(DESCRIBE_TOPIC, attrgetter("topic")),
}
