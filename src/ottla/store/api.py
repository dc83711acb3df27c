"""What the broker and the controller ask of a metadata store, in ZooKeeper's terms.

A store is a tree of nodes. A node has some bytes, a version that counts its changes, and children. Every change goes
through `commit`: some operations, all of them or none, durable when it returns. Versions make it safe to decide on what
was read before: a `Put`, `Delete` or `Check` that names a version fails if somebody was faster.

Three stores keep this contract: `memory` for simulations, `embedded` for a single broker, ZooKeeper for clusters. The
tests in `tests/unit/store/test_contract.py` hold it for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.errors import OttlaError

ROOT = "/"
ANY_VERSION = -1
NODE_BYTES_MAX = 1024 * 1024 - 1024  # what fits into a request to ZooKeeper with its default `jute.maxbuffer`
COMMIT_BYTES_MAX = 64 * 1024 * 1024  # of all data in a commit


class Node(NamedTuple):
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """A new node below one that exists; its version is 0.

    A sequential node gets a number that its parent never gave before: `/a/n_` becomes `/a/n_0000000007`. An ephemeral
    node has no children and vanishes with the session of its creator.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """New bytes for a node that exists."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node that has no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing; the commit fails unless the node is there and has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Put | Delete | Check
# What became of an operation: the path that was created (with its number), the new version, or nothing to tell.
Result = str | int | None
# Called on the event loop with the paths that changed.
OnChange = Callable[[frozenset[str]], None]


class Watch(Protocol):
    def cancel(self) -> None:
        """No call comes after this one."""
        ...


class Store(Protocol):
    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; `NoNode` if the node itself is not there."""
        ...

    async def commit(self, *operations: Operation) -> list[Result]:
        """Performs all operations, each seeing those before it, or none of them; durable when it returns.

        A commit that a rule of the tree refuses changed nothing. After `StoreUnavailable`, or when the caller was
        cancelled, it may still have happened and be seen after a restart: read before trying again.
        """
        ...

    def watch(self, path: str, on_change: OnChange) -> Watch:
        """Calls `on_change` after each change of the node at `path`, there or not yet, or of anything below it.

        Several changes may come in one call, and what `get` returns then may be newer still. The calls for a commit
        come before that commit returns to its caller.
        """
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes vanish. Commits that wait are finished first."""
        ...


class StoreError(OttlaError):
    """The store did not do what it was asked to; `path` is the node that stood in the way."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class NodeExists(StoreError):  # noqa: N818 (ZooKeeper's name)
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class NoNode(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such node")


class BadVersion(StoreError):  # noqa: N818
    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(path, f"has version {found}, not {expected}: somebody changed it in between")


class NotEmpty(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "has children; delete them first")


class NoChildrenForEphemerals(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "is ephemeral and cannot have children")


class InvalidPath(StoreError):  # noqa: N818
    """Not a path: must start with a slash, and no name in it may be empty, `.` or `..`."""


class TooLarge(StoreError):  # noqa: N818
    """The data of one node, or of a whole commit."""


class UnreadableNode(StoreError):  # noqa: N818
    """The node holds something else than what it should."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot work now: its disk, or the way to it, failed. The message says what to do."""


class StoreClosed(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "the store is closed")


def parent_of(path: str) -> str:
    assert path != ROOT, "the root has no parent"
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    if path == ROOT:
        return
    before, *names = path.split("/")
    if before or not names or not all(names) or "." in names or ".." in names or "\0" in path:
        raise InvalidPath(path, "is no path: it starts with a slash, and no name is empty, '.' or '..'")
