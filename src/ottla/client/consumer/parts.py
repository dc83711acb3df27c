"""What the parts of one consumer share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from random import Random

from ottla.client.consumer.commits import AutoCommit, Commits
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.coordinator import Coordinator
from ottla.client.consumer.cursor import Cursor
from ottla.client.consumer.interceptors import Interceptors
from ottla.client.consumer.listeners import Listeners
from ottla.client.consumer.positions import Position, Positions
from ottla.client.consumer.subscription import Subscription
from ottla.client.metadata import Cluster
from ottla.client.retrying import Pauses
from ottla.client.settings import ConsumerSettings
from ottla.ids import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.signal import Signal


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What a consumer with a group has beside the rest."""

    group_id: str
    coordinator: Coordinator
    commits: Commits
    auto_commit: AutoCommit | None


@dataclass(frozen=True, slots=True)
class Parts:
    settings: ConsumerSettings
    cluster: Cluster
    subscription: Subscription
    positions: Positions
    listeners: Listeners
    cursor: Cursor
    interceptors: Interceptors
    moved: Signal  # something happened: look again
    pauses: Pauses
    clock: Clock
    rng: Random
    metrics: ConsumerMetrics
    group: GroupParts | None

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def now_anywhere() -> float:
        """The same for readers of metrics, which may be on another thread: asyncio's clock is the steady one."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    @property
    def commits_before_revoking(self) -> bool:
        """Whether what was read is committed without being asked for before others get it."""
        return self.group is not None and (self.group.auto_commit is not None or self.cursor.hold is not None)

    def consumed(self) -> dict[TopicPartition, Position]:
        """Behind the last record that the user has had, in every partition."""
        return {**self.positions.offsets(), **self.cursor.unread_positions(self.positions)}
