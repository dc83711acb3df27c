"""What the handlers of groups share: who asks, and which of the named partitions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.group import Caller

if TYPE_CHECKING:
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage


def caller_of(context: Context) -> Caller:
    # The slash is Java's way to write an address; tools that show the hosts of members expect it.
    return Caller(context.version, context.client_id or "", f"/{context.connection.peer[0]}")


def has_partition(image: ClusterImage, topic: str, index: int) -> bool:
    state = image.topics.get(topic)
    return state is not None and 0 <= index < len(state.partitions)
