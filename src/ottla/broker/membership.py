"""Being part of a cluster: the broker's registration in the metadata store, made again whenever the session is new.

The registration is an ephemeral node; the commit that made it is the broker's epoch, which tells its incarnations
apart. While it is missing the others treat the broker as dead, though its clients may still reach it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla.cluster import nodes
from ottla.cluster.image import BrokerNode
from ottla.errors import ConfigError
from ottla.store.api import (
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SessionState,
    Store,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

NOT_REGISTERED = -1


class Membership:
    """The registration of one broker. `epoch` is that of the newest one."""

    def __init__(
        self, node_id: int, store: Store, describe: Callable[[], BrokerNode], now_ms: Callable[[], int]
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._describe = describe
        self._now_ms = now_ms
        self._sessions: set[int] = set()  # ours, the present one and those before
        self.epoch = NOT_REGISTERED

    async def join(self) -> None:
        """Registers for the first time; ConfigError where another broker has the id."""
        while not await self._is_registered():
            await self._store.session.changed.wait()

    async def stay(self, joined_again: Callable[[], Awaitable[None]]) -> None:
        """Registers again after each session that has ended, and calls `joined_again` then. Until it is cancelled."""
        session = self._store.session
        registered = session.session_id
        while True:
            if session.state is SessionState.CONNECTED and session.session_id != registered:
                if await self._is_registered():
                    registered = session.session_id
                    await joined_again()
                continue
            await session.changed.wait()

    async def _is_registered(self) -> bool:
        """Whether the registration stands; False where the store has to be reached first."""
        session = self._store.session
        if session.state is not SessionState.CONNECTED:
            return False
        self._sessions.add(session.session_id)
        path = nodes.broker_path(self._node_id)
        try:
            try:
                data = nodes.encode_broker(self._describe(), self._now_ms())
                await self._store.commit(Create(path, data, ephemeral=True))
            except NodeExists:
                if not await self._take_over(path):
                    return False
            node = await self._store.get(path)
        except StoreUnavailable as error:
            logger.info("not registered yet: %s", error)
            return False
        if node is None or node.owner != session.session_id:
            return False
        self.epoch = node.created
        logger.info("registered as broker %d, in epoch %d", self._node_id, self.epoch)
        return True

    async def _take_over(self, path: str) -> bool:
        """Somebody is registered under our id. Is it ourselves, now or in a session before?"""
        node: Node | None = await self._store.get(path)
        if node is None:
            return await self._is_registered()
        if node.owner == self._store.session.session_id:
            return True  # made by a commit whose answer was lost
        if node.owner not in self._sessions:
            raise ConfigError(
                f"broker.id {self._node_id} is in use: another broker is registered under it. If that one has just "
                "crashed, its registration ends with its session (zookeeper.session.timeout.ms): try again then."
            )
        with suppress(NoNode):
            await self._store.commit(Delete(path, node.version))
        return await self._is_registered()
