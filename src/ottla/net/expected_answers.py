"""Answers that are due on a connection to a broker, and who gets them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.net.client import ConnectionFailedError


class AnswerReceiver(Protocol):
    """Who is called with an answer where it arrives. It does not raise."""

    def response_arrived(self, frame: memoryview, body_at: int) -> None:
        """The frame without its length, and where its body starts."""

    def connection_failed(self, failure: ConnectionFailedError) -> None:
        """There will be no answer."""


class Awaited:
    """An answer that a task waits for: the frame, and where the body starts in it."""

    __slots__ = ("arrived",)

    def __init__(self) -> None:
        self.arrived: asyncio.Future[tuple[memoryview, int]] = asyncio.get_running_loop().create_future()

    # A caller that has given up leaves a cancelled future; its answer is dropped.

    def response_arrived(self, frame: memoryview, body_at: int) -> None:
        if not self.arrived.done():
            self.arrived.set_result((frame, body_at))

    def connection_failed(self, failure: ConnectionFailedError) -> None:
        if not self.arrived.done():
            self.arrived.set_exception(failure)
            self.arrived.exception()  # looked at: a caller that was cancelled meanwhile needs no complaint


class ExpectedAnswer(NamedTuple):
    """An answer that is due."""

    correlation_id: int
    api_key: int
    version: int
    receiver: AnswerReceiver
