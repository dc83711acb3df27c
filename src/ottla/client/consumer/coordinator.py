"""The coordinator of a consumer's group: who it is, on connections of its own.

A JoinGroup may wait for minutes, and a broker answers the requests of a connection one after the other. So neither
fetches nor heartbeats nor commits share a connection with it: `Lane` tells them apart.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from ottla.client.coordinators import CoordinatorType, find_coordinator
from ottla.client.error_codes import error_of_code
from ottla.client.metadata import Cluster, Lane
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.net.client import BrokerConnection, ConnectionFailedError

Answer = TypeVar("Answer")

log = logging.getLogger("ottla.client.consumer")


class Coordinator:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._node_id: int | None = None
        self._finding = asyncio.Lock()

    async def find(self) -> int:
        """The broker, from memory or asked for; raises what may pass as well."""
        async with self._finding:
            if self._node_id is None:
                self._node_id = await find_coordinator(self._cluster, CoordinatorType.GROUP, self._group_id)
                log.info("[group %s] the coordinator is broker %d", self._group_id, self._node_id)
            return self._node_id

    def forget(self) -> None:
        self._node_id = None

    async def ask(
        self,
        request: object,
        answer: type[Answer],
        *,
        lane: Lane = Lane.COORDINATOR,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Asks once, in this time. A coordinator that cannot be reached is looked up again the next time."""
        deadline = None if timeout_s is None else Deadline.after(timeout_s)
        try:
            connection = await self._connected(lane, deadline)
            left_s = None if deadline is None else deadline.left_s
            return await connection.request(request, answer, version_max=version_max, timeout_s=left_s)
        except ConnectionFailedError as error:
            self.note(error)
            raise

    async def _connected(self, lane: Lane, deadline: Deadline | None) -> BrokerConnection:
        try:
            async with asyncio.timeout_at(None if deadline is None else deadline.at):
                return await self._cluster.coordinator_connection(await self.find(), lane)
        except ApiError as error:
            self.note(error)
            raise
        except TimeoutError as error:
            assert deadline is not None
            message = f"{self._cluster.where}: not within {deadline.timeout_s:g} s"
            raise error_of_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from error

    def note(self, error: OttlaError) -> None:
        """What an error says about where the coordinator is."""
        self.forget()
        self._cluster.learn_from(error)
