"""Topics on their way out: marked in the store, taken out of the metadata, stopped and deleted on brokers, forgotten.

Everything can be resumed from the mark alone. A topic waits while one of its replicas is offline: its records
would come back with that replica, under a name that may be another topic's by then. A move in progress ends with the
topic: replicas that are being added or removed are deleted as the others are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.cluster import nodes
from ottla.cluster.control_batch import BEING_DELETED
from ottla.controller.term import Term
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.store.api import Delete

logger = logging.getLogger(__name__)


class Deletions:
    """The deletions of one term. `_awaited`: for each topic, the replicas that are not reported as deleted."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._awaited: dict[str, set[tuple[int, TopicPartition]]] = {}

    async def follow_marks(self) -> None:
        """Somebody wants topics deleted."""
        await self.read_marks()
        await self.resume()

    async def read_marks(self) -> None:
        """Learns which topics are to go: from here on they get no leaders, and no states where those are gone."""
        term, context = self._term, self._term.context
        marked = set(await term.children(nodes.DELETIONS))
        dropped = marked if not term.settings.deletes_topics else marked - context.topics.keys()
        await term.write_many({name: Delete(nodes.deletion_path(name)) for name in dropped})
        for name in sorted(marked - dropped - context.deleting):
            logger.info("the deletion of topic %s has begun", name)
            context.deleting.add(name)

    async def resume(self) -> None:
        """Goes on with the topics whose replicas are all online."""
        for name in sorted(self._term.context.deleting - self._awaited.keys()):
            if self._is_possible(name):
                self._stop_everywhere(name)
        # A topic without partitions that anybody holds has nothing to wait for.
        for name in [name for name, awaited in self._awaited.items() if not awaited]:
            await self._forget(name)

    def _is_possible(self, name: str) -> bool:
        context = self._term.context
        return all(
            context.is_replica_online(TopicPartition(name, index), node)
            for index, state in enumerate(context.topics[name].partitions)
            for node in state.replicas
        )

    def _stop_everywhere(self, name: str) -> None:
        """Out of the metadata first, so that nobody asks for it any more; then stopped, and then deleted."""
        term, context = self._term, self._term.context
        states = dict(enumerate(context.topics[name].partitions))
        partitions = [TopicPartition(name, index) for index in states]
        term.batch.update_metadata(context.brokers, partitions)
        term.send()
        for deletes in (False, True):
            for partition in partitions:
                term.batch.stop(context.state(partition).replicas, partition, BEING_DELETED, deletes=deletes)
            term.send()
        self._awaited[name] = {
            (node, TopicPartition(name, index)) for index, state in states.items() for node in state.replicas
        }

    async def replicas_deleted(self, node_id: int, answers: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
        """A broker deleted replicas, or could not."""
        complete = []
        for partition, code in answers:
            awaited = self._awaited.get(partition.topic)
            if awaited is None:
                continue
            if code != ErrorCode.NONE:
                logger.warning("broker %d could not delete %s: %s", node_id, partition, code.name)
                del self._awaited[partition.topic]  # tried again when something changes
                continue
            awaited.discard((node_id, partition))
            if not awaited:
                complete.append(partition.topic)
        for name in complete:
            await self._forget(name)

    def broker_left(self, node_id: int) -> None:
        """What it was to delete waits until it is back."""
        for name, awaited in list(self._awaited.items()):
            if any(node == node_id for node, _ in awaited):
                del self._awaited[name]

    async def _forget(self, name: str) -> None:
        """From the leaves to the mark: whoever resumes finds the mark until nothing else is left."""
        term = self._term
        indexes = range(len(term.context.topics[name].partitions))
        await term.write_many({index: Delete(nodes.state_path(name, index)) for index in indexes})
        await term.write_many({index: Delete(nodes.partition_path(name, index)) for index in indexes})
        for path in (
            nodes.partitions_path(name),
            nodes.topic_path(name),
            nodes.config_path("topics", name),
            nodes.deletion_path(name),
        ):
            await term.write(Delete(path))
        self._awaited.pop(name, None)
        term.context.forget_topic(name)
        logger.info("topic %s has been deleted", name)
