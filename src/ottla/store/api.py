"""What the broker and the controller ask of a metadata store, in ZooKeeper's terms.

A store is a tree of nodes. A node has some bytes, a version that counts its changes, and children. Every change goes
through `commit`: some operations, all of them or none, durable when it returns. Versions make it safe to decide on what
was read before: a `Put`, `Delete` or `Check` that names a version fails if somebody was faster.

Three stores keep this contract: `memory` for simulations, `embedded` for a single broker, ZooKeeper for clusters. The
tests in `tests/unit/store/test_contract.py` hold it for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from ottla.errors import OttlaError
from ottla.runtime.signal import Signal

ROOT = "/"
ANY_VERSION = -1
NODE_BYTES_MAX = 1024 * 1024 - 1024  # what fits into a request to ZooKeeper with its default `jute.maxbuffer`
COMMIT_BYTES_MAX = 64 * 1024 * 1024  # of all data in a commit
PATH_LENGTH_MAX = 128 * 1024  # the longest name of the protocol, quoted; one of a megabyte costs the ZooKeeper session


@dataclass(frozen=True, slots=True)
class Node:
    """A node as a reader finds it. Two are equal if they hold the same.

    `created` is the number of the commit that made it, which grows with every commit (ZooKeeper's czxid), `created_ms`
    the wall time of that, `changed` the commit that wrote its bytes last (mzxid); each is 0 where a store has forgotten
    it. `owner` is the session of an ephemeral node.
    """

    data: bytes
    version: int
    created: int = field(default=0, compare=False)
    created_ms: int = field(default=0, compare=False)
    owner: int = field(default=0, compare=False)
    changed: int = field(default=0, compare=False)


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
# What became of an operation: the path that was created (with its number), the new version, or nothing.
Result = str | int | None
# Called on the event loop: look again.
OnChange = Callable[[], None]


class SessionState(Enum):
    """How a client stands with its store."""

    CONNECTED = auto()
    SUSPENDED = auto()  # no connection; the session may go on, or may have ended already without our knowing
    LOST = auto()  # its ephemeral nodes are gone, or will be; a new session has another id


class StoreSession:
    """What a store knows of its own session. `changed` fires after every change of state or id."""

    def __init__(self, session_id: int = 0, state: SessionState = SessionState.LOST) -> None:
        self.session_id = session_id
        self.state = state
        self.changed = Signal()

    def become(self, state: SessionState, session_id: int) -> None:
        if (state, session_id) != (self.state, self.session_id):
            self.state, self.session_id = state, session_id
            self.changed.fire()


class StoreWatch(Protocol):
    def cancel(self) -> None:
        """No call comes after this one."""
        ...


class Store(Protocol):
    @property
    def session(self) -> StoreSession: ...

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; `NoNode` if the node itself is not there."""
        ...

    async def sync(self, path: str) -> None:
        """What is read from here on is at least as new as every commit, of whatever session, before this call.

        The servers of an ensemble have commits one after the other. Whoever knows of one by another way than its own
        session asks for this first.
        """
        ...

    async def commit(self, *operations: Operation) -> list[Result]:
        """Performs all operations, each seeing those before it, or none of them; durable when it returns.

        A commit that a rule of the tree refuses changed nothing. After `StoreUnavailable`, or when the caller was
        cancelled, it may still have happened and be seen after a restart: read before trying again.
        """
        ...

    def watch_node(self, path: str, on_change: OnChange) -> StoreWatch:
        """Calls `on_change` after the node at `path` was created, changed or deleted, and when that may have been
        missed while there was no connection.

        What is read from then on is at least as new as the change; several changes may come in one call. The call for
        a commit of this store comes before that commit returns to its caller.
        """
        ...

    def watch_children(self, path: str, on_change: OnChange) -> StoreWatch:
        """The same for the names of the children of `path`, and for the node itself coming or going."""
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
        super().__init__(path, "the node already exists")


class NoNode(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such node")


class BadVersion(StoreError):  # noqa: N818
    def __init__(self, path: str, expected: int) -> None:
        super().__init__(path, f"has another version than {expected}: somebody changed it in between")


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


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot work now: its disk, or the way to it, failed. The message says what to do."""


class SessionLost(StoreUnavailable):
    """The session ended: its ephemeral nodes are gone, and what was decided in it has to be decided again."""


class NotAllowed(StoreError):  # noqa: N818
    """The node belongs to another user of ZooKeeper: trying again changes nothing until somebody changes its ACL."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "ZooKeeper does not allow it: check the ACL of the node and the user we log in as")


class StoreClosed(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "the store is closed")


def parent_of(path: str) -> str:
    assert path != ROOT, "the root has no parent"
    return path.rpartition("/")[0] or ROOT


# Control and private characters, surrogates and whatever needs them: ZooKeeper has no place for them in a name.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_path(path: str) -> None:
    if path == ROOT:
        return
    if len(path) > PATH_LENGTH_MAX:
        raise InvalidPath(f"{path[:100]}…", f"has {len(path)} characters, and a path may have {PATH_LENGTH_MAX}")
    before, *names = path.split("/")
    if before or not names or not all(names) or "." in names or ".." in names:
        raise InvalidPath(path, "is not a path: it must start with a slash, and no name may be empty, '.' or '..'")
    if found := _FORBIDDEN.search(path):
        raise InvalidPath(path, f"has the character U+{ord(found[0]):04X}, which no name may contain")


def commit_bytes(operations: Sequence[Operation]) -> int:
    """How much data a commit holds; TooLarge if that is more than any store takes."""
    size_bytes = sum(len(operation.data) for operation in operations if isinstance(operation, Create | Put))
    if size_bytes > COMMIT_BYTES_MAX:
        raise TooLarge(
            operations[0].path, f"{size_bytes} bytes are more than the {COMMIT_BYTES_MAX} that a commit may hold"
        )
    return size_bytes


def check_node_size(path: str, data: bytes) -> None:
    if len(data) > NODE_BYTES_MAX:
        raise TooLarge(path, f"{len(data)} bytes are more than the {NODE_BYTES_MAX} that a node may hold")
