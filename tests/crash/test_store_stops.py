"""The disk stops at every operation of a history of the metadata store, and the store is opened on what is left.

Every commit that returned is there; one that did not return is there whole or not at all; and the store works on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.store import journal
from ottla.store.api import Create, Delete, Node, Operation, Put, StoreError, StoreUnavailable
from ottla.store.embedded import EmbeddedStore
from ottla.testing.disk import DiskStopped, Fate, Kind, SimulatedDisk
from ottla.testing.inline import run_inline
from ottla.testing.tree_model import TreeModel, seen_in

SEEDS = int(os.environ.get("OTTLA_CRASH_SEEDS", "4"))
CRASHES: list[tuple[int, tuple[Fate, ...]]] = [
    (0, (Fate.DROPPED,)),
    (0, (Fate.KEPT,)),
    *((seed, (Fate.DROPPED, Fate.KEPT, Fate.CUT)) for seed in range(SEEDS)),
    *((seed, tuple(Fate)) for seed in range(SEEDS)),
]
# A stop while a snapshot is written, after the commit was answered, shows with the commit after it.
STOPPED = (DiskStopped, StoreUnavailable)
# How much of a write gets into the file when the disk stops in the middle of it.
WRITTEN = (0.0, 0.5, 1.0)


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short history is folded into snapshots of several frames more than once."""
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 600)
    monkeypatch.setattr(journal, "SNAPSHOT_FRAME_NODES", 3)
    monkeypatch.setattr(journal.logger, "disabled", True)  # thousands of torn ends, each worth a line


class Story:
    """A store on a disk, and what a reader may find in it after a crash: the last state that was acknowledged, or one
    that the commits under way lead to."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.model = TreeModel()
        self.possible = [self.model.copy()]
        self.store: EmbeddedStore | None = None

    def open(self) -> None:
        self.store = EmbeddedStore(self.disk, "/data", run=run_inline)

    async def commit(self, *commits: list[Operation]) -> None:
        """Makes several commits at the same time."""
        assert self.store is not None
        for commit in commits:
            after = self.possible[-1].copy()
            after.commit(*commit)
            self.possible.append(after)
        await asyncio.gather(*(self.store.commit(*commit) for commit in commits))
        self.possible = self.possible[-1:]

    async def try_commit(self, *commit: Operation) -> None:
        """A commit that a failing disk refuses: it did not happen, but a crash may still bring it to light."""
        assert self.store is not None
        before = self.possible[-1]
        after = before.copy()
        after.commit(*commit)
        self.possible = [before, after]
        with pytest.raises(StoreUnavailable):
            await self.store.commit(*commit)
        assert await seen_in(self.store) == before.seen()
        self.possible = [after, before]

    async def restart(self) -> None:
        assert self.store is not None
        await self.store.close()
        self.possible[-1].restart()
        self.open()


async def check(story: Story, disk: SimulatedDisk) -> None:
    for model in story.possible:
        model.restart()
    store = EmbeddedStore(disk, "/data", run=run_inline)
    found = await seen_in(store)
    assert found in [model.seen() for model in story.possible]
    await store.commit(Create("/alive", b"again"))
    await store.close()
    again = EmbeddedStore(disk, "/data", run=run_inline)
    assert await seen_in(again) == {**found, "/alive": Node(b"again", 0)}


async def a_first_start(story: Story) -> None:
    story.open()
    await story.commit([Create("/cluster"), Create("/cluster/id", b"abc")])


async def a_busy_life(story: Story) -> None:
    story.open()
    await story.commit([Create("/topics")], [Create("/me", ephemeral=True)], [Create("/log")])
    for n in range(12):
        await story.commit(
            [Create(f"/topics/{n}", b"t" * 40), Create(f"/topics/{n}/state", b"\x00\xff")],
            [Create("/log/n_", b"%d" % n, sequential=True)],
            [Put("/topics", b"%d" % n)],
        )
        if n % 3 == 2:
            await story.commit([Delete(f"/topics/{n - 1}/state"), Delete(f"/topics/{n - 1}"), Put("/me", b"")])
    await story.restart()
    await story.commit([Delete("/log/n_0000000003"), Create("/me", b"new", ephemeral=True)])
    await story.commit([Create("/log/n_", sequential=True)], [Put("/topics/0", b"last" * 300)])
    await story.restart()


async def large_commits(story: Story) -> None:
    """Larger than a sector, so that a write is torn in places."""
    story.open()
    for n in range(4):
        await story.commit([Create(f"/{n}", bytes(range(256)) * 5)], [Create(f"/{n}/x", b"x" * 700)])


async def a_disk_that_fails_now_and_then(story: Story) -> None:
    story.open()
    await story.commit([Create("/a", b"0")])
    kinds: list[Kind] = ["write", "sync", "sync", "write"]
    for n, kind in enumerate(kinds):
        story.disk.fail("/data/*", kind, errno.EIO, written=0.6, times=1)
        await story.try_commit(Put("/a", b"never" * 20), Create(f"/never{n}"))
        await story.commit([Put("/a", b"%d" % n * 200)])
    await story.restart()


HISTORIES: list[Callable[[Story], Coroutine[Any, Any, None]]] = [
    a_first_start,
    a_busy_life,
    large_commits,
    a_disk_that_fails_now_and_then,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_what_was_acknowledged_survives_a_stop_at_any_operation(
    history: Callable[[Story], Coroutine[Any, Any, None]],
) -> None:
    whole = Story(SimulatedDisk())
    asyncio.run(history(whole))
    asyncio.run(check(whole, whole.disk.crash()))
    operations = whole.disk.operations
    assert history is not a_busy_life or sum(operation.kind == "rename" for operation in operations) > 3
    for number, operation in enumerate(operations):
        for written in WRITTEN if operation.kind == "write" else (0.0,):
            story = Story(SimulatedDisk())
            story.disk.stop_at(number, written=written)
            with pytest.raises(STOPPED):
                asyncio.run(history(story))
            for seed, fates in CRASHES:
                asyncio.run(check(story, story.disk.crash(seed, fates)))


def test_the_power_may_fail_again_while_the_store_recovers() -> None:
    first = Story(SimulatedDisk())
    asyncio.run(a_busy_life(first))
    for number in range(0, len(first.disk.operations), 3):
        story = Story(SimulatedDisk())
        story.disk.stop_at(number, written=0.7)
        with pytest.raises(STOPPED):
            asyncio.run(a_busy_life(story))
        for seed in range(SEEDS):
            left = story.disk.crash(seed)
            for stop in range(12):
                attempt = left.crash()
                attempt.stop_at(stop, written=0.5)
                try:
                    asyncio.run(check(story, attempt))
                except STOPPED:
                    asyncio.run(check_nothing_is_lost(story, attempt.crash(seed)))
                else:
                    break


async def check_nothing_is_lost(story: Story, disk: SimulatedDisk) -> None:
    found = await seen_in(EmbeddedStore(disk, "/data", run=run_inline))
    found.pop("/alive", None)
    assert found in [model.seen() for model in story.possible]


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/deep"])
DATA = st.binary(max_size=4).map(lambda data: data * 200)
COMMITS: st.SearchStrategy[list[Operation]] = st.lists(
    st.one_of(
        st.builds(Create, PATHS, DATA, ephemeral=st.booleans()),
        st.builds(Create, st.sampled_from(["/n_", "/a/n_"]), DATA, sequential=st.just(True)),
        st.builds(Put, PATHS, DATA),
        st.builds(Delete, PATHS),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=400)
@given(
    commits=st.lists(COMMITS, max_size=25),
    stop=st.integers(min_value=0, max_value=80),
    written=st.floats(min_value=0, max_value=1),
    seed=st.integers(min_value=0, max_value=1000),
)
def test_random_histories_survive_a_stop_anywhere(
    commits: list[list[Operation]], stop: int, written: float, seed: int
) -> None:
    async def history(story: Story) -> None:
        story.open()
        for commit in commits:
            try:
                story.possible[-1].copy().commit(*commit)
            except StoreError:
                await story.restart()  # what cannot be committed stands for a restart here
            else:
                await story.commit(commit)

    story = Story(SimulatedDisk())
    story.disk.stop_at(stop, written=written)
    with contextlib.suppress(*STOPPED):
        asyncio.run(history(story))
    asyncio.run(check(story, story.disk.crash(seed)))
