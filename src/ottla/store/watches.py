"""Who wants to know of which nodes and of whose children."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ottla.store.api import OnChange, parent_of


class PathWatch:
    """One interest in a node, or in the children of one."""

    __slots__ = ("_at_path", "_on_change", "path")

    def __init__(self, at_path: dict[str, list[PathWatch]], path: str, on_change: OnChange) -> None:
        self.path = path
        self._at_path = at_path
        self._on_change: OnChange | None = on_change
        at_path.setdefault(path, []).append(self)

    def cancel(self) -> None:
        if self._on_change is None:
            return
        self._on_change = None
        watches = self._at_path[self.path]
        watches.remove(self)
        if not watches:
            del self._at_path[self.path]

    def call(self) -> None:
        if self._on_change is not None:
            self._on_change()


class Watches:
    """All watches of a store in this process."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[PathWatch]] = {}
        self._children: dict[str, list[PathWatch]] = {}

    def add_node(self, path: str, on_change: OnChange) -> PathWatch:
        return PathWatch(self._nodes, path, on_change)

    def add_children(self, path: str, on_change: OnChange) -> PathWatch:
        return PathWatch(self._children, path, on_change)

    def schedule(
        self, touched: Collection[str], came_or_went: Collection[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Each call comes from the loop itself, so that one that fails is reported there and harms nobody else."""
        if not self._nodes and not self._children:
            return
        called = [watch for path in sorted(touched) for watch in self._nodes.get(path, ())]
        concerned = {*came_or_went, *map(parent_of, came_or_went)}
        called += [watch for path in sorted(concerned) for watch in self._children.get(path, ())]
        for watch in called:
            loop.call_soon(watch.call)
