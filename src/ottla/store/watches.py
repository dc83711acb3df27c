"""Who wants to know about which part of the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from ottla.store.api import ROOT, OnChange, parent_of


class SubtreeWatch:
    """One interest in a node and everything below it."""

    __slots__ = ("_on_change", "_watches", "path")

    def __init__(self, watches: Watches, path: str, on_change: OnChange) -> None:
        self.path = path
        self._watches = watches
        self._on_change: OnChange | None = on_change

    def cancel(self) -> None:
        if self._on_change is not None:
            self._on_change = None
            self._watches._remove(self)

    def tell(self, changed: frozenset[str]) -> None:
        if self._on_change is not None:
            self._on_change(changed)


class Watches:
    """All watches of a store, found by walking up from what changed: the cost is the depth, not their number."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[SubtreeWatch]] = {}

    def add(self, path: str, on_change: OnChange) -> SubtreeWatch:
        watch = SubtreeWatch(self, path, on_change)
        self._by_path.setdefault(path, []).append(watch)
        return watch

    def _remove(self, watch: SubtreeWatch) -> None:
        at_path = self._by_path[watch.path]
        at_path.remove(watch)
        if not at_path:
            del self._by_path[watch.path]

    def schedule(self, changed: Iterable[str], loop: asyncio.AbstractEventLoop) -> None:
        """Each call comes from the loop itself, so that one that fails is reported there and harms nobody else."""
        if not self._by_path:
            return
        news: dict[SubtreeWatch, set[str]] = {}
        for path in changed:
            for ancestor in _lineage(path):
                for watch in self._by_path.get(ancestor, ()):
                    news.setdefault(watch, set()).add(path)
        for watch, paths in news.items():
            loop.call_soon(watch.tell, frozenset(paths))


def _lineage(path: str) -> Iterator[str]:
    while path != ROOT:
        yield path
        path = parent_of(path)
    yield ROOT
