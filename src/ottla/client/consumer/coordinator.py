"""The coordinator of a consumer's group: who it is, on connections of its own.

A JoinGroup may wait for minutes, and a broker answers the requests of a connection one after the other. So neither
fetches nor heartbeats nor commits share a connection with it: `Lane` tells them apart.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from ottla.client.coordinators import CoordinatorType, find_coordinator
from ottla.client.metadata import Cluster, Lane
from ottla.errors import OttlaError
from ottla.net.client import ConnectionFailedError

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
        """Asks once. A coordinator that cannot be reached is looked for anew the next time."""
        try:
            connection = await self._cluster.connection(await self.find(), lane)
            return await connection.request(request, answer, version_max=version_max, timeout_s=timeout_s)
        except ConnectionFailedError as error:
            self.note(error)
            raise

    def note(self, error: OttlaError) -> None:
        """What an error says about where the coordinator is."""
        self.forget()
        self._cluster.learn_from(error)
