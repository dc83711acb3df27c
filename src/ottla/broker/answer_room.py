"""How large the answer to one request may become.

A few bytes can name, again and again, something that takes a thousand times as many to tell: all offsets of a group,
all members, all producers of a partition. Nobody who wants to know asks so.
"""

from __future__ import annotations

from ottla.errors import ProtocolError

ANSWER_ELEMENTS_MAX = 1_000_000


class AnswerRoom:
    """The elements that an answer may still have."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ANSWER_ELEMENTS_MAX

    def take(self, count: int) -> None:
        """So many more; ProtocolError where that is too many, and the connection is closed."""
        self._left -= count
        if self._left < 0:
            raise ProtocolError(f"the answer would have more than {ANSWER_ELEMENTS_MAX} elements; ask for less at once")
