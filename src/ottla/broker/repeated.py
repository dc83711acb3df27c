"""What the requests of a connection have in common is remembered: the next one takes a short way (decision 9)."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ottla.net.connection import Connection, Deferred, Reply
from ottla.net.outbox import Part

if TYPE_CHECKING:
    from ottla.broker.dispatch import Dispatcher


class LateAnswer(Deferred):
    """The answers to requests of one connection that took the short way and wait; mostly one."""

    __slots__ = ("connection", "dispatcher", "started_ns")

    api_key: int

    def __init__(self) -> None:
        self.connection: Connection | None = None  # while requests are in hand
        self.dispatcher: Dispatcher | None = None
        self.started_ns: deque[int] = deque()  # of each request in hand

    def begun(self, dispatcher: Dispatcher, started_ns: int) -> None:
        """One more request waits from now on."""
        self.dispatcher = dispatcher
        self.started_ns.append(started_ns)

    def answer(self, parts: Reply, *, count: int = 1, is_last: bool = True) -> None:
        """Sends the answers of the `count` requests that have waited longest; `is_last`: no other waits."""
        connection, dispatcher = self.connection, self.dispatcher
        if connection is None or dispatcher is None:
            return
        if is_last:
            self.connection = None
        now_ns = time.perf_counter_ns()
        for _ in range(count):
            dispatcher.answered_late(self.api_key, connection, now_ns - self.started_ns.popleft())
        connection.answer_deferred(self, parts, is_last=is_last)

    def cancel(self) -> None:
        """The connection is closed."""
        self.connection = None
        self.started_ns.clear()


class Repeated(Protocol):
    """What is remembered of the requests of one API on one connection."""

    def repeat(self, connection: Connection, frame: memoryview) -> list[Part] | LateAnswer | None:
        """The answer to a request that is known, or the promise of one; None where it must go the general way."""
        ...

    def forget(self) -> None:
        """It no longer holds: the peer is another one, or the rules are."""
        ...
