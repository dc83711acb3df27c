"""What the calls of every noun share: the cluster, the time a call may take, and which items are asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.client.arguments import several
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.client.errors import TimedOutError
from ottla.client.lifetime import Lifetime
from ottla.client.metadata import Cluster
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.net.client import ConnectionFailedError
from ottla.runtime.clock import Clock

Answer = TypeVar("Answer")
Key = TypeVar("Key")
Item = TypeVar("Item")

KEYS_AT_ONCE_MAX: Final = 16  # groups or transactional ids that are asked about at the same time
UNKNOWN_TOPIC_WAIT_S: Final = 2.0  # brokers learn of a new topic a moment after its creator


class AdminCalls:
    """Every call has a `timeout_s`, by default `default_api_timeout_s`: retries and all."""

    _cluster: Cluster
    _lifetime: Lifetime
    _clock: Clock

    def _deadline(self, timeout_s: float | None) -> Deadline:
        self._lifetime.check()
        return self._cluster.deadline() if timeout_s is None else Deadline.after(timeout_s)

    async def _unthrottled(
        self,
        keys: Iterable[Key],
        ask: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Item | ApiError]]],
        deadline: Deadline,
    ) -> dict[Key, Item | ApiError]:
        """Asks for all; those that a quota keeps waiting are asked for again, and only those (KIP-599)."""
        outcomes: dict[Key, Item | ApiError] = {}
        missing = list(several(keys))
        for pause_s in self._cluster.options.pauses:
            try:
                outcomes |= await ask(missing)
            except TimedOutError:
                if not outcomes:
                    raise
                break  # some are done, and that the others were held back says more
            missing = [key for key in missing if _is_throttled(outcomes.get(key))]
            if not missing or pause_s >= deadline.left_s:
                break
            await asyncio.sleep(pause_s)
        return outcomes

    async def _for_each(self, keys: Iterable[Key], ask: Callable[[Key], Awaitable[Item]]) -> dict[Key, Item | ApiError]:
        """Asks about every key, several at once, with what is wrong with single ones in the result."""
        room = asyncio.Semaphore(KEYS_AT_ONCE_MAX)

        async def one(key: Key) -> Item | ApiError:
            async with room:
                try:
                    return await ask(key)
                except ApiError as error:
                    return error

        names = list(dict.fromkeys(several(keys)))
        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    async def _from_every_broker(
        self, ask: Callable[[int], Awaitable[Item]], deadline: Deadline
    ) -> dict[int, Item | OttlaError]:
        """What every broker that is alive answers, or why it does not.

        Where one leaves meanwhile, all are asked again: others have what it had.
        """

        async def one(node_id: int) -> Item | OttlaError:
            try:
                return await ask(node_id)
            except (ApiError, ConnectionFailedError) as error:
                return error

        pauses = iter(self._cluster.options.pauses)
        while True:
            nodes = sorted((await self._cluster.refresh((), deadline)).nodes)
            found = dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))
            pause_s = next(pauses, None)
            if not any(map(_has_left, found.values())) or pause_s is None or pause_s >= deadline.left_s:
                return found
            await asyncio.sleep(pause_s)

    async def _ask_group(
        self,
        group_id: str,
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]],
        deadline: Deadline,
        *,
        version_max: int | None = None,
    ) -> Answer:
        return await ask_coordinator(
            self._cluster,
            CoordinatorType.GROUP,
            group_id,
            request,
            answer,
            codes,
            version_max=version_max,
            deadline=deadline,
        )


def _has_left(outcome: object) -> bool:
    return isinstance(outcome, ApiError) and outcome.code is ErrorCode.BROKER_NOT_AVAILABLE


def _is_throttled(outcome: object) -> bool:
    return isinstance(outcome, ApiError) and outcome.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def only(outcomes: Mapping[Key, Item | ApiError]) -> Item:
    """The outcome of the one thing that was asked for; its error is raised."""
    (outcome,) = outcomes.values()
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome
