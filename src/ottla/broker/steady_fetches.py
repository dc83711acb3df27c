"""A follower's fetches while nothing but records comes: each response is appended, and the next request sent, where it
arrives.

The general way (`fetchers.py`) takes a task, a timer and an object for everything in a message to do that. Here a
response is read from its bytes and the next request written as bytes (`replication/fetch_frames.py`), in the callback
of the connection. It goes on until something else than records comes, until partitions come or go, or for a second:
then settings and the whole session are looked at again, on the general way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ottla.net.client import BrokerConnection, ConnectionFailedError
from ottla.replication.fetch_frames import AskedPartition, FetchedPartition, FetchTemplate, read_response
from ottla.replication.fetch_requests import FetchKey, FetchPosition, FetchSessionReader
from ottla.runtime.deadline import Deadline

FETCH_KEY: Final = 1
STEADY_S: Final = 1.0


class Unusual(NamedTuple):
    """A response that has to go the general way: the frame, and where its body starts."""

    frame: memoryview
    body_at: int


class Take(Protocol):
    """Does what follows from a partition of a response."""

    def __call__(self, asked: FetchPosition, fetched: FetchedPartition, now_ms: int) -> FetchPosition | None:
        """The place from which to ask next; None where the general way has to look at the partition."""


class SteadyFetches:
    """One run of fetches over one connection, in one session, each about the same partitions."""

    def __init__(
        self,
        connection: BrokerConnection,
        session: FetchSessionReader,
        template: FetchTemplate,
        moved: list[tuple[FetchKey, FetchPosition]],
        take: Take,
        may_go_on: Callable[[], bool],
        now_ms: Callable[[], int],
        timeout_s: float,
    ) -> None:
        """`moved`: what has since the session's last request.

        `may_go_on`: whether the next request is about the same partitions, in the name of the same broker.
        """
        self._connection = connection
        self._session = session
        self._template = template
        self._moved = moved
        self._take = take
        self._may_go_on = may_go_on
        self._now_ms = now_ms
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        # What the session knows, by what a response names: a key of the session takes long to find.
        self._asked: dict[tuple[bytes, int], tuple[FetchKey, FetchPosition]] = {
            (key.topic_id.bytes, key.partition): (key, position) for key, position in session.known.items()
        }
        self._deadline = Deadline(self._loop, self._time_is_up)
        self._over: asyncio.Future[Unusual | None] = self._loop.create_future()
        self._ends_at = self._loop.time() + STEADY_S

    async def run(self) -> Unusual | None:
        """Returns once the next request has to go the general way; with the response that has to, if there is one."""
        self._ask(self._moved)
        try:
            return await self._over
        finally:
            self._deadline.close()

    def _ask(self, moved: list[tuple[FetchKey, FetchPosition]]) -> None:
        self._session.note_positions(moved)
        asked = []
        for one in moved:
            key, position = one
            topic_id = key.topic_id.bytes
            self._asked[topic_id, key.partition] = one
            asked.append(AskedPartition(topic_id, key.partition, position))
        epoch, template = self._session.epoch, self._template
        self._connection.exchange(
            lambda correlation_id: template.write(correlation_id, epoch, asked), FETCH_KEY, template.version, self
        )
        self._deadline.set(self._loop.time() + self._timeout_s)

    def _time_is_up(self) -> None:
        self._connection.timed_out(FETCH_KEY, self._timeout_s)

    # -- called by the connection --------------------------------------------------------------------------------------

    def response_arrived(self, frame: memoryview, body_at: int) -> None:
        if self._over.done():
            return  # whoever ran it is gone
        try:
            moved = self._taken(frame)
            if moved is None:
                self._over.set_result(Unusual(frame, body_at))
            elif self._loop.time() >= self._ends_at or not self._may_go_on():
                self._over.set_result(None)
            else:
                self._ask(moved)
        except Exception as error:  # it is for the task to say
            self._over.set_exception(error)

    def connection_failed(self, failure: ConnectionFailedError) -> None:
        if not self._over.done():
            self._over.set_exception(failure)

    def _taken(self, frame: memoryview) -> list[tuple[FetchKey, FetchPosition]] | None:
        """Takes all partitions of a response; those that have moved. None where the general way has to see all of it
        again: what was taken already is no longer where it was asked for, and is left alone there."""
        session, known = self._session, self._asked
        response = read_response(frame)
        if response is None or response.session_id != session.session_id:
            return None
        now_ms = self._now_ms()
        moved: list[tuple[FetchKey, FetchPosition]] = []
        for fetched in response.partitions:
            found = known.get((fetched.topic_id, fetched.partition))
            if found is None:
                return None
            key, before = found
            position = self._take(before, fetched, now_ms)
            if position is None:
                return None
            if position != before:
                moved.append((key, position))
        session.advance()
        return moved
