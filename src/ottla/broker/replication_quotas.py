"""How fast replicas that are throttled may be copied (`leader.` and `follower.replication.throttled.rate`).

A leader sends nothing of a throttled partition to a follower, and a follower asks for nothing of it, while more has
passed than the rate allows. Whoever is in sync is never held up, or a throttle would cost the cluster a replica. Which
replicas of a topic are meant is a setting of the topic, `partition:broker` or `*`.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.config.topic import LogConfig
from ottla.ids import TopicPartition
from ottla.replication.throttle import Throttle

ALL_REPLICAS = "*"


class ReplicationQuota:
    """The quota of one broker, as the leader of its partitions or as a follower. Owns what has passed."""

    def __init__(
        self,
        node_id: int,
        rate: Callable[[], int],
        replicas: Callable[[LogConfig], tuple[str, ...]],
        now: Callable[[], float],
    ) -> None:
        """`rate`: bytes per second; `replicas`: the throttled ones of a topic; both as they are set now."""
        self._node_id = node_id
        self._rate = rate
        self._replicas = replicas
        self._now = now
        self._throttle = Throttle()

    def delay_s(self, partition: TopicPartition, config: LogConfig) -> float:
        """How long nothing of a partition may pass; 0 where something may."""
        if not self.applies_to(partition, config):
            return 0.0
        return self._throttle.delay_s(self._rate(), self._now())

    def record(self, partition: TopicPartition, config: LogConfig, size_bytes: int) -> None:
        """So much of a partition has passed."""
        if size_bytes and self.applies_to(partition, config):
            self._throttle.record(size_bytes, self._now())

    def applies_to(self, partition: TopicPartition, config: LogConfig) -> bool:
        """Whether the partition's replica here is a throttled one."""
        replicas = self._replicas(config)
        return bool(replicas) and (ALL_REPLICAS in replicas or f"{partition.partition}:{self._node_id}" in replicas)
