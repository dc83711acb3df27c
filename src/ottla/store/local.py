"""A store whose tree is in the memory of this process: what the stores without a server have in common.

Commits wait in a queue; one task, alive as long as there is something to write, takes all that wait, decides them one
on top of the other, makes them durable together and only then applies them. So readers never see what a crash could
take back, and many commits at once cost one sync.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.runtime.clock import SystemClock
from ottla.store.api import (
    ROOT,
    Node,
    OnChange,
    Operation,
    Result,
    SessionState,
    StoreClosed,
    StoreError,
    StoreSession,
    StoreUnavailable,
    StoreWatch,
    check_path,
    commit_bytes,
)
from ottla.store.tree import Changes, CommitContext, Draft, Entry, Tree, TreeDecision, decide_in_steps
from ottla.store.watches import Watches

WAITING_COMMITS_MAX = 10_000
# How many commits share a sync, and about how much data: bounds what is written at once.
BATCH_COMMITS_MAX = 256
BATCH_BYTES_MAX = 16 * 1024 * 1024
DECIDED_AT_ONCE_MAX = 500  # operations, before others have their turn: a few milliseconds
SESSION_ID = 1  # there is one: the process
WALL_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class _Commit:
    operations: tuple[Operation, ...]
    size_bytes: int
    answer: asyncio.Future[list[Result]]


class LocalStore:
    """Implements `ottla.store.api.Store`; a subclass says how changes become durable."""

    def __init__(self, tree: Tree, now_ms: Callable[[], int] = WALL_CLOCK.now_ms) -> None:
        self.session = StoreSession(SESSION_ID, SessionState.CONNECTED)
        self._now_ms = now_ms
        self._commit_number = 0
        self._tree = tree
        self._watches = Watches()
        self._waiting: deque[_Commit] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failure: BaseException | None = None

    async def get(self, path: str) -> Node | None:
        self._check_usable(path)
        entry = self._tree.entry(path)
        return None if entry is None else node_of(entry)

    async def children(self, path: str) -> list[str]:
        self._check_usable(path)
        return self._tree.children(path)

    async def sync(self, path: str) -> None:
        self._check_usable(path)  # there is one tree, and everybody reads from it

    def watch_node(self, path: str, on_change: OnChange) -> StoreWatch:
        self._check_usable(path)
        return self._watches.add_node(path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> StoreWatch:
        self._check_usable(path)
        return self._watches.add_children(path, on_change)

    async def commit(self, *operations: Operation) -> list[Result]:
        path = operations[0].path if operations else ROOT
        if self._is_closed:
            raise StoreClosed(path)
        if self._failure is not None:
            message = f"an earlier write ended with {self._failure!r}; restart the broker"
            raise StoreUnavailable(path, message) from self._failure
        if len(self._waiting) >= WAITING_COMMITS_MAX:
            raise StoreUnavailable(path, f"{WAITING_COMMITS_MAX} commits wait already; try again later")
        size_bytes = commit_bytes(operations)
        loop = asyncio.get_running_loop()
        commit = _Commit(operations, size_bytes, loop.create_future())
        self._waiting.append(commit)
        if self._writer is None:
            self._writer = loop.create_task(self._write_queued(), name="metadata store")
        return await commit.answer

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._writer is not None:
            await asyncio.wait((self._writer,))
        await self._release()
        self.session.become(SessionState.LOST, SESSION_ID)

    # -- for a subclass ------------------------------------------------------------------------------------------------

    async def _persist(self, changes: Changes) -> None:
        """Returns when the changes are durable; raises StoreUnavailable if they are not."""
        raise NotImplementedError

    async def _tidy(self) -> None:
        """Upkeep between two batches; the tree stands still meanwhile."""

    async def _release(self) -> None:
        """Lets go of what the store holds."""

    # -- the writer ----------------------------------------------------------------------------------------------------

    def _check_usable(self, path: str) -> None:
        if self._is_closed:
            raise StoreClosed(path)
        check_path(path)

    async def _write_queued(self) -> None:
        """Every failure reaches those who wait for their commits; none is left for the task."""
        batch: list[_Commit] = []
        try:
            while batch := self._take_batch():
                await self._write(batch)
                await self._tidy()
        except BaseException as error:
            # We are wrong, or we are being torn down in the middle of a write: what is durable is unknown from here on.
            self._failure = error
            for commit in (*batch, *self._waiting):
                _fail(commit, error)
            self._waiting.clear()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            self._writer = None

    def _take_batch(self) -> list[_Commit]:
        batch: list[_Commit] = []
        size_bytes = 0
        while self._waiting and len(batch) < BATCH_COMMITS_MAX and size_bytes < BATCH_BYTES_MAX:
            commit = self._waiting.popleft()
            if not commit.answer.done():  # whoever gave up before we began gets nothing written
                batch.append(commit)
                size_bytes += commit.size_bytes
        return batch

    async def _write(self, batch: Sequence[_Commit]) -> None:
        # The tree stands still meanwhile: nobody else writes.
        draft = Draft(self._tree)
        outcomes = [await self._decide_on(draft, commit) for commit in batch]
        if draft.changes:
            try:
                await self._persist(draft.changes)
            except StoreUnavailable as error:
                # Also for those that were refused: that may be because of another commit that now did not happen.
                for commit in batch:
                    _fail(commit, error)
                return
            self._tree.apply(draft.changes)
            self._watches.schedule(draft.touched, draft.came_or_went, asyncio.get_running_loop())
        for commit, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                _fail(commit, outcome)
            elif not commit.answer.done():
                commit.answer.set_result(outcome.results)

    async def _decide_on(self, draft: Draft, commit: _Commit) -> TreeDecision | StoreError:
        self._commit_number += 1
        context = CommitContext(SESSION_ID, self._commit_number, self._now_ms())
        steps = decide_in_steps(draft, commit.operations, context)
        try:
            while True:
                for _ in range(DECIDED_AT_ONCE_MAX):
                    next(steps)
                await asyncio.sleep(0)
        except StopIteration as done:
            decision: TreeDecision = done.value
        except StoreError as refusal:
            return refusal
        draft.absorb(decision)
        return decision


def node_of(entry: Entry) -> Node:
    return Node(entry.data, entry.version, entry.created, entry.created_ms, entry.owner, entry.changed)


def _fail(commit: _Commit, error: BaseException) -> None:
    if commit.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        commit.answer.cancel()
    else:
        commit.answer.set_exception(error)
