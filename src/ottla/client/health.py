"""How well a cluster is, worked out from its metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.metadata import ClusterView, Partition
from ottla.ids import TopicPartition

MIN_ISR: Final = "min.insync.replicas"


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


def is_offline(partition: Partition) -> bool:
    """Nobody leads it: it can be neither written nor read."""
    return partition.leader_id < 0


@dataclass(frozen=True, slots=True)
class Health:
    """What is wrong with which partitions. A partition may be in several."""

    partition_count: int
    under_replicated: tuple[TopicPartition, ...]
    under_min_isr: tuple[TopicPartition, ...]  # writes with acks=all are refused
    offline: tuple[TopicPartition, ...]

    @property
    def is_good(self) -> bool:
        return not (self.under_replicated or self.under_min_isr or self.offline)


def health_of(view: ClusterView, min_isr: Mapping[str, int]) -> Health:
    """`min_isr` is the min.insync.replicas of topics; of those that are not in it, one is enough."""
    return Health(
        partition_count=sum(len(topic.partitions) for topic in view.topics.values()),
        under_replicated=tuple(name for name, each in _partitions(view) if is_under_replicated(each)),
        under_min_isr=tuple(name for name, each in _partitions(view) if len(each.isr) < min_isr.get(name.topic, 1)),
        offline=tuple(name for name, each in _partitions(view) if is_offline(each)),
    )


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    replicas: int = 0
    leaders: int = 0
    preferred_leaders: int = 0
    out_of_sync: int = 0


def loads_of(view: ClusterView) -> dict[int, BrokerLoad]:
    """What every broker carries, alive or not."""
    partitions = [partition for _, partition in _partitions(view)]
    brokers = sorted({*view.nodes, *(node for each in partitions for node in each.replicas)})
    return {
        node: BrokerLoad(
            replicas=sum(node in each.replicas for each in partitions),
            leaders=sum(node == each.leader_id for each in partitions),
            preferred_leaders=sum(node == each.replicas[0] for each in partitions),
            out_of_sync=sum(node in each.replicas and node not in each.isr for each in partitions),
        )
        for node in brokers
    }


def _partitions(view: ClusterView) -> Iterator[tuple[TopicPartition, Partition]]:
    for name in sorted(view.topics):
        for partition in view.topics[name].partitions:
            yield TopicPartition(name, partition.partition), partition
