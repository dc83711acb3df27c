"""The turn of a consumer: what is due is done, what is here is taken, what is missing is asked for; then it waits.

Everything that talks to brokers works in tasks of its own and says when to look again. Commits that nobody asked for,
callbacks and listeners happen here, in the user's time.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.client.consumer.assembly import fetcher_of, membership_of
from ottla.client.consumer.commits import as_offsets
from ottla.client.consumer.errors import WakeupError
from ottla.client.consumer.parts import Parts
from ottla.client.consumer.position_finder import PositionFinder
from ottla.client.consumer.topic_watch import TopicWatch
from ottla.client.errors import ClosedError, TimedOutError, UsageError
from ottla.client.retrying import Deadline
from ottla.client.values import OffsetAndMetadata
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

Found = TypeVar("Found")

LOOK_EVERY_S: Final = 1.0  # at least

log = logging.getLogger("ottla.client.consumer")


def records_limit(max_records: int | None, default: int) -> int:
    """How many records a call gives at most; UsageError where that is not a number of them."""
    if max_records is None:
        return default
    try:
        limit = operator.index(max_records)
    except TypeError:
        limit = -1
    if limit < 0:
        raise UsageError(f"max_records={max_records!r}: how many records to give at most, a whole number")
    return limit


class Poller:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.topics = TopicWatch(parts, self._topics_seen)
        self._finder = PositionFinder(parts)
        self.fetcher = fetcher_of(parts)
        self.membership = membership_of(parts, self.topics)
        self._is_woken = False
        self._is_ended = False
        self._looked_at_count = -1
        self._look_again_at = 0.0

    def wake(self) -> None:
        """The poll that waits, or the next one, raises WakeupError."""
        self._is_woken = True
        self._parts.moved.fire()

    def end(self) -> None:
        """The poll that waits raises ClosedError."""
        self._is_ended = True
        self._parts.moved.fire()

    async def poll(self, timeout_s: float, take: Callable[[], Found]) -> Found | None:
        """What `take` finds as soon as it finds something; None where it does not in this time."""
        try:
            math.isnan(timeout_s)
        except TypeError as error:
            raise UsageError(f"timeout_s={timeout_s!r}: how long to wait, a number of seconds") from error
        began_at = self._parts.now()
        self._parts.metrics.polls.began(began_at)
        deadline = began_at + timeout_s
        if self.membership is not None:
            self.membership.poll_began()
        try:
            self._commit_by_itself()
            return await self._poll_until(deadline, take)
        finally:
            self._parts.metrics.polls.ended(self._parts.now())
            if self.membership is not None:
                self.membership.poll_ended()

    async def _poll_until(self, deadline: float, take: Callable[[], Found]) -> Found | None:
        parts, moved = self._parts, self._parts.moved
        while True:
            seen = moved.count
            self.raise_failures()
            if parts.group is not None:
                await parts.group.commits.call_callbacks()
            if self.membership is not None and parts.subscription.wanted is not None:
                await self.membership.advance()
                parts.listeners.raise_failure()
            now = parts.now()
            self._look(now)
            found = take()
            self.fetcher.send(now)
            if found:
                return found
            if now >= deadline:
                return None
            if moved.count == seen:
                await moved.wait(self._until(now, deadline) - now)

    def _look(self, now: float) -> None:
        """Asks for what is missing. Where nothing has happened since the last look, there is nothing new to see."""
        moved = self._parts.moved
        if moved.count == self._looked_at_count and now < self._look_again_at:
            return
        if self.fetcher.moved_leaders:
            self.fetcher.moved_leaders = False
            self.topics.note_leaders()
        self.topics.look(now)
        self._finder.look(now)
        self._looked_at_count = moved.count
        self._look_again_at = self._until(now, now + LOOK_EVERY_S)

    def _until(self, now: float, deadline: float) -> float:
        looks = (self.topics.next_look(now), self._parts.positions.next_look(now), self.fetcher.next_look(now))
        return min([deadline, *(look for look in looks if look is not None)])

    def raise_failures(self) -> None:
        """What the parts ran into in the background."""
        if self._is_ended:
            raise ClosedError("the consumer was closed while it was polled")
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        self.topics.raise_failure()
        self._finder.raise_failure()

    def _topics_seen(self) -> None:
        if self.membership is not None:
            self.membership.topics_seen()

    def _commit_by_itself(self) -> None:
        """What earlier polls gave out is done by now."""
        group = self._parts.group
        if group is None or group.auto_commit is None or not group.auto_commit.take_due(self._parts.now()):
            return
        if offsets := self.uncommitted():
            group.commits.start(offsets, self._committed_by_itself)

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was read since the last commit of this consumer."""
        assert self._parts.group is not None, "who commits has a group"
        committed = self._parts.group.commits.committed
        found = as_offsets(self._parts.consumed())
        return {partition: offset for partition, offset in found.items() if committed.get(partition) != offset}

    def _committed_by_itself(self, offsets: object, error: OttlaError | None) -> None:
        group = self._parts.group
        if error is not None and group is not None and group.auto_commit is not None:
            log.info("[group %s] offsets could not be committed: %s", group.group_id, error)
            group.auto_commit.again_at(self._parts.now() + self._parts.settings.retry_backoff_s)

    async def position(self, partition: TopicPartition, deadline: Deadline) -> int:
        """Waits until it is known."""
        moved = self._parts.moved
        while True:
            seen = moved.count
            state = self._parts.positions.state(partition)
            unread = self._parts.cursor.unread_positions((partition,)).get(partition)
            if (found := unread or state.position) is not None:
                return found.offset
            self.raise_failures()
            now = self._parts.now()
            self.topics.look(now)
            self._finder.look(now)
            if not deadline.left_s:
                raise TimedOutError(deadline.timeout_s, what=f"the position of {partition}")
            if moved.count == seen:
                await moved.wait(self._until(now, deadline.at) - now)

    async def stop(self, deadline: Deadline) -> None:
        """Cancels what is left, and ends what brokers keep of it."""
        if self.membership is not None:
            await self.membership.stop()
        await self.fetcher.stop(deadline)
        await self._finder.stop()
        await self.topics.stop()
        if self._parts.group is not None:
            await self._parts.group.commits.stop()
