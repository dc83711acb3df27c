"""Being part of a cluster: the broker's registration in the metadata store, made again whenever the session is new.

The registration is an ephemeral node; the commit that made it is the broker's epoch, which tells its incarnations
apart. While it is missing the others treat the broker as dead, though its clients may still reach it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.cluster import nodes
from ottla.cluster.image import BrokerNode
from ottla.errors import ConfigError
from ottla.runtime.signal import Signal
from ottla.store.api import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
RETRY_S: Final = 0.2
PATIENCE_FACTOR: Final = 2.0  # ZooKeeper ends sessions a while after their timeout


class Membership:
    """The registration of one broker. `epoch` is that of the newest one."""

    def __init__(self, broker: BrokerNode, store: Store, now_ms: Callable[[], int], patience_s: float) -> None:
        """`patience_s`: how long an earlier run of this broker may still seem to be there after a crash."""
        self._broker = broker
        self._node_id = broker.node_id
        self._store = store
        self._now_ms = now_ms
        self._patience_s = patience_s
        self._sessions: set[int] = set()  # ours, the present one and those before
        self._registered_in: int | None = None  # the session of the newest registration
        self.epoch = NOT_REGISTERED
        self._settled = Signal()
        self._has_given_up = False
        self._has_left = False

    async def join(self) -> None:
        """Registers for the first time; ConfigError where another broker has the id."""
        while not await self._try_register():
            await self._store.session.changed.wait(RETRY_S)

    async def known_epoch(self) -> int:
        """The epoch of this run, as soon as there is one; NOT_REGISTERED where there will be none.

        Before that it is not known whether a controller means this run of the broker or one that has crashed and whose
        session is not over.
        """
        while self.epoch == NOT_REGISTERED and not self._has_given_up:
            await self._settled.wait()
        return self.epoch

    def give_up(self) -> None:
        """The broker stops: nobody waits for a registration any more."""
        self._has_given_up = True
        self._settled.fire()

    async def leave(self) -> None:
        """Ends the registration before the session ends: from now on nobody counts on this broker."""
        self._has_left = True
        session = self._store.session
        if session.state is SessionState.CONNECTED and session.session_id == self._registered_in:
            with suppress(StoreError):  # it ends with the session all the same
                await self._store.commit(Delete(nodes.broker_path(self._node_id)))

    async def keep_registered(self) -> None:
        """Registers again after each session that has ended. Until it is cancelled, or the broker has left."""
        session = self._store.session
        while not self._has_left:
            if session.state is SessionState.CONNECTED and session.session_id != self._registered_in:
                if not await self._try_register():
                    await session.changed.wait(RETRY_S)
                continue
            await session.changed.wait()

    async def _try_register(self) -> bool:
        """Registers this broker, or finds that it is registered; False if the store could not be reached."""
        session = self._store.session
        if session.state is not SessionState.CONNECTED:
            return False
        self._sessions.add(session.session_id)
        path = nodes.broker_path(self._node_id)
        try:
            try:
                data = nodes.encode_broker(self._broker, self._now_ms())
                await self._store.commit(Create(path, data, ephemeral=True))
            except NodeExists:
                if not await self._clear_old_registration(path):
                    return False
            node = await self._store.get(path)
        except StoreUnavailable as error:
            logger.info("not registered yet: %s", error)
            return False
        if node is None or node.owner != session.session_id:
            return False
        self.epoch, self._registered_in = node.created, node.owner
        self._settled.fire()
        logger.info("registered as broker %d, in epoch %d", self._node_id, self.epoch)
        return True

    async def _clear_old_registration(self, path: str) -> bool:
        """Our id is registered: by this session, which is fine, or by an earlier one of ours, whose node is deleted."""
        node: Node | None = await self._store.get(path)
        if node is None:
            return True  # just gone: the caller finds that we are not registered
        if node.owner == self._store.session.session_id:
            return True  # made by a commit whose answer was lost
        if node.owner in self._sessions:
            with suppress(NoNode, BadVersion):
                await self._store.commit(Delete(path, node.version))
            return True
        registered = nodes.decode_broker(path, node.data, self._node_id, node.created)
        if registered.endpoints == self._broker.endpoints and await self._wait_until_it_ends(path):
            return True
        raise ConfigError(
            f"broker.id {self._node_id} is in use: another broker is registered under it. If that one has just "
            "crashed, its registration ends with its session (zookeeper.session.timeout.ms): try again then."
        )

    async def _wait_until_it_ends(self, path: str) -> bool:
        """Whether a registration under our own address ends in time: it is of a run that has just crashed."""
        logger.warning("an earlier run of this broker is still registered; waiting for the end of its session")
        gone = Signal()
        watch = self._store.watch_node(path, gone.fire)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s * PATIENCE_FACTOR
        try:
            while await self._store.get(path) is not None:
                if (left_s := deadline - loop.time()) <= 0:
                    return False
                await gone.wait(left_s)
            return True
        finally:
            watch.cancel()
