"""The store of a single broker: a tree in memory and a journal in the data directory, and no other process.

The lock that the broker holds on its log directory protects the journal too; there is no second one. The session is the
process: ephemeral nodes are gone when the store is opened again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from ottla.disk import Disk
from ottla.errors import StorageError
from ottla.store.api import StoreUnavailable
from ottla.store.journal import StoreJournal, encode_changes, snapshot_of
from ottla.store.local import LocalStore
from ottla.store.tree import Changes, Tree

logger = logging.getLogger(__name__)

JOURNAL_FILE = "metadata.journal"

# How blocking work is run: in a thread that leaves the loop alone, or right here where a simulation wants its order.
Runner = Callable[[Callable[[], None]], Awaitable[None]]


class WriterThread:
    """Runs the work of one store, one piece at a time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")

    async def __call__(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown()


class EmbeddedStore(LocalStore):
    """Opening reads the whole journal, so it belongs to the start of the broker, before anybody is served."""

    def __init__(self, disk: Disk, directory: str, run: Runner | None = None) -> None:
        super().__init__(Tree())
        self._journal = StoreJournal(disk, os.path.join(directory, JOURNAL_FILE), lambda: snapshot_of(self._tree))
        self._journal.open(self._tree.apply)
        self._thread: WriterThread | None = None
        if run is None:
            run = self._thread = WriterThread()
        self._run: Runner = run

    async def _persist(self, changes: Changes) -> None:
        try:
            await self._run(lambda: self._journal.append(encode_changes(changes.items())))
        except StorageError as error:
            raise StoreUnavailable(next(iter(changes)), f"the change is not saved: {error}") from error

    async def _tidy(self) -> None:
        if self._journal.is_long:
            try:
                await self._run(self._journal.rewrite)
            except StorageError as error:
                logger.warning("the metadata journal keeps growing because it cannot be rewritten: %s", error)
                self._journal.postpone_rewrite()

    async def _release(self) -> None:
        try:
            await self._run(self._journal.close)
        except StorageError as error:
            logger.warning("the metadata journal is not marked as closed; nothing is lost: %s", error)
        finally:
            if self._thread is not None:
                self._thread.close()
