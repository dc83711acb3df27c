"""Tokens for OAUTHBEARER from a provider of the user's: one call for many connections, and again in time.

A provider is a function, a coroutine function or an object with a method `token`, as in kafka-python; confluent-kafka's
takes an argument, and returns with the token when it expires, in seconds since 1970. A token whose end is known is kept
for most of its time, any other is asked for at every login. Functions run in a thread: they may wait for a server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.runtime.clock import Clock, SystemClock

KEPT_FOR: Final = 0.8  # of the time that a token has left when it comes, as in Java


class NoTokenError(OttlaError):
    """The provider failed, or took too long: the next login asks it again."""


class TokenSource:
    def __init__(self, provider: Any, clock: Clock | None = None) -> None:
        self._provide: Callable[..., Any] = getattr(provider, "token", provider)
        self._clock = clock or SystemClock()
        self._token = ""
        self._kept_until = 0.0
        self._asking = asyncio.Lock()

    async def token(self, timeout_s: float) -> str:
        """NoTokenError where there is none in this time."""
        try:
            async with asyncio.timeout(timeout_s), self._asking:
                if self._now_s >= self._kept_until:
                    await self._renew()
                return self._token
        except TimeoutError as error:
            raise NoTokenError(f"the token provider gave no token within {timeout_s:g} s") from error
        except Exception as error:
            raise NoTokenError(f"the token provider failed: {error!r}") from error

    @property
    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000

    async def _renew(self) -> None:
        arguments = ("",) if _takes_argument(self._provide) else ()
        if inspect.iscoroutinefunction(self._provide):
            found = await self._provide(*arguments)
        else:
            found = await asyncio.to_thread(self._provide, *arguments)
            if inspect.isawaitable(found):
                found = await found
        now_s = self._now_s
        token, expires_at = found[:2] if isinstance(found, tuple) else (found, now_s)
        self._token = token if isinstance(token, str) else ""  # which no broker is shown
        self._kept_until = now_s + KEPT_FOR * (float(expires_at) - now_s)


def _takes_argument(provide: Callable[..., Any]) -> bool:
    """Whether it cannot be called without."""
    try:
        parameters = inspect.signature(provide).parameters.values()
    except (TypeError, ValueError):
        return False  # a builtin
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is each.empty for each in parameters)
