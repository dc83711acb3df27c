"""Brokers that come, go, come back under another epoch, leave on purpose, or lose a log directory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cluster import nodes
from ottla.cluster.image import BrokerNode, PartitionState
from ottla.cluster.leadership import elect_without, remove_replica
from ottla.controller.elections import change, repair
from ottla.controller.peers import Peers
from ottla.controller.term import Term
from ottla.controller.topics import begin_partitions
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.store.api import Delete

logger = logging.getLogger(__name__)

ANY_BROKER_EPOCH: Final = -1


async def read_brokers(term: Term) -> dict[int, BrokerNode]:
    """Who is registered now; the epoch of a broker is the commit that registered it."""
    ids = [int(name) for name in await term.children(nodes.BROKER_IDS) if name.isdecimal()]
    brokers = {}
    for node_id, node in (await term.get_many({node_id: nodes.broker_path(node_id) for node_id in ids})).items():
        if node is not None and node.data:
            try:
                brokers[node_id] = nodes.decode_broker(nodes.broker_path(node_id), node.data, node_id, node.created)
            except nodes.MetadataError as error:
                logger.error("%s; broker %d is taken for dead", error, node_id)
    return brokers


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between who was known and who is registered."""

    joined: list[BrokerNode]
    left: list[int]
    altered: list[BrokerNode]  # other addresses or features under the same registration


def compare(known: Mapping[int, BrokerNode], found: Mapping[int, BrokerNode]) -> Changes:
    """A broker that registered again between two readings has left and joined."""
    left = [node_id for node_id, broker in known.items() if node_id not in found or found[node_id].epoch > broker.epoch]
    joined = [broker for node_id, broker in found.items() if node_id not in known or node_id in left]
    altered = [
        broker
        for node_id, broker in found.items()
        if node_id in known and node_id not in left and broker.endpoints != known[node_id].endpoints
    ]
    return Changes(sorted(joined, key=lambda broker: broker.node_id), sorted(left), altered)


async def follow_brokers(term: Term, peers: Peers) -> Changes:
    """Brings what is known in line with who is registered."""
    changes = compare(term.context.brokers, await read_brokers(term))
    if changes.left:
        await _brokers_left(term, peers, changes.left)
    if changes.joined:
        await _brokers_joined(term, peers, changes.joined)
    for broker in changes.altered:
        term.context.brokers[broker.node_id] = broker
        peers.remove(broker.node_id)
        peers.add(broker)
    if changes.altered:
        term.batch.update_metadata(term.context.brokers)
    term.send()
    return changes


async def _brokers_left(term: Term, peers: Peers, left: Iterable[int]) -> None:
    context = term.context
    for node_id in left:
        logger.info("broker %d has left the cluster", node_id)
        context.brokers.pop(node_id, None)
        context.offline.pop(node_id, None)
        context.shutting_down.discard(node_id)
        peers.remove(node_id)
    held: dict[TopicPartition, None] = {}
    for node_id in left:
        held.update(dict.fromkeys(context.partitions_on(node_id)))
    await repair(term, held)
    # Also what did not change has another set of replicas that cannot be had.
    term.batch.update_metadata(context.brokers, held)
    term.send()


async def _brokers_joined(term: Term, peers: Peers, joined: Iterable[BrokerNode]) -> None:
    context = term.context
    others = set(context.brokers)
    for broker in joined:
        logger.info("broker %d has joined the cluster, in epoch %d", broker.node_id, broker.epoch)
        context.brokers[broker.node_id] = broker
        peers.add(broker)
    # A broker must know who is alive before it is sent to follow one of them.
    term.batch.update_metadata(others)
    term.send()
    # The newcomer knows nothing yet: every partition that has a state and stays. The others know them.
    arrived = {broker.node_id for broker in joined}
    staying = [partition for partition, _ in context.partitions() if partition.topic not in context.deleting]
    term.batch.update_metadata(arrived, staying)
    term.send()
    held = [partition for partition, state in context.partitions() if arrived & set(state.replicas)]
    for partition in held:
        state = context.state(partition)
        if state.leader_epoch >= 0:
            term.batch.lead_or_follow(arrived & set(state.replicas), partition)
    term.send()
    await begin_partitions(term, held)
    await repair(term, held)
    term.send()


# -- leaving on purpose ------------------------------------------------------------------------------------------------


async def shut_down(term: Term, node_id: int, broker_epoch: int) -> list[TopicPartition]:
    """Moves leadership away from a broker that is about to stop; returns what it still leads."""
    context = term.context
    broker = context.brokers.get(node_id)
    if broker is None:
        # Kafka's controller fails where it looks for the epoch of such a broker, and says no more than that.
        is_any = broker_epoch == ANY_BROKER_EPOCH
        code = ErrorCode.BROKER_NOT_AVAILABLE if is_any else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(code, f"broker {node_id} is not registered")
    if 0 <= broker_epoch < broker.epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is in epoch {broker.epoch}, not {broker_epoch}")
    context.shutting_down.add(node_id)
    held = [
        partition
        for partition in context.partitions_on(node_id)
        if len(context.state(partition).replicas) > 1 and partition.topic not in context.deleting
    ]
    led = [partition for partition in held if context.state(partition).leader == node_id]
    followed = [partition for partition in held if context.state(partition).leader != node_id]
    await change(term, led, lambda partition, state, online: elect_without(state, context.shutting_down, online))
    term.send()
    for partition in followed:
        term.batch.stop([node_id], partition, context.state(partition).leader_epoch, deletes=False)
    term.send()

    def rule(partition: TopicPartition, state: PartitionState, online: list[int]) -> PartitionState | None:
        return remove_replica(state, node_id)

    await change(term, followed, rule, leaving=node_id)
    term.send()
    return [partition for partition in led if context.state(partition).leader == node_id]


# -- log directories ---------------------------------------------------------------------------------------------------


async def directories_failed(term: Term) -> None:
    """Brokers that announced a failed log directory are asked which of their replicas are lost."""
    names = await term.children(nodes.LOG_DIR_EVENTS)
    paths = {name: f"{nodes.LOG_DIR_EVENTS}/{name}" for name in names}
    for name, node in (await term.get_many(paths)).items():
        if node is not None:
            try:
                node_id = nodes.decode_log_dir_event(paths[name], node.data)
            except nodes.MetadataError as error:
                logger.error("%s; it is dropped", error)
                continue
            for partition in term.context.partitions_on(node_id):
                if term.context.state(partition).leader_epoch >= 0:
                    term.batch.lead_or_follow([node_id], partition)
    term.send()
    await term.write_many({name: Delete(path) for name, path in paths.items()})


async def replicas_offline(term: Term, node_id: int, partitions: Iterable[TopicPartition]) -> None:
    """A broker answers that it cannot have these replicas: their directory failed."""
    context = term.context
    lost = [
        partition
        for partition in partitions
        if context.find(partition) is not None and partition not in context.offline.get(node_id, ())
    ]
    if not lost or node_id not in context.brokers:
        return
    logger.warning("broker %d has lost %d replicas with a log directory", node_id, len(lost))
    context.offline.setdefault(node_id, set()).update(lost)
    await repair(term, lost)
    for partition in lost:
        term.batch.stop([node_id], partition, context.state(partition).leader_epoch, deletes=False)
    term.batch.update_metadata(context.brokers, lost)
    term.send()
