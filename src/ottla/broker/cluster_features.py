"""Which features all live brokers of a cluster support, by their registrations in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.cluster import nodes
from ottla.cluster.features import common_features
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.signal import Signal
from ottla.store.api import NoNode, Store, StoreUnavailable

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = -1
RETRY_S: Final = 0.2


class ClusterFeatures:
    """What the registrations say; nothing until they have been read.

    `epoch` grows with each broker that joins: clients keep the features of the largest epoch.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = Signal()
        self.finalized: Mapping[str, int] = {}
        self.epoch = UNKNOWN_EPOCH

    def has(self, name: str) -> bool:
        """Whether all live brokers support a feature; ApiError where that is not known yet."""
        if self.epoch == UNKNOWN_EPOCH:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"whether all brokers support {name} is being read")
        return name in self.finalized

    async def run(self) -> None:
        """Until it is cancelled."""
        watch = self._store.watch_children(nodes.BROKER_IDS, self._changed.fire)
        try:
            while True:
                seen = self._changed.count
                try:
                    await self._read()
                except StoreUnavailable as error:
                    logger.info("the features of other brokers cannot be read now: %s", error)
                    await self._store.session.changed.wait(RETRY_S)
                    continue
                if self._changed.count == seen:
                    await self._changed.wait()
        finally:
            watch.cancel()

    async def _read(self) -> None:
        registered: list[dict[str, int]] = []
        epoch = UNKNOWN_EPOCH
        try:
            names = await self._store.children(nodes.BROKER_IDS)
        except NoNode:
            names = []
        for name in names:
            path = f"{nodes.BROKER_IDS}/{name}"
            node = await self._store.get(path)
            if node is not None and node.data:
                registered.append(_features_of(path, node.data))
                epoch = max(epoch, node.created)
        if registered:
            self.finalized, self.epoch = common_features(registered), epoch


def _features_of(path: str, data: bytes) -> dict[str, int]:
    """None of them where a registration cannot be read: then the cluster uses none."""
    try:
        return nodes.decode_features(path, data)
    except nodes.MetadataError as error:
        logger.error("%s; the cluster uses no features while this broker is registered", error)
        return {}
