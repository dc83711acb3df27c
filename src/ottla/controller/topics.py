"""Topics that appear in the store or grow: their partitions get a first state, which is sent to their brokers.

Whoever creates a topic writes its assignment and nothing else; the controller sees it and does the rest. That is also
what happens to a topic whose creation was cut off by a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

from ottla.cluster import nodes
from ottla.cluster.controller_context import NOT_WRITTEN, unwritten
from ottla.cluster.image import PartitionState, TopicState
from ottla.cluster.leadership import elect_first
from ottla.controller.term import Term
from ottla.ids import TopicPartition
from ottla.store.api import Create, Node, NodeExists, Put, StoreError

logger = logging.getLogger(__name__)

NewTopicId = Callable[[], UUID]


async def read_topics(
    term: Term, names: Iterable[str], new_topic_id: NewTopicId, written: dict[TopicPartition, int] | None = None
) -> list[TopicState]:
    """Topics with the states of their partitions, as the store has them. One from before there were ids gets one.

    `written` is filled with the commits that wrote the states.
    """
    commits = {} if written is None else written
    found = await term.get_many({name: nodes.topic_path(name) for name in names})
    # All at once: a new controller that asked for one after the other would take a round trip for each topic.
    topics = await asyncio.gather(
        *(_read_topic(term, name, node, new_topic_id, commits) for name, node in found.items() if node is not None)
    )
    return [topic for topic in topics if topic is not None]


async def _read_topic(
    term: Term, name: str, node: Node, new_topic_id: NewTopicId, written: dict[TopicPartition, int]
) -> TopicState | None:
    """None where the node cannot be read: one damaged topic leaves no cluster without a controller."""
    try:
        assignment = nodes.decode_assignment(nodes.topic_path(name), node.data)
        partitions = [
            replace(unwritten(each.replicas), adding=each.adding, removing=each.removing)
            for each in assignment.partitions
        ]
        topic = TopicState(name, assignment.topic_id or new_topic_id(), tuple(partitions))
        paths = {index: nodes.state_path(name, index) for index in range(len(partitions))}
        commits: dict[TopicPartition, int] = {}
        for index, state_node in (await term.get_many(paths)).items():
            if state_node is not None:
                commits[TopicPartition(name, index)] = state_node.changed
                before = partitions[index]
                state = nodes.decode_state(paths[index], state_node.data, before.replicas, state_node.version)
                partitions[index] = replace(state, adding=before.adding, removing=before.removing)
    except nodes.MetadataError as error:
        logger.error("%s; the topic is left as it is until that is repaired", error)
        return None
    written.update(commits)
    if assignment.topic_id is None:
        # Where the node has changed since, whoever watches it reads it again.
        await term.write(Put(nodes.topic_path(name), nodes.encode_topic(topic), node.version))
    return replace(topic, partitions=tuple(partitions))


async def follow_topics(term: Term, names: set[str], new_topic_id: NewTopicId) -> None:
    """Brings what is known in line with the topics that the store has."""
    context = term.context
    for gone in sorted(context.topics.keys() - names):
        context.forget_topic(gone)
    new = await read_topics(term, sorted(names - context.topics.keys()), new_topic_id)
    for topic in new:
        logger.info("topic %s has been created, with %d partitions", topic.name, len(topic.partitions))
        context.set_topic(topic)
    await begin_partitions(term, [TopicPartition(t.name, index) for t in new for index in range(len(t.partitions))])
    term.send()


async def follow_topic(term: Term, name: str, new_topic_id: NewTopicId) -> None:
    """A topic's assignment changed: it may have more partitions now, or can be read at last."""
    context = term.context
    known = context.topics.get(name)
    if known is None:
        await follow_topics(term, {name, *context.topics}, new_topic_id)
        return
    if name in context.deleting:
        return
    count = len(known.partitions)
    # Tools from before there were topic ids write the node without one. The topic's logs are of the id that it had.
    found = next(iter(await read_topics(term, [name], lambda: known.topic_id)), known)
    if len(found.partitions) <= count:
        return
    logger.info("topic %s grows from %d to %d partitions", name, count, len(found.partitions))
    context.set_topic(replace(known, partitions=known.partitions + found.partitions[count:]))
    await begin_partitions(term, [TopicPartition(name, index) for index in range(count, len(found.partitions))])
    term.send()


async def begin_partitions(term: Term, partitions: Iterable[TopicPartition]) -> None:
    """Gives partitions that have no state their first one, as far as one of their brokers is alive."""
    context = term.context
    first: dict[TopicPartition, PartitionState] = {}
    for partition in partitions:
        state = context.state(partition)
        online = context.online_replicas(partition)
        if state.version == NOT_WRITTEN and online and partition.topic not in context.deleting:
            new = elect_first(state.replicas, online)
            first[partition] = replace(new, adding=state.adding, removing=state.removing)
    if not first:
        return
    await term.write_many({name: Create(nodes.partitions_path(name)) for name in {p.topic for p in first}})
    await term.write_many({partition: Create(nodes.partition_path(*partition)) for partition in first})
    results = await term.write_many(
        {
            partition: Create(nodes.state_path(*partition), nodes.encode_state(state, context.epoch))
            for partition, state in first.items()
        }
    )
    context.set_states({each: first[each] for each, result in results.items() if not isinstance(result, StoreError)})
    there = [partition for partition, result in results.items() if isinstance(result, NodeExists)]
    await term.read_states(there)  # a controller before us was interrupted behind them
    for partition in first:
        if context.state(partition).version != NOT_WRITTEN:
            term.notify_replicas(partition, is_new=True)
