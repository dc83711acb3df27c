from typing import Any

import pytest

from ottla.store.api import Create, Delete, Node, NodeExists, Operation, Result, UnreadableNode
from ottla.store.memory import MemoryStore
from ottla.store.recipes import (
    JsonNode,
    create_if_missing,
    create_with_parents,
    delete_tree,
    ensure_path,
    get_json,
    put_json,
    put_or_create,
)


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


def test_json_goes_in_compact_and_comes_out_with_its_version(store: Contended, run: Any) -> None:
    run(create_if_missing(store, "/config"))
    assert run(put_json(store, "/config", {"version": 1, "name": "käse"})) == 1
    assert run(store.get("/config")) == Node('{"version":1,"name":"käse"}'.encode(), 1)
    assert run(get_json(store, "/config")) == JsonNode({"version": 1, "name": "käse"}, 1)
    assert run(get_json(store, "/nothing")) is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xff"])
def test_what_is_no_json_is_named(store: Contended, run: Any, data: bytes) -> None:
    run(store.commit(Create("/config", data)))
    with pytest.raises(UnreadableNode, match=r"^/config: holds no JSON"):
        run(get_json(store, "/config"))


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


def test_a_tree_goes_as_a_whole_even_if_it_grows_meanwhile(store: Contended, run: Any) -> None:
    run(ensure_path(store, "/t/a/1", "/t/a/2", "/t/b", "/u"))
    store.rival = (Create("/t/b/late"),)
    run(delete_tree(store, "/t"))
    run(delete_tree(store, "/t"))
    assert run(store.children("/")) == ["u"]
