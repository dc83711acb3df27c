"""Who leads a partition after a broker came back, or after it lost replicas with a log directory. Pure.

Every election has an epoch of its own, even where the same broker wins: whoever knows the old leadership can see
that it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionState, TopicState
from ottla.ids import TopicPartition


def decide_return(image: ClusterImage, node_id: int) -> list[TopicState]:
    """The topics that change because a broker is back: it leads again what it led, and what had to wait for it."""
    changed = []
    for topic in image.topics.values():
        partitions = tuple(_returned(image, state, node_id) for state in topic.partitions)
        if partitions != topic.partitions:
            changed.append(replace(topic, partitions=partitions))
    return changed


def _returned(image: ClusterImage, state: PartitionState, node_id: int) -> PartitionState:
    offline = tuple(node for node in state.offline if node != node_id)
    is_waited_for = node_id in state.isr and state.leader not in image.brokers
    if state.leader == node_id or is_waited_for:
        return _elected(state, node_id, state.isr, offline)
    return state if offline == state.offline else replace(state, offline=offline)


def decide_loss(image: ClusterImage, node_id: int, lost: Iterable[TopicPartition]) -> list[TopicState]:
    """The topics that change because a broker lost these replicas with their log directory.

    Another replica in sync leads on. Where there is none nobody leads, and the lost one stays the only one in sync: no
    other has all that was acknowledged.
    """
    changed: dict[str, list[PartitionState]] = {}
    for name in lost:
        state = image.partition(name)
        if state is not None and node_id in state.replicas and node_id not in state.offline:
            partitions = changed.setdefault(name.topic, list(image.topics[name.topic].partitions))
            partitions[name.partition] = _without(image, state, node_id)
    return [replace(image.topics[name], partitions=tuple(partitions)) for name, partitions in changed.items()]


def _without(image: ClusterImage, state: PartitionState, node_id: int) -> PartitionState:
    offline = (*state.offline, node_id)
    isr = tuple(node for node in state.isr if node != node_id)
    if state.leader != node_id:
        return replace(state, offline=offline) if isr == state.isr else _elected(state, state.leader, isr, offline)
    online = [node for node in state.replicas if node in isr and node in image.brokers and node not in offline]
    return _elected(state, online[0], isr, offline) if online else _elected(state, NO_LEADER, state.isr, offline)


def _elected(state: PartitionState, leader: int, isr: tuple[int, ...], offline: tuple[int, ...]) -> PartitionState:
    return replace(
        state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr, offline=offline, version=state.version + 1
    )
