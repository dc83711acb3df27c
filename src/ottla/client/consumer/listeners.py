"""Callbacks of a user's code about a rebalance. Methods may be plain or `async`; those that are missing are not called.

    class Watch(RebalanceListener):
        async def on_partitions_revoked(self, partitions): ...

Partitions are always those that came or went: nobody has to call `assign` in a listener.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ottla.ids import TopicPartition

log = logging.getLogger("ottla.client.consumer")


class RebalanceListener:
    """All methods do nothing, but for one: what is lost is treated as revoked."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are read from now on; positions may be sought."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These go to another member; what was done with them may still be committed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These belong to another member already: the group has forgotten this one. Commits would fail."""
        return self.on_partitions_revoked(partitions)


class CallbackListener(RebalanceListener):
    """Made of functions."""

    def __init__(
        self,
        on_assigned: Callable[[Collection[TopicPartition]], Any] | None = None,
        on_revoked: Callable[[Collection[TopicPartition]], Any] | None = None,
        on_lost: Callable[[Collection[TopicPartition]], Any] | None = None,
    ) -> None:
        self._assigned, self._revoked, self._lost = on_assigned, on_revoked, on_lost or on_revoked

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        return self._assigned(partitions) if self._assigned is not None else None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        return self._revoked(partitions) if self._revoked is not None else None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        return self._lost(partitions) if self._lost is not None else None


class Listeners:
    """Calls the listener of the subscription. Its errors do not stop a rebalance; the poll raises them afterwards."""

    def __init__(self) -> None:
        self.listener: RebalanceListener | None = None
        self._failure: Exception | None = None

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, partitions)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self.listener is not None and partitions:
            await self._call(self.listener.on_partitions_revoked, partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        if self.listener is not None and partitions:
            await self._call(self.listener.on_partitions_lost, partitions)

    async def _call(self, method: Callable[[Collection[TopicPartition]], Any], partitions: Any) -> None:
        try:
            result = method(sorted(partitions))
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            log.warning("the rebalance listener failed in %s: %r", method.__name__, error)
            self._failure = self._failure or error

    def raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
