"""How large the response to one request may become.

A few bytes of a request can ask, again and again, for something a thousand times as large: all offsets of a group, all
members with their metadata, all producers of a partition. No client has a reason to do so.
"""

from __future__ import annotations

from ottla.errors import ProtocolError

RESPONSE_ELEMENTS_MAX = 1_000_000
RESPONSE_BYTES_MAX = 256 * 1024 * 1024  # of what clients wrote themselves, as large as they like


class ResponseBudget:
    """The elements that a response may still have, and the bytes in them that clients wrote."""

    __slots__ = ("_bytes_left", "_left")

    def __init__(self) -> None:
        self._left = RESPONSE_ELEMENTS_MAX
        self._bytes_left = RESPONSE_BYTES_MAX

    def spend(self, count: int, size_bytes: int = 0) -> None:
        """Adds to the response; ProtocolError, which closes the connection, if it becomes too large."""
        self._left -= count
        self._bytes_left -= size_bytes
        if self._left < 0:
            raise ProtocolError(
                f"the response would have more than {RESPONSE_ELEMENTS_MAX} elements; ask for less in one request"
            )
        if self._bytes_left < 0:
            raise ProtocolError(
                f"the response would have more than {RESPONSE_BYTES_MAX} bytes; ask for less in one request"
            )
