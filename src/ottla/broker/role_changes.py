"""Which partitions a broker leads from now on, and no longer, after a request of the controller: lines of its log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ottla.ids import TopicPartition
from ottla.runtime.listed import Listed

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RoleChanges:
    """Of all partitions of a request: a broker that fails moves thousands at once."""

    gained: list[TopicPartition] = field(default_factory=list)
    lost: list[TopicPartition] = field(default_factory=list)
    followed: int = 0

    def add(self, partition: TopicPartition, *, led_before: bool, leads: bool) -> None:
        if leads and not led_before:
            self.gained.append(partition)
        elif led_before and not leads:
            self.lost.append(partition)
        if not leads:
            self.followed += 1

    def log(self, controller_id: int) -> None:
        if self.gained:
            logger.info(
                "leader of %d more partitions: %s (controller %d)", len(self.gained), Listed(self.gained), controller_id
            )
        if self.lost:
            logger.info(
                "no longer leader of %d partitions: %s (controller %d)",
                len(self.lost),
                Listed(self.lost),
                controller_id,
            )
        if self.followed:
            logger.info("follower of %d partitions, by controller %d", self.followed, controller_id)
