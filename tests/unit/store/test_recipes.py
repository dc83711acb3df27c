from typing import Any

import pytest

from ottla.store.api import BadVersion, Create, Delete, Node, NodeExists, Operation, Put, Result, StoreUnavailable
from ottla.store.recipes import (
    ATTEMPTS_MAX,
    create_if_missing,
    create_with_parents,
    ensure_path,
    put_or_create,
    until_available,
    until_undisturbed,
)
from ottla.testing import loop
from ottla.testing.memory_store import MemoryStore


class Contended(MemoryStore):
    """A store on which somebody else is faster: `rival` is committed right before the next commit."""

    rival: tuple[Operation, ...] = ()

    async def commit(self, *operations: Operation) -> list[Result]:
        rival, self.rival = self.rival, ()
        if rival:
            await super().commit(*rival)
        return await super().commit(*operations)


@pytest.fixture
def store() -> Contended:
    return Contended()


def test_parents_are_made_as_needed(store: Contended, run: Any) -> None:
    assert run(create_with_parents(store, "/a/b/c", b"x")) == "/a/b/c"
    assert run(create_with_parents(store, "/a/b/n_", sequential=True)) == "/a/b/n_0000000000"
    assert run(store.children("/a/b")) == ["c", "n_0000000000"]
    with pytest.raises(NodeExists):
        run(create_with_parents(store, "/a/b/c"))


def test_a_parent_that_somebody_else_makes_or_removes_meanwhile_is_no_trouble(store: Contended, run: Any) -> None:
    store.rival = (Create("/a"), Create("/a/b"))
    run(create_with_parents(store, "/a/b/c"))
    store.rival = (Delete("/a/b/c"), Delete("/a/b"))
    run(create_with_parents(store, "/a/b/d"))
    assert run(store.children("/a/b")) == ["d"]


def test_create_if_missing_says_whether_it_was(store: Contended, run: Any) -> None:
    assert run(create_if_missing(store, "/a/b", b"1"))
    assert not run(create_if_missing(store, "/a/b", b"2"))
    store.rival = (Create("/c", b"theirs"),)
    assert not run(create_if_missing(store, "/c", b"ours"))
    assert run(store.get("/c")) == Node(b"theirs", 0)


def test_put_or_create_wins_in_any_case(store: Contended, run: Any) -> None:
    run(put_or_create(store, "/a/b", b"1"))
    run(put_or_create(store, "/a/b", b"2"))
    assert run(store.get("/a/b")) == Node(b"2", 1)


def test_paths_are_there_after_they_were_ensured(store: Contended, run: Any) -> None:
    run(ensure_path(store, "/brokers/ids", "/brokers/topics", "/brokers/ids"))
    assert run(store.children("/brokers")) == ["ids", "topics"]


@pytest.mark.parametrize(("lost", "timeout_s", "is_done"), [(0, 0.0, True), (3, 10.0, True), (1, 0.0, False)])
def test_a_step_is_repeated_while_the_store_is_away_but_not_for_ever(
    lost: int, timeout_s: float, is_done: bool
) -> None:
    store = MemoryStore()
    answers = [StoreUnavailable("/", "lost")] * lost

    async def step() -> str:
        await create_if_missing(store, "/a")
        if answers:
            raise answers.pop()  # it was done, and nobody knows
        return "done"

    if is_done:
        assert loop.run(until_available(step, timeout_s)) == "done"
    else:
        with pytest.raises(StoreUnavailable):
            loop.run(until_available(step, timeout_s))


@pytest.mark.parametrize("rivals", [0, 3, ATTEMPTS_MAX - 1, ATTEMPTS_MAX])
def test_a_step_decides_again_where_others_are_faster_but_not_for_ever(store: Contended, run: Any, rivals: int) -> None:
    run(create_if_missing(store, "/a", b"x"))
    tries = 0

    async def step() -> bytes:
        nonlocal tries
        node = await store.get("/a")
        assert node is not None
        if tries < rivals:
            store.rival = (Put("/a", node.data + b"r"),)
        tries += 1
        await store.commit(Put("/a", node.data + b"y", node.version))
        return node.data

    if rivals == ATTEMPTS_MAX:
        with pytest.raises(BadVersion):
            run(until_undisturbed(step))
    else:
        assert run(until_undisturbed(step)) == b"x" + b"r" * rivals
    assert tries == min(rivals + 1, ATTEMPTS_MAX)
