"""Assignors of classic groups: the leader of a group, which is a client, says who reads what.

Pure. `spec` is what they are given, a module per assignor, `wire` the bytes that travel in JoinGroup and SyncGroup. All
of them give what Java's give for the same members (`tests/unit/client/consumer/test_assignors.py` compares).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.client.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from ottla.client.consumer.assignors.range import RangeAssignor
from ottla.client.consumer.assignors.round_robin import RoundRobinAssignor
from ottla.client.consumer.assignors.spec import Assignment, Assignor, Member, Topics
from ottla.client.consumer.assignors.sticky import StickyAssignor

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
    }
)

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "Member", "Topics"]
