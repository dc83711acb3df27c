"""Many things in one line of a log: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

LISTED_MAX = 10


class Listed:
    """A collection as a text, which is made only if the line is written."""

    __slots__ = ("_items",)

    def __init__(self, items: Collection[object]) -> None:
        self._items = items

    def __str__(self) -> str:
        text = ", ".join(map(str, islice(self._items, LISTED_MAX)))
        more = len(self._items) - LISTED_MAX
        return f"{text} and {more} more" if more > 0 else text
