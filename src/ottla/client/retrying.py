"""When to try again, and for how long.

Whether a failure may pass is data: `ErrorCode.retriable` for what a broker said, the kind of exception for what the
network did. Everything that is tried again is bounded by a `Deadline`, so that a caller's time is the caller's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ottla.client.error_codes import error_of_code
from ottla.client.errors import TimedOutError
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.net.client import ConnectionFailedError, NotABrokerError

Result = TypeVar("Result")

RETRIES_MAX: Final = 2**31 - 1
JITTER: Final = 0.2  # pauses differ by this share, so that many clients do not come back at the same moment


class UnknownTopicError(ApiError):
    """The cluster was asked and has no such topic or partition. Its code may pass elsewhere; here it does not."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait between tries: longer each time, up to a limit. There are as many as `retries`."""

    first_s: float = 0.05
    max_s: float = 1.0
    chance: random.Random = field(default_factory=random.Random)
    retries: int = RETRIES_MAX

    def __iter__(self) -> Iterator[float]:
        pause_s = self.first_s
        for _ in range(self.retries):
            yield pause_s * self.chance.uniform(1 - JITTER, 1 + JITTER)
            pause_s = min(pause_s * 2, self.max_s)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the loop's clock."""

    at: float
    timeout_s: float

    @classmethod
    def after(cls, timeout_s: float) -> Deadline:
        return cls(asyncio.get_running_loop().time() + timeout_s, timeout_s)

    @property
    def left_s(self) -> float:
        return max(0.0, self.at - asyncio.get_running_loop().time())

    async def pause(self, pause_s: float | None, because: OttlaError) -> None:
        """Waits before another try (None: there is none); TimedOutError where there is no time for one.

        Who has no patience at all, or no tries left, wants to know what went wrong, not that it took too long.
        """
        if pause_s is None or not self.timeout_s:
            raise because
        if pause_s >= self.left_s:
            raise TimedOutError(self.timeout_s, because) from because
        await asyncio.sleep(pause_s)

    async def within(self, work: Awaitable[Result], what: str = "") -> Result:
        """The result of work that may not take longer; TimedOutError where it does, which says what it was."""
        if not self.timeout_s:  # one try, however long its parts may take
            return await work
        try:
            async with asyncio.timeout_at(self.at):
                return await work
        except TimeoutError as error:
            raise TimedOutError(self.timeout_s, None, what) from error


def is_passing(error: OttlaError) -> bool:
    """Whether another try may go better."""
    if isinstance(error, ApiError):
        return error.code.retriable and not isinstance(error, UnknownTopicError | TimedOutError)
    return isinstance(error, ConnectionFailedError) and not isinstance(error, NotABrokerError)


def wants_metadata(error: OttlaError) -> bool:
    """Whether what is known of the cluster may be out of date: ask before the next try."""
    if isinstance(error, ApiError):
        return error.code.refresh_metadata or error.code is ErrorCode.NOT_CONTROLLER
    return isinstance(error, ConnectionFailedError)


async def retrying(
    attempt: Callable[[], Awaitable[Result]],
    deadline: Deadline,
    pauses: Pauses,
    before_retry: Callable[[OttlaError], None] = lambda error: None,
) -> Result:
    """What `attempt` returns once it succeeds. It is tried again while its failures may pass and there is time."""
    waits = iter(pauses)
    last: OttlaError | None = None
    while True:
        try:
            return await attempt()
        except (ApiError, ConnectionFailedError) as error:
            if isinstance(error, TimedOutError) and error.cause is None and last is not None:
                raise TimedOutError(error.timeout_s, last) from last  # what went wrong before says more
            last = error
            if not is_passing(error):
                raise
            before_retry(error)
            await deadline.pause(next(waits, None), error)


def error_of(code: int, message: str | None, what: str) -> ApiError | None:
    """The error in a field of an answer, in words that name what it is about; None for a success."""
    if not code:
        return None
    try:
        known = ErrorCode(code)
    except ValueError:
        return error_of_code(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the broker answers with the unknown error {code}"
        )
    if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error_of_code(known, f"{what} does not exist")
    return error_of_code(known, f"{what}: {(message or known.name).removesuffix('.')}")


def raise_if(error: ApiError | None) -> None:
    if error is not None:
        raise error
