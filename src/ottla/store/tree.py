"""The rules of the tree, free of time and disk: operations in, changes out.

`decide` looks and does not touch; it returns the results and the changes of a commit. `Tree.apply` is the only writer,
and replaying a journal calls the same `apply`. A `Draft` stands between the two: what was decided and is not durable
yet, so that later commits can be decided on top of it while readers still see the tree without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.store.api import (
    ANY_VERSION,
    ROOT,
    BadVersion,
    Check,
    Create,
    Delete,
    InvalidPath,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    Result,
    check_node_size,
    check_path,
    parent_of,
)

NO_OWNER = 0


class CommitContext(NamedTuple):
    """Which session makes a commit, its number and its time."""

    session_id: int
    commit_number: int
    now_ms: int


class Entry(NamedTuple):
    """A node as the tree keeps it. `next_sequence` numbers its sequential children and never goes back."""

    data: bytes
    version: int = 0
    owner: int = NO_OWNER
    next_sequence: int = 0
    created: int = 0
    created_ms: int = 0
    changed: int = 0

    @property
    def is_ephemeral(self) -> bool:
        return self.owner != NO_OWNER


# What became of each path: its new entry, or None where the node is gone.
Changes = Mapping[str, Entry | None]


class View(Protocol):
    """What has to be seen to decide."""

    def entry(self, path: str) -> Entry | None: ...

    def child_count(self, path: str) -> int: ...


class Tree:
    """All nodes by path, and the names of the children of each."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {ROOT: Entry(b"")}
        self._children: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, path: str) -> Entry | None:
        return self._entries.get(path)

    def child_count(self, path: str) -> int:
        return len(self._children.get(path, ()))

    def children(self, path: str) -> list[str]:
        if path not in self._entries:
            raise NoNode(path)
        return sorted(self._children.get(path, ()))

    def items(self) -> Iterator[tuple[str, Entry]]:
        return iter(self._entries.items())

    def apply(self, changes: Changes) -> None:
        """Makes the changes, in any order; that a node is gone already is fine."""
        entries, children = self._entries, self._children
        for path, entry in changes.items():
            if entry is None:
                if entries.pop(path, None) is not None:
                    self._forget_child(path)
                continue
            if path not in entries:
                parent, _, name = path.rpartition("/")
                siblings = children.get(parent or ROOT)
                if siblings is None:
                    children[parent or ROOT] = {name}
                else:
                    siblings.add(name)
            entries[path] = entry

    def _forget_child(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        siblings = self._children[parent or ROOT]
        siblings.remove(name)
        if not siblings:
            del self._children[parent or ROOT]


@dataclass(frozen=True, slots=True)
class TreeDecision:
    """What a commit answers and what it changes. `touched` are nodes that came, changed or went."""

    results: list[Result]
    changes: Changes
    child_growth: Mapping[str, int]
    touched: frozenset[str]
    came_or_went: frozenset[str]


def decide(view: View, operations: tuple[Operation, ...], context: CommitContext) -> TreeDecision:
    """Raises the StoreError of the first operation that the rules refuse."""
    steps = decide_in_steps(view, operations, context)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            decision: TreeDecision = done.value
            return decision


def decide_in_steps(
    view: View, operations: tuple[Operation, ...], context: CommitContext
) -> Generator[None, None, TreeDecision]:
    """The same, an operation at a time: there may be ten thousand, and the view must stand still until the last."""
    draft = Draft(view)
    results = []
    for operation in operations:
        results.append(draft._perform(operation, context))
        yield
    return TreeDecision(
        results, draft.changes, draft._child_growth, frozenset(draft.touched), frozenset(draft.came_or_went)
    )


class Draft:
    """A view with changes on top that the tree below it does not know yet."""

    def __init__(self, base: View) -> None:
        self._base = base
        self._child_growth: Counter[str] = Counter()
        self.changes: dict[str, Entry | None] = {}
        self.touched: set[str] = set()
        self.came_or_went: set[str] = set()

    def entry(self, path: str) -> Entry | None:
        return self.changes[path] if path in self.changes else self._base.entry(path)

    def child_count(self, path: str) -> int:
        return self._base.child_count(path) + self._child_growth[path]

    def absorb(self, decision: TreeDecision) -> None:
        """Takes over what was decided on top of this draft."""
        self.changes.update(decision.changes)
        self._child_growth.update(decision.child_growth)
        self.touched |= decision.touched
        self.came_or_went |= decision.came_or_went

    def _perform(self, operation: Operation, context: CommitContext) -> Result:
        match operation:
            case Create():
                return self._create(operation, context)
            case Put(path, data, version):
                check_node_size(path, data)
                entry = self._expect(path, version)
                self.changes[path] = entry._replace(data=data, version=entry.version + 1, changed=context.commit_number)
                self.touched.add(path)
                return entry.version + 1
            case Delete(path, version):
                self._delete(path, version)
                return None
            case Check(path, version):
                self._expect(path, version)
                return None

    def _expect(self, path: str, version: int) -> Entry:
        check_path(path)
        entry = self.entry(path)
        if entry is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersion(path, version)
        return entry

    def _create(self, create: Create, context: CommitContext) -> str:
        check_node_size(create.path, create.data)
        if create.path == ROOT and not create.sequential:
            raise NodeExists(ROOT)
        # A name may be all number: then the path ends with the slash of the parent.
        path = f"{create.path}{0:010}" if create.sequential else create.path
        check_path(path)
        parent_path = parent_of(path)
        parent = self.entry(parent_path)
        if parent is None:
            raise NoNode(parent_path)
        if parent.is_ephemeral:
            raise NoChildrenForEphemerals(parent_path)
        if create.sequential:
            path = f"{create.path}{parent.next_sequence:010}"
            self.changes[parent_path] = parent._replace(next_sequence=parent.next_sequence + 1)
        if self.entry(path) is not None:
            raise NodeExists(path)
        self.changes[path] = Entry(
            create.data,
            owner=context.session_id if create.ephemeral else NO_OWNER,
            created=context.commit_number,
            created_ms=context.now_ms,
            changed=context.commit_number,
        )
        self._child_growth[parent_path] += 1
        self.touched.add(path)
        self.came_or_went.add(path)
        return path

    def _delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise InvalidPath(path, "the root cannot be deleted")
        self._expect(path, version)
        if self.child_count(path):
            raise NotEmpty(path)
        self.changes[path] = None
        self._child_growth[parent_of(path)] -= 1
        self.touched.add(path)
        self.came_or_went.add(path)
