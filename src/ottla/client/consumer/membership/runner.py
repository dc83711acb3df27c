"""What a consumer needs of its membership, whichever protocol it is; what the two have in common in doing it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final, Protocol

from ottla.client.consumer.commits import Committer, as_offsets
from ottla.client.consumer.parts import GroupParts, Parts
from ottla.client.consumer.topic_watch import TopicWatch
from ottla.client.retrying import Deadline, error_of
from ottla.client.values import ConsumerGroupMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

log = logging.getLogger("ottla.client.consumer")

UNPOLLED_LOSS: Final = "nobody polled for longer than max_poll_interval_s"
UNPOLLED: Final = (
    "[group %s] left: nobody polled for %.3f s longer than max_poll_interval_s (%g s). Poll more often, take fewer "
    "records at once (max_poll_records), or use process()"
)


class Membership(Committer, Protocol):
    def poll_began(self) -> None:
        """The user is there."""
        ...

    def poll_ended(self) -> None:
        """The user has records to work on, and the time until the next poll counts."""
        ...

    async def advance(self) -> None:
        """Does what is due and may call listeners; returns without waiting for brokers."""
        ...

    def topics_seen(self) -> None:
        """Metadata was refreshed: partitions may have been added."""
        ...

    def enforce_rebalance(self, reason: str) -> None: ...

    def metadata(self) -> ConsumerGroupMetadata: ...

    def next_look(self, now: float) -> float | None: ...

    async def leave(self, deadline: Deadline) -> None:
        """Gives everything up, tells the listener and the group, ends all tasks."""
        ...

    async def stop(self) -> None:
        """Ends all tasks at once."""
        ...


class Runner:
    """The part of a membership that is the same in both protocols: who polls, and what partitions come and go."""

    def __init__(self, parts: Parts, group: GroupParts, topics: TopicWatch) -> None:
        self._parts, self._group, self._topics = parts, group, topics
        self._commit: asyncio.Task[None] | None = None
        self._failure: OttlaError | None = None
        self._why_lost = ""  # as the coordinator said it, or our own clock
        self._is_polled = False
        self._last_poll = 0.0

    # -- the user's time -----------------------------------------------------------------------------------------------

    def poll_began(self) -> None:
        self._is_polled = True
        self._last_poll = self._parts.now()

    def poll_ended(self) -> None:
        self._is_polled = False
        self._last_poll = self._parts.now()

    def next_look(self, now: float) -> float | None:
        return None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # -- partitions that come and go -----------------------------------------------------------------------------------

    def _assign(self, partitions: Collection[TopicPartition], *, announced: bool = True) -> None:
        gone = set(self._parts.positions) - set(partitions)
        self._parts.positions.assign(partitions, asks_group=True, announced=announced)
        self._parts.cursor.drop(gone)
        self._topics.note_leaders()

    async def _lose_all(self) -> None:
        """The group has forgotten this member: others may read its partitions already."""
        lost = set(self._parts.positions)
        if lost:
            log.warning("[group %s] lost %s: %s", self._group.group_id, names_of(lost), self._why_lost)
            self._parts.metrics.coordinator.rebalance_failed(self._parts.now())
        self._assign(())
        await self._parts.listeners.lost(lost)

    async def _commit_first(self, going: set[TopicPartition], *, persists: bool) -> bool:
        """Begins the commit before a revocation; whether it is over. A poll asks again until it is."""
        if self._commit is None:
            work = self._commit_all(going, persists=persists)
            self._commit = asyncio.get_running_loop().create_task(work, name="ottla-commit")
        if not self._commit.done():
            return False
        commit, self._commit = self._commit, None
        commit.result()
        return True

    async def _commit_all(self, going: set[TopicPartition], *, persists: bool) -> None:
        """Before a revocation. It cannot be allowed to hold up the group: what it does not reach is read again."""
        parts = self._parts
        try:
            deadline = Deadline.after(parts.settings.max_poll_interval_s)
            await parts.cursor.release(going)
            await self._group.commits.commit(as_offsets(parts.consumed()), deadline, persists=persists)
        except OttlaError as error:
            log.warning("[group %s] the commit before a rebalance failed: %s", self._group.group_id, error)
        finally:
            parts.moved.fire()

    async def _revoke(self, going: set[TopicPartition]) -> None:
        """Gives these up, and tells the listener."""
        self._assign(set(self._parts.positions) - going)
        log.info("[group %s] revoked %s", self._group.group_id, names_of(going))
        await self._parts.listeners.revoked(going)

    async def _take(self, new: set[TopicPartition], added: set[TopicPartition]) -> None:
        """Takes what is assigned now; records of what was added are read once the listener has seen it."""
        self._parts.positions.keep_all()
        self._assign(new, announced=False)
        await self._parts.listeners.assigned(added)
        self._parts.positions.announce(new)
        self._parts.metrics.coordinator.rebalance_ended(self._parts.now())

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def _give_up_all(self, *, is_lost: bool) -> None:
        going = set(self._parts.positions)
        self._assign(())
        if going:
            await (self._parts.listeners.lost(going) if is_lost else self._parts.listeners.revoked(going))

    async def _send_leave(self, request: object, answer: type[object], deadline: Deadline) -> None:
        try:
            async with asyncio.timeout_at(deadline.at):
                await self._group.coordinator.ask(request, answer, timeout_s=max(0.001, deadline.left_s))
        except (OttlaError, TimeoutError) as error:
            log.info("[group %s] could not say that it leaves: %s", self._group.group_id, error)


async def cancelled(*tasks: asyncio.Task[None] | None) -> None:
    """Ends these at once."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def names_of(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def why_lost(code: int, message: str | None = None) -> str:
    """What the coordinator says to a member that it has forgotten, or never knew under that number."""
    refusal = error_of(code, message, "the coordinator")
    return f"{refusal}; it joins again"
