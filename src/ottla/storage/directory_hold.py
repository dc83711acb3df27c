"""Keeps the directory of a log under its name while a thread works in it by path.

A log may be deleted, and another of the same name be made, while a thread is busy with the first one: what that thread
then writes or removes by path would hit the other's files. So it holds the directory, and finds out whether it is still
the one that it knew; whoever takes the name away waits for it.
"""

from __future__ import annotations

from threading import Lock
from types import TracebackType


class DirectoryHold:
    """One log's hold on the name of its directory: `with hold as is_ours: if is_ours: ...`."""

    __slots__ = ("_is_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_given_up = False

    def __enter__(self) -> bool:
        self._lock.acquire()
        return not self._is_given_up

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def take(self) -> None:
        """Keeps those out who work in the directory, until `release`: its name is new and not durable yet."""
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def give_up(self) -> None:
        """The name is about to be another's; waits for those who work in the directory."""
        with self._lock:
            self._is_given_up = True
