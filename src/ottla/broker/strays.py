"""What a broker still has and the cluster does not: replicas and topics that went while nobody could say so to it.

A controller that loses its office takes with it what it had to send, and so does a registration that ends. The next
one begins with all topics and partitions as they are now: of a topic that is gone it says nothing, and no replica that
was removed is stopped. What may have been missed is looked up in the metadata store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from ottla.cluster import nodes
from ottla.cluster.image import ClusterImage
from ottla.ids import TopicPartition
from ottla.store.api import Store

logger = logging.getLogger(__name__)


class Assignments:
    """Which topics there are and who has them, by the store; StoreError where it cannot be asked."""

    def __init__(self, node_id: int, store: Store) -> None:
        self._node_id = node_id
        self._store = store

    async def catch_up(self) -> None:
        """Answers from here on are no older than this: a server that is behind would not know of new topics."""
        await self._store.sync(nodes.TOPICS)

    async def is_ours(self, name: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether a partition, of the topic with this id if it is known, is assigned to this broker.

        One of another id is taken for ours as well: an old tool, or a hand, may have changed the id, and the records
        are the topic's all the same.
        """
        path = nodes.topic_path(name.topic)
        node = await self._store.get(path)
        if node is None:
            return False
        try:
            assignment = nodes.decode_assignment(path, node.data)
        except nodes.MetadataError as error:
            logger.error("%s; %s stays", error, name)
            return True
        if name.partition >= len(assignment.partitions):
            return False
        is_ours = self._node_id in assignment.partitions[name.partition].replicas
        if is_ours and topic_id not in (None, assignment.topic_id):
            logger.error("%s: is of a topic with the id %s; %s stays", path, assignment.topic_id, name)
        return is_ours

    async def is_gone(self, topic: str) -> bool:
        return await self._store.get(nodes.topic_path(topic)) is None


class Strays:
    """What may have been missed. `_unconfirmed`: topics of the image that the controller has not named since its term,
    or our registration, began. `_deleted`: topics that it has taken out of the image; their replicas are to go.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._told_by: object = None
        self._unconfirmed: set[str] = set()
        self._deleted: set[tuple[str, UUID]] = set()

    def told_by(self, sender: object, image: ClusterImage) -> None:
        """Whoever is new, or new to us, begins with all topics."""
        if sender != self._told_by:
            self._told_by = sender
            self._unconfirmed = set(image.topics)

    def image_changed(self, before: ClusterImage, after: ClusterImage) -> None:
        changes = after.changes_since(before)
        self._unconfirmed.difference_update(topic.name for topic in changes.changed)
        self._unconfirmed.difference_update(topic.name for topic in changes.removed)
        self._deleted.update((topic.name, topic.topic_id) for topic in changes.removed)

    async def gone_topics(self, assignments: Assignments) -> list[str]:
        """Topics of the image that are not there any more; see `unconfirmed`."""
        if self._unconfirmed:
            await assignments.catch_up()
        return [name for name in sorted(self._unconfirmed) if await assignments.is_gone(name)]

    def unconfirmed(self, topics: Iterable[str]) -> list[str]:
        """Those of which the controller has not spoken meanwhile: one of that name may have been made again."""
        return [name for name in topics if name in self._unconfirmed]

    def forget_deleted(self, held: Iterable[tuple[str, UUID]]) -> None:
        """Deleted topics without replicas here are of no interest."""
        self._deleted.intersection_update(held)

    def is_stray(self, name: TopicPartition, topic_id: UUID, leader_epoch: int, image: ClusterImage) -> bool:
        """Of a replica that is here, in its latest leader epoch: by what the controller says to all.

        One in a later epoch than the image says has been given back.
        """
        if (name.topic, topic_id) in self._deleted:
            return True
        state = image.partition(name)
        return (
            state is not None
            and self._node_id not in state.replicas
            and 0 <= leader_epoch <= state.leader_epoch
            and image.topics[name.topic].topic_id == topic_id
        )
