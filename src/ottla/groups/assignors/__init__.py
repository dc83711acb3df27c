"""Assignors of consumer groups: who reads which partition. Pure functions, by the names that members ask for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla.groups.assignors.range import assign_ranges
from ottla.groups.assignors.spec import Assign, Assignment, MemberSpec
from ottla.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assign] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})

__all__ = ["ASSIGNORS", "Assign", "Assignment", "MemberSpec", "assign_ranges", "assign_uniformly"]
