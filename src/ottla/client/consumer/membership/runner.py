"""What a consumer needs of its membership, whichever protocol it is."""

from __future__ import annotations

from typing import Final, Protocol

from ottla.client.consumer.commits import Committer
from ottla.client.retrying import Deadline
from ottla.client.values import ConsumerGroupMetadata

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
