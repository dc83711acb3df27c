"""How large the answer to one request may become.

A few bytes can name, again and again, something that takes a thousand times as many to tell: all offsets of a group,
all members with what they told about themselves, all producers of a partition. Nobody who wants to know asks so.
"""

from __future__ import annotations

from ottla.errors import ProtocolError

ANSWER_ELEMENTS_MAX = 1_000_000
ANSWER_BYTES_MAX = 256 * 1024 * 1024  # of what clients wrote themselves, as large as they like


class AnswerRoom:
    """The elements that an answer may still have, and the bytes in them that clients wrote."""

    __slots__ = ("_bytes_left", "_left")

    def __init__(self) -> None:
        self._left = ANSWER_ELEMENTS_MAX
        self._bytes_left = ANSWER_BYTES_MAX

    def take(self, count: int, size_bytes: int = 0) -> None:
        """So many more; ProtocolError where that is too many, and the connection is closed."""
        self._left -= count
        self._bytes_left -= size_bytes
        if self._left < 0:
            raise ProtocolError(
                f"the response would have more than {ANSWER_ELEMENTS_MAX} elements; ask for less in one request"
            )
        if self._bytes_left < 0:
            raise ProtocolError(
                f"the response would have more than {ANSWER_BYTES_MAX} bytes; ask for less in one request"
            )
