"""Who leads a partition as far as a broker knows: what it says to clients that ask it and not the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.ids import TopicPartition
from ottla.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.replicas import Replicas
    from ottla.cluster.image import ClusterImage


class KnownLeader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    node_id: int
    epoch: int


def known_leader(image: ClusterImage, replicas: Replicas, topic: str, topic_id: UUID, index: int) -> KnownLeader | None:
    """The leader of a partition; None where nobody is known to lead it.

    The controller names the new leader to a replica before all brokers learn of it, so the replica is asked first, as
    in Kafka.
    """
    name: str | None = topic if topic_id == ZERO_UUID else image.names_by_id.get(topic_id)
    if name is None:
        return None
    partition = TopicPartition(name, index)
    state, replica = image.partition(partition), replicas.get(partition)
    known = None
    if state is not None and state.leader >= 0:
        known = KnownLeader(state.leader, state.leader_epoch)
    if replica is None or (known is not None and known.epoch > replica.leader_epoch):
        return known
    if (leader_id := replica.leader_id) is not None:
        return KnownLeader(leader_id, replica.leader_epoch)
    # It was stopped in this epoch, or there is no leader any more: then it says at least who is not.
    is_right = known is not None and known.epoch == replica.leader_epoch and known.node_id != replicas.node_id
    return known if is_right else None
