"""What is often wanted and can be said in the words of any store."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ottla.store.api import (
    ANY_VERSION,
    ROOT,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Put,
    Store,
    UnreadableNode,
    parent_of,
)


class JsonNode(NamedTuple):
    value: Any
    version: int


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(path: str, node: Node) -> JsonNode:
    try:
        return JsonNode(json.loads(node.data), node.version)
    except ValueError as error:
        raise UnreadableNode(path, f"holds no JSON: {error}") from error


async def get_json(store: Store, path: str) -> JsonNode | None:
    node = await store.get(path)
    return None if node is None else from_json(path, node)


async def put_json(store: Store, path: str, value: object, version: int = ANY_VERSION) -> int:
    """Replaces what a node holds and returns its new version."""
    (new_version,) = await store.commit(Put(path, to_json(value), version))
    assert isinstance(new_version, int)
    return new_version


async def put_or_create(store: Store, path: str, data: bytes) -> None:
    """The node holds `data` afterwards, whether it was there or not; parents are made as needed."""
    while True:
        try:
            await store.commit(Put(path, data))
            return
        except NoNode:
            if await create_if_missing(store, path, data):
                return


async def create_with_parents(
    store: Store, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
) -> str:
    """Creates a node and those above it that are missing, in one commit; returns its path."""
    create = Create(path, data, ephemeral, sequential)
    while True:
        missing = await _missing_ancestors(store, path)
        try:
            created = (await store.commit(*map(Create, missing), create))[-1]
        except NodeExists as error:
            if error.path in missing:  # somebody was faster with a parent
                continue
            raise
        except NoNode:  # somebody removed a parent
            continue
        assert isinstance(created, str)
        return created


async def create_if_missing(store: Store, path: str, data: bytes = b"") -> bool:
    """Whether the node was missing; parents are made as needed."""
    if await store.get(path) is not None:
        return False
    try:
        await create_with_parents(store, path, data)
    except NodeExists:
        return False
    return True


async def ensure_path(store: Store, *paths: str) -> None:
    """All these nodes are there afterwards, and those above them."""
    for path in paths:
        await create_if_missing(store, path)


async def delete_tree(store: Store, path: str) -> None:
    """Removes a node and everything below it in one commit; that it is gone already is fine."""
    while await store.get(path) is not None:
        try:
            doomed = await _with_descendants(store, path)
            await store.commit(*map(Delete, reversed(doomed)))
        except (NoNode, NotEmpty):  # somebody else changes this part of the tree: look again
            continue


async def _missing_ancestors(store: Store, path: str) -> list[str]:
    """From the top down."""
    missing: list[str] = []
    ancestor = parent_of(path)
    while ancestor != ROOT and await store.get(ancestor) is None:
        missing.append(ancestor)
        ancestor = parent_of(ancestor)
    return missing[::-1]


async def _with_descendants(store: Store, path: str) -> list[str]:
    """Parents before their children."""
    found = [path]
    for ancestor in found:  # grows while it is walked
        found += [f"{ancestor.rstrip('/')}/{name}" for name in await store.children(ancestor)]
    return found
