"""Keeps what is known of a consumer's topics fresh: leaders, partitions, and topics that a pattern fits.

Asks when something is missing, when an answer showed that it is old, and after `metadata_max_age_s`. One request at a
time, in the background; `seen` counts those that brought something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from ottla.client.consumer.parts import Parts
from ottla.client.consumer.positions import Leader
from ottla.client.consumer.subscription import Pattern
from ottla.client.rebootstrap import Rebootstrap, rebootstrap_after_s
from ottla.client.retrying import is_passing
from ottla.errors import OttlaError

log = logging.getLogger("ottla.client.consumer")


class TopicWatch:
    def __init__(self, parts: Parts, on_seen: Callable[[], None]) -> None:
        self._parts = parts
        self._on_seen = on_seen
        self._task: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._not_before = 0.0
        self._pauses: Iterator[float] = iter(parts.pauses)
        self._version = -1  # of the subscription that was asked for last
        self._failure: OttlaError | None = None
        self._rebootstrap = Rebootstrap(parts.cluster, rebootstrap_after_s(parts.settings))
        self.extra: frozenset[str] = frozenset()  # topics of other members, for the leader of a classic group

    @property
    def _wanted(self) -> frozenset[str] | None:
        """The topics to ask for; None means all."""
        if isinstance(self._parts.subscription.wanted, Pattern):
            return None
        assigned = {partition.topic for partition in self._parts.positions}
        return self._parts.subscription.topics | assigned | self.extra

    def look(self, now: float) -> None:
        if self._task is None and now >= self._not_before and self._is_due(now):
            self._asked_at = now
            self._version = self._parts.subscription.version
            self._task = asyncio.get_running_loop().create_task(self._ask(), name="ottla-metadata")

    def _is_due(self, now: float) -> bool:
        wanted = self._wanted
        if wanted is not None and not wanted:
            return False
        if self._asked_at is None or now - self._asked_at >= self._parts.settings.metadata_max_age_s:
            return True
        known = self._parts.cluster.known_topics()
        if wanted is None:
            missing = self._version != self._parts.subscription.version
            wanted = self._parts.subscription.topics
        else:
            missing = False
        return (
            missing
            or any(topic not in known for topic in wanted)
            or any(each.leader_id < 0 for topic in wanted if topic in known for each in known[topic].partitions)
        )

    def next_look(self, now: float) -> float | None:
        if self._task is not None or self._asked_at is None:
            return None
        if self._not_before > now:
            return self._not_before
        return self._asked_at + self._parts.settings.metadata_max_age_s

    async def _ask(self) -> None:
        parts = self._parts
        try:
            wanted = self._wanted
            names = None if wanted is None else sorted(wanted)
            view = await parts.cluster.view(names, may_create=parts.settings.allow_auto_create_topics)
        except OttlaError as error:
            self._rest()
            self._rebootstrap.failed(error, parts.now())
            if not is_passing(error):
                self._failure = error
            log.debug("metadata could not be had and is asked for again: %s", error)
        else:
            self._rebootstrap.answered()
            problems = [error for error in view.errors.values() if not error.code.retriable]
            if problems:
                self._failure = problems[0]
            if view.errors or any(each.leader_id < 0 for topic in view.topics.values() for each in topic.partitions):
                self._rest()
            else:
                self._pauses = iter(parts.pauses)
            if isinstance(parts.subscription.wanted, Pattern):
                seen = {name: topic.is_internal for name, topic in view.topics.items()}
                parts.subscription.topics_seen(seen, leave_out_internal=parts.settings.exclude_internal_topics)
                self._version = parts.subscription.version
            self.note_leaders()
            self._on_seen()
        finally:
            self._task = None
            parts.moved.fire()

    def _rest(self) -> None:
        self._not_before = self._parts.now() + next(self._pauses)

    def note_leaders(self) -> None:
        """Positions learn who leads their partitions now."""
        for partition in list(self._parts.positions):
            known = self._parts.cluster.known_partition(partition)
            if known is not None and known.leader_id >= 0:
                leader = Leader(known.leader_id, known.leader_epoch)
                self._parts.positions.leader_seen(partition, leader, can_validate=True)

    def raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
