"""Keeps what a client knows of its topics fresh: one question at a time, in a task of its own.

It asks when a topic is wanted that is not known, when an answer or a broken connection showed that something moved
(`stale`), and when what is known has become old. Topics that nobody used for a while are not asked for again. When
brokers do not answer for too long, or say so, the search starts again from the bootstrap addresses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import ConfigurationError, TimedOutError
from ottla.client.metadata import Cluster, ClusterView, Topic
from ottla.client.rebootstrap import Rebootstrap
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.net.client import ConnectionFailedError

# What a question about a topic does not get over by being asked again.
_FINAL: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

log = logging.getLogger("ottla.client.metadata")


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    max_age_s: float
    max_idle_s: float
    rebootstrap_after_s: float | None  # None: never
    may_create: bool = True


class Refresher:
    """Runs while its client does. `updated` is called after every answer."""

    def __init__(self, cluster: Cluster, options: RefreshOptions, updated: Callable[[], None]) -> None:
        self._cluster = cluster
        self._options = options
        self._updated = updated
        self._used_at: dict[str, float] = {}
        self._errors: dict[str, OttlaError] = {}
        self.failure: OttlaError | None = None  # why the last question was not answered
        self._is_stale = False
        self._refreshed_at = 0.0
        self._rebootstrap = Rebootstrap(cluster, options.rebootstrap_after_s)
        self._moved = asyncio.Event()
        self._outcome = asyncio.Event()  # set and replaced at every answer and failure

    # -- requests ------------------------------------------------------------------------------------------------------

    def use(self, topic: str) -> None:
        """A topic is in use; one that is not known is asked for at once."""
        is_new = topic not in self._used_at
        self._used_at[topic] = asyncio.get_running_loop().time()
        if is_new:
            self._moved.set()

    def stale(self) -> None:
        """Something moved: ask again, before what is known has become old."""
        self._is_stale = True
        self._moved.set()

    async def topic(self, name: str, deadline: Deadline) -> Topic:
        """Waits for a topic; an error that says why it is not known in time."""
        while True:
            found = self._cluster.known_topics().get(name)
            if found is not None:
                return found
            self.use(name)
            error = self._errors.get(name)
            if isinstance(error, ApiError) and error.code in _FINAL:
                raise error
            if isinstance(self.failure, ConfigurationError):  # nobody lets us in: waiting does not help
                raise self.failure
            outcome = self._outcome
            try:
                async with asyncio.timeout_at(deadline.at):
                    await outcome.wait()
            except TimeoutError:
                cause = self._errors.get(name) or self.failure
                what = f"the partitions of the topic {name} are not known"
                what = what if cause is not None else f"{what}, {self._cluster.where}"
                raise TimedOutError(deadline.timeout_s, cause, what) from cause

    async def asked_again(self, deadline: Deadline, what: str) -> None:
        """Asks for metadata and waits for the answer."""
        self.stale()
        try:
            async with asyncio.timeout_at(deadline.at):
                await self._outcome.wait()
        except TimeoutError:
            raise TimedOutError(deadline.timeout_s, self.failure, what) from None

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._refreshed_at = loop.time()
        pauses: Iterator[float] | None = None
        while True:
            await self._wait_for_reason()
            self._moved.clear()
            wanted = self._wanted()
            if wanted is None:
                continue
            is_calm = await self._ask(wanted)
            if is_calm:
                pauses = None
                continue
            # Not answered, or answered with what does not help yet: a pause before the next try.
            pauses = pauses or iter(self._cluster.options.pauses)
            await asyncio.sleep(next(pauses))
            self._is_stale = True

    async def _wait_for_reason(self) -> None:
        if self._is_stale:
            return
        try:
            async with asyncio.timeout_at(self._refreshed_at + self._options.max_age_s):
                await self._moved.wait()
        except TimeoutError:
            self._is_stale = True

    def _wanted(self) -> list[str] | None:
        """The topics to ask for: all that are in use, or only those that are new; None where there is no reason."""
        now = asyncio.get_running_loop().time()
        for name in [name for name, at in self._used_at.items() if now - at > self._options.max_idle_s]:
            del self._used_at[name]
            self._cluster.forget([name])
        if self._is_stale:
            return list(self._used_at)
        new = [name for name in self._used_at if name not in self._cluster.known_topics()]
        return new or None

    async def _ask(self, topics: list[str]) -> bool:
        """Whether all is well: nothing has to be asked again soon."""
        is_whole = self._is_stale
        self._is_stale = False
        try:
            view = await self._cluster.view(topics, may_create=self._options.may_create)
        except (ConnectionFailedError, ApiError) as error:
            self._failed(error)
            return False
        now = asyncio.get_running_loop().time()
        self.failure = None
        self._rebootstrap.answered()
        if is_whole:
            self._refreshed_at = now
        for name in topics:
            self._errors.pop(name, None)
        self._errors.update(view.errors)
        self._tell()
        return not self._lacks(view)

    def _lacks(self, view: ClusterView) -> bool:
        passing = [error for error in view.errors.values() if error.code not in _FINAL]
        return bool(passing) or any(
            partition.leader_id < 0 for topic in view.topics.values() for partition in topic.partitions
        )

    def _failed(self, error: OttlaError) -> None:
        self.failure = error
        self._rebootstrap.failed(error, asyncio.get_running_loop().time())
        self._tell()

    def _tell(self) -> None:
        outcome, self._outcome = self._outcome, asyncio.Event()
        outcome.set()
        self._updated()
