"""Topics on their way out: marked in the store, taken out of the metadata, stopped and deleted on brokers, forgotten.

Everything can be resumed from the mark alone. A topic is gone for clients at once, and brokers that are there delete
their replicas; it is forgotten when all have, for the records of one that is away would come back with it, under a name
that may be another topic's by then. A move in progress ends with the topic: replicas that are being added or removed
are deleted as the others are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ottla.cluster import nodes
from ottla.cluster.control_batch import BEING_DELETED
from ottla.cluster.image import NO_LEADER, PartitionState
from ottla.cluster.leadership import without_leader
from ottla.controller.term import Term
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.store.api import Delete

logger = logging.getLogger(__name__)


Replica = tuple[int, TopicPartition]  # on which broker


class Deletions:
    """The deletions of one term: for each topic the replicas that are not reported as deleted (`_awaited`), and those
    among them whose brokers have been asked and have not answered (`_asked`).
    """

    def __init__(self, term: Term) -> None:
        self._term = term
        self._awaited: dict[str, set[Replica]] = {}
        self._asked: dict[str, set[Replica]] = {}

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
        """Begins with the topics that are to go, and goes on where a broker is back."""
        deleting = self._term.context.deleting
        for name in self._awaited.keys() - deleting:  # somebody removed the topic from the store by hand
            del self._awaited[name], self._asked[name]
        await self._begin(sorted(deleting - self._awaited.keys()))
        self._ask()
        # A topic without partitions that anybody holds has nothing to wait for.
        await self._forget_all([name for name, awaited in self._awaited.items() if not awaited])

    async def _begin(self, names: Iterable[str]) -> None:
        """Out of the metadata first, so that nobody asks for them any more; and led by nobody."""
        term, context = self._term, self._term.context
        states: dict[TopicPartition, PartitionState] = {}
        for name in names:
            of_topic = {TopicPartition(name, index): each for index, each in enumerate(context.topics[name].partitions)}
            self._awaited[name] = {(node, place) for place, state in of_topic.items() for node in state.replicas}
            self._asked[name] = set()
            states |= of_topic
        if not states:
            return
        term.batch.update_metadata(context.brokers, states)
        term.send()
        led = {partition: without_leader(state) for partition, state in states.items() if state.leader != NO_LEADER}
        await term.write_states(led)

    def _ask(self) -> None:
        """Has the brokers that are there stop and then delete what they hold and were not asked for."""
        term, context = self._term, self._term.context
        replicas = sorted(
            (node, partition)
            for name, awaited in self._awaited.items()
            for node, partition in awaited - self._asked[name]
            if context.is_replica_online(partition, node)
        )
        for deletes in (False, True):
            for node, partition in replicas:
                term.batch.stop([node], partition, BEING_DELETED, deletes=deletes)
            term.send()
        for node, partition in replicas:
            self._asked[partition.topic].add((node, partition))

    async def replicas_deleted(self, node_id: int, answers: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
        """A broker deleted replicas, or could not."""
        complete = []
        for partition, code in answers:
            awaited = self._awaited.get(partition.topic)
            if awaited is None:
                continue
            self._asked[partition.topic].discard((node_id, partition))
            if code != ErrorCode.NONE:
                logger.warning("broker %d could not delete %s: %s", node_id, partition, code.name)
                continue  # asked again when something changes
            awaited.discard((node_id, partition))
            if not awaited:
                complete.append(partition.topic)
        await self._forget_all(complete)

    def brokers_joined(self, node_ids: Iterable[int]) -> None:
        """What goes leaves their metadata: one that has only a new session may still know it."""
        context = self._term.context
        going = [partition for partition, _ in context.partitions() if partition.topic in context.deleting]
        if going:
            self._term.batch.update_metadata(node_ids, going)
            self._term.send()

    def broker_left(self, node_id: int) -> None:
        """What it was asked to delete waits until it is back."""
        for asked in self._asked.values():
            asked.difference_update([replica for replica in asked if replica[0] == node_id])

    async def _forget_all(self, names: Iterable[str]) -> None:
        """Together: each takes several requests to the store, one after the other, and other events wait meanwhile."""
        await asyncio.gather(*map(self._forget, names))

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
        self._asked.pop(name, None)
        term.context.forget_topic(name)
        logger.info("topic %s has been deleted", name)
