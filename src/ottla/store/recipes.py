"""What is often wanted and can be said in the words of any store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ottla.runtime.turns import Turns
from ottla.store.api import (
    ROOT,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Put,
    Store,
    StoreUnavailable,
    parent_of,
)

Result = TypeVar("Result")

RETRY_S: Final = 0.1
ATTEMPTS_MAX: Final = 100  # at a change, before whoever asked is answered: as many others have been faster
CONFLICTS: Final = (BadVersion, NodeExists, NoNode, NotEmpty)  # somebody changed a node meanwhile


async def until_available(step: Callable[[], Awaitable[Result]], timeout_s: float) -> Result:
    """What `step` returns, which must be one that can be done twice: it is repeated while the store is unavailable.

    An ensemble that elects a leader breaks connections, and what was in flight may have been done or not.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            return await step()
        except StoreUnavailable:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(RETRY_S)


async def until_undisturbed(step: Callable[[], Awaitable[Result]]) -> Result:
    """What `step` returns, which reads, decides and writes on the condition that what it read is still so.

    Where somebody else was faster it is done again, and so decides on what that one has left.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(*CONFLICTS):
            return await step()
    return await step()


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


async def _missing_ancestors(store: Store, path: str) -> list[str]:
    """From the top down."""
    missing: list[str] = []
    ancestor = parent_of(path)
    while ancestor != ROOT and await store.get(ancestor) is None:
        missing.append(ancestor)
        ancestor = parent_of(ancestor)
    return missing[::-1]


async def remove_old_children(store: Store, path: str, before_ms: int, turns: Turns) -> None:
    """Deletes what was created before a time, such as notifications. Others may do the same: one of them is first."""
    async for name in turns.over(await store.children(path)):
        node = await store.get(f"{path}/{name}")
        if node is not None and node.created_ms <= before_ms:
            with suppress(NoNode):
                await store.commit(Delete(f"{path}/{name}"))
