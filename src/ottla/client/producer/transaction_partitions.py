"""The partitions that a transaction writes to; by the rules of version 1 each is added before it is written to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.errors import OttlaError
from ottla.ids import TopicPartition

log = logging.getLogger("ottla.client.producer")


class TransactionPartitions:
    """`add` asks the coordinator to add partitions, and returns whether the transaction still takes any; what it raises
    is for whoever gave it. `wake` is called when more may be sent."""

    def __init__(self, add: Callable[[set[TopicPartition]], Awaitable[bool]], wake: Callable[[], None]) -> None:
        self._add = add
        self._wake = wake
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._adding: asyncio.Task[None] | None = None
        self._is_closed = False

    def __bool__(self) -> bool:
        """Whether there is anything in the transaction."""
        return bool(self._added)

    def may_write(self, partition: TopicPartition, *, is_implicit: bool) -> bool:
        """Whether a batch may go there now; `is_implicit`: writing adds it. What waits is woken when it may."""
        if partition in self._added:
            return True
        if is_implicit:
            self._added.add(partition)
            return True
        self._wanted.add(partition)
        if self._adding is None and not self._is_closed:
            self._adding = asyncio.get_running_loop().create_task(self._add_wanted())
        return False

    async def _add_wanted(self) -> None:
        try:
            while self._wanted:
                partitions, self._wanted = self._wanted, set()
                if not await self._add(partitions):
                    break
                self._added |= partitions
                self._wake()
        except OttlaError as error:
            log.debug("partitions were not added to the transaction: %s", error)  # the transaction tells the user
        finally:
            self._adding = None
            self._wake()

    def clear(self) -> None:
        """A new transaction has none."""
        self._added.clear()
        self._wanted.clear()

    async def close(self) -> None:
        self._is_closed = True  # the sender may still ask: what it wakes would begin again
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
