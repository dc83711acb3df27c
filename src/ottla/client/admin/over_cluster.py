"""Calls of the admin client over a cluster that somebody else has open, and closes."""

from __future__ import annotations

from ottla.client.admin.group_offsets import GroupOffsetCalls
from ottla.client.admin.transactions import TransactionCalls
from ottla.client.lifetime import Lifetime
from ottla.client.metadata import Cluster
from ottla.runtime.clock import SystemClock


class ClusterAdmin(GroupOffsetCalls, TransactionCalls):
    """What the sink and the source of Spark ask of coordinators and controllers, on the connections that they have."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lifetime = Lifetime("admin client")
        self._clock = SystemClock()
