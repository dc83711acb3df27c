"""Brokers that come, go, come back under another epoch, leave on purpose, or lose a log directory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


async def read_brokers(term: Term) -> dict[int, BrokerNode]:
    """Who is registered now; the epoch of a broker is the commit that registered it."""
    ids = [int(name) for name in await term.children(nodes.BROKER_IDS) if name.isdecimal()]
    found = await term.get_many({node_id: nodes.broker_path(node_id) for node_id in ids})
    return {
        node_id: nodes.decode_broker(nodes.broker_path(node_id), node.data, node_id, node.created)
        for node_id, node in found.items()
        if node is not None and node.data
    }


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between who was known and who is registered."""

    came: list[BrokerNode]
    went: list[int]
    altered: list[BrokerNode]  # other addresses or features under the same registration


def compare(known: Mapping[int, BrokerNode], found: Mapping[int, BrokerNode]) -> Changes:
    """A broker that registered anew between two readings went and came."""
    went = [node_id for node_id, broker in known.items() if node_id not in found or found[node_id].epoch > broker.epoch]
    came = [broker for node_id, broker in found.items() if node_id not in known or node_id in went]
    altered = [
        broker
        for node_id, broker in found.items()
        if node_id in known and node_id not in went and broker.endpoints != known[node_id].endpoints
    ]
    return Changes(sorted(came, key=lambda broker: broker.node_id), sorted(went), altered)


async def follow_brokers(term: Term, peers: Peers) -> Changes:
    """Brings what is known in line with who is registered."""
    changes = compare(term.office.brokers, await read_brokers(term))
    if changes.went:
        await _brokers_went(term, peers, changes.went)
    if changes.came:
        await _brokers_came(term, peers, changes.came)
    for broker in changes.altered:
        term.office.brokers[broker.node_id] = broker
        peers.remove(broker.node_id)
        peers.add(broker)
    if changes.altered:
        term.batch.update_metadata(term.office.brokers)
    term.send()
    return changes


async def _brokers_went(term: Term, peers: Peers, went: Iterable[int]) -> None:
    office = term.office
    for node_id in went:
        logger.info("broker %d has left the cluster", node_id)
        office.brokers.pop(node_id, None)
        office.offline.pop(node_id, None)
        office.shutting_down.discard(node_id)
        peers.remove(node_id)
    held: dict[TopicPartition, None] = {}
    for node_id in went:
        held.update(dict.fromkeys(office.partitions_on(node_id)))
    await repair(term, held)
    # Also what did not change has another set of replicas that cannot be had.
    term.batch.update_metadata(office.brokers, held)
    term.send()


async def _brokers_came(term: Term, peers: Peers, came: Iterable[BrokerNode]) -> None:
    office = term.office
    others = set(office.brokers)
    for broker in came:
        logger.info("broker %d has joined the cluster, in epoch %d", broker.node_id, broker.epoch)
        office.brokers[broker.node_id] = broker
        peers.add(broker)
    # Who is alive must be known before anybody is told to follow one of them.
    term.batch.update_metadata(others)
    term.send()
    arrived = {broker.node_id for broker in came}
    term.batch.update_metadata(arrived)
    term.send()
    held = [partition for partition, state in office.partitions() if arrived & set(state.replicas)]
    for partition in held:
        state = office.state(partition)
        if state.leader_epoch >= 0:
            term.batch.lead_or_follow(arrived & set(state.replicas), partition)
    # The newcomer knows nothing yet: every partition that has a state.
    term.batch.update_metadata(arrived, [partition for partition, _ in office.partitions()])
    term.send()
    await begin_partitions(term, held)
    await repair(term, held)
    term.send()


# -- leaving on purpose ------------------------------------------------------------------------------------------------


async def shut_down(term: Term, node_id: int, broker_epoch: int) -> list[TopicPartition]:
    """Moves leadership away from a broker that is about to stop; returns what it still leads."""
    office = term.office
    broker = office.brokers.get(node_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not registered")
    if 0 <= broker_epoch < broker.epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is in epoch {broker.epoch}, not {broker_epoch}")
    office.shutting_down.add(node_id)
    held = [
        partition
        for partition in office.partitions_on(node_id)
        if len(office.state(partition).replicas) > 1 and partition.topic not in office.deleting
    ]
    led = [partition for partition in held if office.state(partition).leader == node_id]
    await change(term, led, lambda partition, state, able: elect_without(state, office.shutting_down, able))
    term.send()
    followed = [partition for partition in held if office.state(partition).leader != node_id]
    for partition in followed:
        term.batch.stop([node_id], partition, office.state(partition).leader_epoch, deletes=False)
    term.send()

    def rule(partition: TopicPartition, state: PartitionState, able: list[int]) -> PartitionState | None:
        return remove_replica(state, node_id)

    await change(term, followed, rule)
    term.send()
    return [partition for partition in led if office.state(partition).leader == node_id]


# -- log directories ---------------------------------------------------------------------------------------------------


async def directories_failed(term: Term) -> None:
    """Brokers that announced a failed log directory are asked about all their replicas: the answers tell which."""
    names = await term.children(nodes.LOG_DIR_EVENTS)
    paths = {name: f"{nodes.LOG_DIR_EVENTS}/{name}" for name in names}
    for name, node in (await term.get_many(paths)).items():
        if node is not None:
            node_id = nodes.decode_log_dir_event(paths[name], node.data)
            for partition in term.office.partitions_on(node_id):
                if term.office.state(partition).leader_epoch >= 0:
                    term.batch.lead_or_follow([node_id], partition)
    term.send()
    await term.write_many({name: Delete(path) for name, path in paths.items()})


async def replicas_offline(term: Term, node_id: int, partitions: Iterable[TopicPartition]) -> None:
    """A broker answers that it cannot have these replicas: their directory failed."""
    office = term.office
    lost = [
        partition
        for partition in partitions
        if office.find(partition) is not None and partition not in office.offline.get(node_id, ())
    ]
    if not lost or node_id not in office.brokers:
        return
    logger.warning("broker %d has lost %d replicas with a log directory", node_id, len(lost))
    office.offline.setdefault(node_id, set()).update(lost)
    await repair(term, lost)
    for partition in lost:
        term.batch.stop([node_id], partition, office.state(partition).leader_epoch, deletes=False)
    term.batch.update_metadata(office.brokers, lost)
    term.send()
