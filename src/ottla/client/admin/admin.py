"""The admin client, on asyncio.

    async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)
        lag = await admin.lag("billing")

Every call goes to the broker that can answer it: any, the controller, a coordinator, the leader of a partition, one
by its id, or all of them. It is tried again while its failures may pass, for `default_api_timeout_s` or the
`timeout_s` of the call. What concerns one thing raises its error; what concerns several returns an outcome for each,
errors beside what went well. Several tasks may use one client at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.elections import ElectionCalls
from ottla.client.admin.group_offsets import GroupOffsetCalls
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.client.admin.pipelines import PipelineCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.reassignments import ReassignmentCalls
from ottla.client.admin.transactions import TransactionCalls
from ottla.client.admin.users import UserCalls
from ottla.client.connecting import client_id_of, cluster_of
from ottla.client.lifetime import Lifetime
from ottla.client.settings import AdminSettings
from ottla.net.client import Connector
from ottla.runtime.clock import Clock, SystemClock

CLOSE_TIMEOUT_S: Final = 30.0


class Admin(
    GroupOffsetCalls,
    TransactionCalls,
    ConfigCalls,
    ClusterCalls,
    LogDirCalls,
    ElectionCalls,
    ReassignmentCalls,
    AclCalls,
    QuotaCalls,
    UserCalls,
    PipelineCalls,
):
    """Asks about a cluster and changes it. Use it as an asynchronous context manager, or call `close`."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None:
        """Settings as a mapping or as keywords, under any of their names.

        `connector`, `clock` and `rng`: other ways to the network, to time and to chance, for tests.
        """
        self.settings = AdminSettings.read(settings, **keywords)
        self.client_id = client_id_of(self.settings)
        self._lifetime = Lifetime("admin client")
        self._clock = clock or SystemClock()
        self._cluster = cluster_of(self.settings, self.client_id, connector, rng, retries=self.settings.retries)

    async def start(self, timeout_s: float | None = None) -> Self:
        """Connects to a broker: who names a wrong address hears it now. With 0 every address is tried once.

        Every call connects by itself; this one only tells earlier.
        """
        await self._cluster.connect(self._deadline(timeout_s))
        return self

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ends all connections; calls in flight fail."""
        if self._lifetime.close():
            async with asyncio.timeout(timeout_s):
                await self._cluster.close()
