"""What a metadata store must do, said in the plainest way: a dict that is copied and scanned.

Slow on purpose and without a line in common with `ottla.store.tree`, so that the two can be compared.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.store.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    InvalidPath,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    Result,
    Store,
)


class ModelNode(NamedTuple):
    data: bytes
    version: int
    is_ephemeral: bool
    numbers_given: int


class TreeModel:
    def __init__(self, nodes: dict[str, ModelNode] | None = None) -> None:
        self.nodes = {"/": ModelNode(b"", 0, False, 0)} if nodes is None else dict(nodes)

    def copy(self) -> TreeModel:
        return TreeModel(self.nodes)

    def children(self, path: str) -> list[str]:
        below = path.rstrip("/") + "/"
        return sorted(
            other.removeprefix(below)
            for other in self.nodes
            if other != "/" and other.startswith(below) and "/" not in other.removeprefix(below)
        )

    def commit(self, *operations: Operation) -> list[Result]:
        before = dict(self.nodes)
        try:
            return [self._perform(operation) for operation in operations]
        except Exception:
            self.nodes = before
            raise

    def restart(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if not node.is_ephemeral}

    def _perform(self, operation: Operation) -> Result:
        if isinstance(operation, Create):
            return self._create(operation)
        path = operation.path
        if isinstance(operation, Delete) and path == "/":
            raise InvalidPath(path, "is the root")
        if path not in self.nodes:
            raise NoNode(path)
        node = self.nodes[path]
        if operation.version >= 0 and operation.version != node.version:
            raise BadVersion(path, operation.version)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Put):
            self.nodes[path] = node._replace(data=operation.data, version=node.version + 1)
            return node.version + 1
        if self.children(path):
            raise NotEmpty(path)
        del self.nodes[path]
        return None

    def _create(self, create: Create) -> str:
        if create.path == "/":
            raise NodeExists("/")
        parent = create.path[: create.path.rindex("/")] or "/"
        if parent not in self.nodes:
            raise NoNode(parent)
        if self.nodes[parent].is_ephemeral:
            raise NoChildrenForEphemerals(parent)
        path = create.path
        if create.sequential:
            number = self.nodes[parent].numbers_given
            path += str(number).zfill(10)
            self.nodes[parent] = self.nodes[parent]._replace(numbers_given=number + 1)
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = ModelNode(create.data, 0, create.ephemeral, 0)
        return path

    def seen(self) -> dict[str, Node]:
        """What a reader finds."""
        return {path: Node(node.data, node.version) for path, node in self.nodes.items()}


async def seen_in(store: Store) -> dict[str, Node]:
    """Everything that a store holds, found by walking down from the root."""
    found: dict[str, Node] = {}
    paths = ["/"]
    for path in paths:  # grows while it is walked
        node = await store.get(path)
        assert node is not None, f"{path} is a child and not there"
        found[path] = node
        paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    return found
