"""Producer ids, taken from the metadata store in blocks so that most requests need no write."""

from __future__ import annotations

import asyncio
import logging

from ottla.cluster import nodes
from ottla.errors import ApiError, ErrorCode
from ottla.store.api import Create, Operation, Put, Store, StoreError
from ottla.store.recipes import until_undisturbed

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out ids that no broker of the cluster ever hands out again. What a crash leaves of a block is lost."""

    def __init__(self, store: Store, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> None:
        self._next = await take_block(self._store, self._node_id)
        self._end = self._next + BLOCK_SIZE


async def take_block(store: Store, node_id: int) -> int:
    """Claims the block behind the last one that any broker took, for a broker; the first id in it."""

    async def take() -> int:
        path = nodes.PRODUCER_IDS
        node = await store.get(path)
        start = 0 if node is None else nodes.decode_producer_ids_end(path, node.data)
        block = encode_block(node_id, start)
        operation: Operation = Create(path, block) if node is None else Put(path, block, node.version)
        await store.commit(operation)
        return start

    try:
        return await until_undisturbed(take)  # another broker may be faster
    except StoreError as error:
        logger.warning("producer ids cannot be assigned now: %s", error)
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids are available now; try again"
        ) from error


def encode_block(node_id: int, start: int) -> bytes:
    return nodes.encode(
        {"version": 1, "broker": node_id, "block_start": str(start), "block_end": str(start + BLOCK_SIZE - 1)}
    )
